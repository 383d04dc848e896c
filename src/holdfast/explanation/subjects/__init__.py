"""The objects that can be explained, and what is common to them.

blocked_members       the member that keeps a gang from starting
claims                a PersistentVolumeClaim or ResourceClaim
cron_jobs             a CronJob
daemon_sets           nodes for which a DaemonSet creates no pod
gang_members          a member of a gang
groups                a pod group
migrations            a PodMigrationJob
min_resources         minResources of a pod group
no_node               a pod or reservation for which no node is feasible
nodes                 a node: whether it takes pods, what is on it, which pending pods fit
plain_reasons         why no node is feasible, in plain words
pods                  a pod that is pending or placed
queue_changes         changes with which a queue admits pods
queue_limits          limits of a pod's queue
queues                a queue: its limits, and what waits in it
reservations          a reservation
schedules             a ReservationSchedule
uncreated_pods        pods of a workload that cannot be created
waiting_reservations  a reservation that waits for capacity on its node
workloads             a Deployment, StatefulSet, DaemonSet, ReplicaSet or Job, by its pods
"""
