"""What would happen on a cluster: its objects in memory, changed, under the same scheduler.

    objects of a cluster ─► at rest (before) ─► changes ─► at rest (after) ─► what differs

    hypothetical_cluster  the objects of a cluster on a virtual clock, loaded without copies
    changes               what is changed: manifests, replicas, nodes added, drained, removed
    node_shapes           shapes of nodes to add
    drain                 evicts the pods of a node as `kubectl drain` does
    question              asks: applies changes and collects what differs
    answer                the answer as data
    capacity              amounts of the whole cluster, and how much of what is free is of use
    node_plan             the smallest number of nodes with which everything fits
    page                  the answer as one HTML file
    fit_check             would manifests fit? for CI
    fit_formats           the result of a check as SARIF and JUnit

Nothing is written to the cluster that the objects come from.
"""
