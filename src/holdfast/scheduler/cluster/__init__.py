"""The parts of the state that all others build on: node table, pod classes, ledger, events, decisions.

    base                                         `ClusterBase`: these parts together, settings, stories
    epoch                                        versions of the parts of the state, for caches
    node_table, slots, columns                   a row per node, a slot per resource; values per row
    node_labels, node_selectors                  labels as columns of codes; compiled node selectors
    object_index                                 objects that plugins read; PodMigrationJobs
    records                                      pods and reservations as the scheduler keeps them
    nominator                                    pods with a nominated node
    class_key, pod_classes                       what scheduling reads of a pod; pods with equal keys
    ledger                                       claims of pods and reservations, with transactions
    reservation_table, reservation_usage         reserved, allocated and remaining amounts
    limit_sums, pod_limits                       sums of limits by node; limits of a class
    domain_counts                                pods per selector and topology domain; facets
    affinity_terms                               inter-pod affinity terms
    view                                         rows as plugins see them: one, some or all
    read_only                                    values that plugins can read but not change
    events, decisions                            input and output of the scheduler
    disruption_budgets                           PodDisruptionBudgets, and which evictions violate them
    timer_queue, plugin_errors                   timers; errors of plugins

Time is a number that comes with each event. May import `api`, `msgspec` and `numpy`.
"""
