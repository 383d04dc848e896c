"""Changes that were tried: each module proposes changes to the advisor, which keeps those that help.

advisor               tries changes, and keeps those that help
claim_bindings        how claims get volumes: by a storage class, or by hand
claim_selectors       CEL selectors and constraints of claims
claim_sizes           fewer devices for claims
deletions             deleting reservations
device_repairs        taints, DeviceTaintRules, shared capacity and holders of devices
eviction_budgets      PodDisruptionBudgets that forbid an eviction
evictions             ending pods
forecast_waits        waiting for as long as the forecast of `when` says
gang_repairs          changes that let a whole gang start
invalid_requests      requests for devices and exclusive CPUs that no node can satisfy
largest_requests      the largest requests with which all pods of a workload or gang start
limit_ratios          higher limits of pods on a node
missing_claims        claims, templates and device classes that do not exist
missing_volumes       PersistentVolumeClaims and volumes that do not exist or are not bound
misspellings          names that nothing has: the nearest ones that exist
new_nodes             a node that the cluster lacks
nominated_pods        capacity kept for pods that are nominated to a node
overdue_pods          pods that are being deleted for longer than their grace period
planned_reservations  planned reservations in the way of a pod
preemption_policies   pods whose preemptionPolicy is Never
reclaim_repairs       changes with which capacity is reclaimed
removals              constraints that can be removed from a pod
repair_search         which changes are tried, and combinations of them
replica_repairs       changes that together let more pods of a workload start
reservation_repairs   changes that make a matching reservation usable
rollouts              a Deployment whose new pods wait for its old ones
smaller_requests      smaller requests and limits
unused_claims         claims with devices and without pods
waits                 waiting for what is known to end or to start
"""
