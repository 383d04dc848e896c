"""The controllers of workloads: what makes pods out of Deployments, Jobs and their like.

Kubernetes has its own; these serve where there is no Kubernetes, in the embedded cluster. They keep to
its behaviour as far as `kubectl` and those who try a story with it can see. Pure as all controllers:
objects in, changes out, the time is told.

    actions        what a controller wants done
    view           how it sees the cluster
    engine         which object to look at next, and when again
    pods           facts about a pod: ready, available, ended; a pod made from a template
    claims         which objects are a controller's own: adopted, released
    replica_set    as many pods as asked for; `surplus` says which go first
    deployment     one ReplicaSet after another; with `rollout`, `scaling`, `revisions`, `progress`
    stateful_set   pods with names that stay
    job            pods that come to an end; `indexes` numbers them
    daemon_set     a pod for each node that fits
    history        the templates that stateful sets and daemon sets had before
    garbage        what has lost its owners goes

A controller is a function from a view, an object and the time to an `Outcome`. It looks at everything
anew each time and says what is missing; so it may be called too often, never too seldom.
"""

from holdfast.local.workloads.engine import Look, Workloads
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
    "Look",
    "Ref",
    "Update",
    "Workloads",
]
