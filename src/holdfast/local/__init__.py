"""A cluster in one process: the scheduler, a store, and all that lives around them.

The same parts make up a simulation, whose clock is virtual, and `holdfast up`, whose clock is real:

    clock       what time it is
    agenda      what is yet to happen
    objects     writing to the store as the cluster's own parts do
    telling     the names of what happens to objects, for whoever keeps a record
    setup       the scheduler, from its configuration
    admission   what an API server fills in
    kubelet     pods that start, run, end and stop
    statuses    what a kubelet reports of a pod
    volumes     claims that find their volumes
    budgets     the status of disruption budgets
    events      Kubernetes Events, counted when they repeat
    taints      pods that must leave tainted nodes
    disruption  what the eviction API asks the budgets
    hands       what the scheduler's decisions do to the cluster; what they do to `reservations`, `jobs`
                and `migrations` has files of its own
    resident    what all who live there have in common
    namespaces  namespaces that are emptied
    workloads   pods made from Deployments, Jobs and their like, and deleted with them; a simulation
                knows Deployments only
    plugin_objects
                objects that only plugins read, fed in the versions they declare
    world       all of these, wired to the scheduler

and what only `up` has:

    cluster     the loop
    nodes       nodes that register and stay ready
    orphans     pods whose node is not there
    expiry      events that are old

May import `store`, `controllers`, `actions`, `plugins` and below. Nothing here blocks, and only
`clock` reads the time.
"""
