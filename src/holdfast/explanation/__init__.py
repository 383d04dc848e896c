"""Why an object has no node, or why it got the one it has: asks the scheduler of a
snapshot.

    explainer              finds and explains an object of a snapshot
    explained_kinds        the kinds that can be explained, and their names
    pods                   a pod that is pending or placed
    resizes                a pod whose resize its kubelet has not made
    no_node                a pod or reservation for which no node is feasible
    groups                 a pod group
    blocked_members        the member that keeps a gang from starting
    min_resources          minResources of a pod group
    workloads              a Deployment, StatefulSet, DaemonSet, ReplicaSet or Job, by its pods
    uncreated_pods         pods of a workload that cannot be created
    rollouts               a Deployment whose new pods wait for its old ones
    nodes                  a node: whether it takes pods, what is on it, which pending pods fit
    queues                 a queue: its limits, and what waits in it
    reservations           a reservation
    waiting_reservations   a reservation that waits for capacity on its node
    schedules              a ReservationSchedule
    matching_reservations  the reservations that a pod matches
    reservation_repairs    changes that make a matching reservation usable
    queue_limits           limits of a pod's queue
    reclaimed_capacity     what is reclaimed from other queues, or why nothing is
    verdicts               what the scheduler says: feasible nodes, scores, whether a pod would start
    details                names and figures behind reasons
    host_ports             host ports that others have
    taints                 taints of nodes, and tolerations of them
    node_labels            labels and names of nodes that a pod requires
    pod_affinity           affinity and anti-affinity to other pods
    ignored_annotations    policies and hints of a pod that the scheduler ignores
    misspellings           names that nothing has: the nearest ones that exist
    mistaken_units         requests in a mistaken unit
    capacity               what is free on a node for a pod, and what is short
    own_reservations       reservations and holds for the pod itself
    holders                reservations and holds of others, and whom they are for
    expected_ends          when pods and reservations should end
    phrases                amounts, pods and times in sentences
    hardware               devices and volume attachments
    numa_alignment         NUMA nodes, exclusive CPUs, and policies for both
    missing_claims         claims, templates and device classes that do not exist
    created_claims         claims that are created from templates
    missing_volumes        PersistentVolumeClaims and volumes that do not exist or are not bound
    claim_volumes          volumes for claims that are not bound
    unused_claims          claims with devices and without pods
    claim_sizes            fewer devices for claims
    invalid_requests       requests for devices and exclusive CPUs that no node can satisfy
    pod_sizes              other requests and limits for the containers of a pod
    repairs                changes that may help, and how they are made
    node_repairs           changes of configuration, by the plugin that rejects a node
    label_repairs          other labels for nodes, and for what a pod requires of them
    nominated_pods         capacity kept for pods that are nominated to a node
    repair_search          which changes are tried, and combinations of them
    waits                  waiting for what is known to end or to start
    smaller_requests       smaller requests and limits
    deletions              deleting reservations
    evictions              ending pods
    smaller_workloads      workloads that would create ended pods again
    overdue_pods           pods that are being deleted for longer than their grace period
    rolling_updates        rolling updates of Deployments
    kept_pods              pods that their workload does not replace when its template changes
    limit_ratios           higher limits of pods on a node
    device_taints          taints of devices
    advice                 keeps the changes that help
    report                 the explanation as data
"""
