"""What tests are made of. It may import the package under test and the reference scheduler, no test.

* `objects` makes raw objects as users write them; `device_objects` and `numa_objects` those of devices
  and CPUs, `claims` those of volumes; `builders` makes typed objects, a field at a time.
* `strategies` (hypothesis), `choices` and `storage_choices` (any source of choices) make random ones.
* `driver` feeds a scheduler by hand and shows its decisions; `world` carries them out; `scenarios`
  plays scenarios in a simulation, and `followed_advice` what `explain` advises there. `random_events`
  has what random runs of a world share.
* `embedded_cluster` runs the local cluster step by step and `served_cluster` serves it in a thread;
  `up_thread` and `up_process` run the command `holdfast up`, in a thread and as a process. `apiserver`
  runs its API server alone.
* `runner_cluster`, `fake_api`, `fake_client` and `virtual_time` run the Kubernetes backend on an API
  server in memory; `holdfast_process` runs `holdfast run` as a process.
* `widgets` is a custom kind, `team_quotas` and `permit_gate` are plugins.
"""
