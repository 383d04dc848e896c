"""Taints that say a node cannot be used now: it starts, stops, or is not well. The component that sets
one removes it, or the node; a pod that tolerates it would start on a node that is not fit for it."""

from holdfast.api.names import TAINT_UNSCHEDULABLE

_PREFIXES = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "node.cluster.x-k8s.io/",
    "readiness.k8s.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "aws-node-termination-handler/",
)
_KEYS = (
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "karpenter.sh/unregistered",
    "cloud.google.com/impending-node-termination",
)
_ENDINGS = ("not-ready", "notready", "unready", "uninitialized", "unhealthy")
"""How agents that must run before other pods name theirs: node.cilium.io/agent-not-ready."""


def is_lifecycle_taint(key: str) -> bool:
    """Whether a taint belongs to the lifecycle of nodes. That of a cordon, set by hand, does not."""
    if key == TAINT_UNSCHEDULABLE:
        return False
    return key.startswith(_PREFIXES) or key in _KEYS or key.lower().endswith(_ENDINGS)
