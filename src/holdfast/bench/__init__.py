"""`holdfast bench`: scheduler_perf's workloads and recorded traces, run through the scheduler.

    command         the command line
    workload        workload files (`workloads/*.yaml`) and their templates
    trace, packing  a recorded trace; packing its pods onto its nodes
    plan            the events that a workload or a trace becomes
    drive, measure  feeds a plan to a scheduler; times it
    kube_measure    `--mode kube`: the same workloads against an API server
    kube_cluster    that server: fills it, empties it, runs schedulers on it
    local_cluster   `--mode embedded`: pods bound per second in a local cluster
    report          tables and JSON

The clock stops around everything that the benchmark itself does. May import every package but `cli`.
"""
