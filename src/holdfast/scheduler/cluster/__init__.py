"""The cluster state: node table, pod classes, ledger, events and decisions.

    cluster, settings                            the state, updated by events; its settings
    epoch                                        versions of the parts of the state, for caches
    node_table, slots, columns                   a row per node, a slot per resource; values per row
    node_labels, node_selectors                  labels as columns of codes; compiled node selectors
    node_info, object_index                      what is read of nodes; objects that plugins read
    pods, pod_handlers                           pod records; event handlers of pods
    nominator                                    pods with a nominated node
    class_key, pod_classes                       what scheduling reads of a pod; pods with equal keys
    ledger, reservation_table                    claims, with transactions; reserved amounts
    limit_sums, pod_limits                       sums of limits by node; limits of a class
    domain_counts, domain_facets                 pods per selector and topology domain
    affinity_terms                               inter-pod affinity terms
    view                                         rows as plugins see them: one, some or all
    read_only                                    values that plugins can read but not change
    events, decisions                            input and output of the scheduler
    timer_queue, story                           timers; the recent history of each object
    recount, plugin_errors                       the state recomputed and compared; errors of plugins

Time is a number that comes with each event. May import `api`, `msgspec` and `numpy`; the modules that
combine the parts of the state (`Cluster`, the event handlers of pods, the recount) also import
reservations, managers and jobs.
"""
