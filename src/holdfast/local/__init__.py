"""A cluster in one process: the scheduler, an object store and the controllers around them.

Simulations use these parts on a virtual clock, `holdfast up` on the real one:

    cluster_parts         all parts, connected to the scheduler
    executor              carries the scheduler's decisions out against the store
    component             what controllers and kubelets have in common
    clock                 the clock, and the queue of timers
    setup                 the scheduler, from its configuration
    kubelet               pods that start, run, end and stop
    volume_controller     binding and provisioning of claims
    disruption            status of PodDisruptionBudgets
    taint_eviction        NoExecute taints
    namespace_controller  deletion of namespaces
    pod_gc                pods whose node does not exist
    stored_events         Events, aggregated, with a TTL
    workloads             the controllers of Deployments, Jobs and the other workload kinds
    store, apiserver      the object store; its Kubernetes API

Only `holdfast up` uses:

    up, cluster_loop      the assembled process and its loop
    node_registration     nodes that register and renew their leases
    apply_manifests       files applied at start-up

May import `scheduler`, `metrics`, `serving` and the layers below. Only `clock` reads the time.
"""
