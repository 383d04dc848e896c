"""Controllers: status and lifecycles that follow from objects rather than from a round. Pure.

    reservation_lifecycle  expiry, use, Waiting to Available, resizing, garbage collection, status
    reservation_eviction   preempted reservations: first their pods, then they themselves
    provisioner            makes the reservations that pods request
    migration              PodMigrationJobs
    pod_groups             status of PodGroups and Queues

May import `jobs`, `managers`, `reservations`, `cluster`, `machinery` and `api`, never the framework.
"""
