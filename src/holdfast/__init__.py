"""Holdfast: a Kubernetes scheduler that schedules promises as well as pods.

The packages, lowest layer first; each imports only from those before it:

    api          typed objects, quantities, selectors, durations, validation
    core         columnar cluster state and the ledger; events in, decisions out
    framework    the plugin protocol, the scheduling cycle, the queue, profiles
    plugins      one file per plugin
    actions      what a round does
    controllers  lifecycles of reservations, provisioning, migration
    store        the embedded object store
    backends     what carries decisions out: embedded, Kubernetes
    server       the embedded API server
    sim          the virtual clock, simulated kubelets, scenarios
    bench        workloads and how fast they are decided
    cli          the `holdfast` command
"""

__version__ = "0.1.0"
