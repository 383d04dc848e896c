"""The workload controllers of a local cluster: Deployments, Jobs and the other kinds that make pods.

    lister               what a controller reads, and the changes it returns
    engine               the work queue: which object to reconcile, and when again
    component            runs the controllers in the local cluster
    completion           what a dump of a cluster lacks for them to recognise its pods
    pods                 ready, available, ended; pods from templates
    replica_set          ReplicaSets
    deployment           Deployments; how many replicas each ReplicaSet gets next
    stateful_set         StatefulSets
    daemon_set           DaemonSets
    revisions            ControllerRevisions
    job                  Jobs, Indexed ones included
    job_indexes          sets of completion indexes
    job_policies         podFailurePolicy, backoffLimitPerIndex, successPolicy
    cron_job             CronJobs
    garbage_collector    objects whose owners are gone

They follow Kubernetes' controllers as far as `kubectl` shows. Pure: a controller is a function from a
lister, an object and the time to an `Outcome`. It is level-triggered: it compares the whole
actual state with the desired one each time, so an extra call does no harm.
"""

from holdfast.local.workloads.engine import Sync, Workloads
from holdfast.local.workloads.lister import (
    Action,
    CreateDependent,
    DeleteDependent,
    EmitEvent,
    Lister,
    Ref,
    Update,
)

__all__ = [
    "Action",
    "CreateDependent",
    "DeleteDependent",
    "EmitEvent",
    "Lister",
    "Ref",
    "Sync",
    "Update",
    "Workloads",
]
