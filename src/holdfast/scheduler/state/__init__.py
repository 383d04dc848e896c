"""The whole state of the scheduler: `Cluster`, composed of the parts below it and updated by events.

    cluster        the nodes, pods, reservations, jobs and other objects; dispatches events
    pod_handlers   event handlers of pods
    recount        the state recomputed and compared

May import `jobs`, `reservations`, `managers`, `cluster` and `api`.
"""
