"""What a snapshot says of a pod, a node or a reservation: nothing is changed or proposed here.

admitted_pods          what admission adds to the pods of a workload
awaited_terminations   terminating pods whose capacity is kept for others
capacity               what is free on a node for a pod, and what is short
claim_details          why a device does not satisfy a claim
created_claims         claims that controllers create for pods
device_taint_rules     DeviceTaintRules that keep claims from devices
device_values          values of devices that a selector can ask for
expected_ends          when pods and reservations should end
expected_plans         nodes for reservations that start later and have none yet
followed_changes       what comes of changes that a user makes one after the other
hardware               devices and volume attachments
holders                reservations and holds of others, and whom they are for
ignored_annotations    policies and hints of a pod that the scheduler ignores
matching_reservations  the reservations that a pod matches
near_owners            reservations whose owners a pod misses by a label or its namespace
node_labels            labels and names of nodes that a pod requires
numa_alignment         NUMA nodes, exclusive CPUs, and policies for both
other_pods             pods that are tried before this one
own_reservations       reservations and holds for the pod itself
own_starts             what the scheduler does by itself: preempt or reclaim
played_rounds          what comes of a pod or gang when the scheduler plays its rounds on a copy
pod_owners             the workloads that pods were made from
preemption_limits      why a pod does not preempt others
reclaimed_capacity     what is reclaimed from other queues, or why nothing is
rehearsed_rounds       what a round does with other pods before a pod or gang is tried
replaced_pods          pods whose spec changes, and who has what was held for them
running_pods           a pod that has a node: waiting containers, a resize that is not made
workload_dry_runs      what controllers and scheduler make of a workload after a change
"""
