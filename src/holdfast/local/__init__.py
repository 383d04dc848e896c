"""A cluster in one process: the scheduler, an object store and the controllers around them.

Simulations use these parts on a virtual clock, `holdfast up` on the real one:

    cluster_parts         all parts, connected to the scheduler
    executor              carries the scheduler's decisions out
    component             what controllers and kubelets have in common
    timeline              what happened to objects, in order
    clock                 the clock, and the timers of components
    setup                 the scheduler, from its configuration
    kubelet               pods that start, run, end and stop
    volume_controller     binding and provisioning of claims; volume_binding has the rules
    resource_claim_controller  claims on devices, made from templates and released
    claim_references      which claims pods and PodGroups name, their owners and consumers
    pod_group_protection  PodGroups that are deleted while they have pods
    device_taint_eviction      pods on devices with NoExecute taints
    resource_slices       the simulated driver of GPUs
    disruption            status of PodDisruptionBudgets
    node_lifecycle        nodes that register and renew their leases; pod GC; taint eviction
    namespace_controller  deletion of namespaces
    stored_events         Events, aggregated, with a TTL
    workloads             the controllers of Deployments, Jobs and the other workload kinds
    store, apiserver      the object store; its Kubernetes API

Only `holdfast up` uses:

    up, cluster_loop      the assembled process, files applied at start-up; its loop

May import `scheduler`, `metrics`, `serving` and the layers below. Only `clock` reads the time.
"""
