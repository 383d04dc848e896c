"""Rolling updates of Deployments: which old pods end, and when."""

from collections import Counter
from typing import NamedTuple

from holdfast.api.errors import MalformedText
from holdfast.api.kinds import KINDS
from holdfast.api.workloads import scaled_value
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

DEPLOYMENT = KINDS["apps/v1", "Deployment"]
REPLICA_SET = KINDS["apps/v1", "ReplicaSet"]
_UNKNOWN: Raw = {"metadata": {}}
_DEFAULT = "25%"


class DeploymentRollout(NamedTuple):
    deployment: Raw
    old: list[PodRecord]
    """The pods of its other ReplicaSets that have a node, in the order in which they would end."""
    available: int
    """Pods of the new ReplicaSet that are available."""

    @property
    def replicas(self) -> int:
        replicas = (self.deployment.get("spec") or {}).get("replicas")
        return 1 if replicas is None else int(replicas)

    @property
    def strategy(self) -> Raw:
        found: Raw = (self.deployment.get("spec") or {}).get("strategy") or {}
        return found

    def bound(self, name: str) -> int:
        """`maxSurge`, rounded up, or `maxUnavailable`, rounded down, as a number of pods."""
        given = (self.strategy.get("rollingUpdate") or {}).get(name, _DEFAULT)
        try:
            return scaled_value(given, self.replicas, round_up=name == "maxSurge")
        except MalformedText:
            return 0

    @property
    def unavailable(self) -> int:
        """`maxUnavailable`, which is 1 if both bounds would be 0."""
        return self.bound("maxUnavailable") or (0 if self.bound("maxSurge") else 1)

    def needed(self, count: int) -> int:
        """The `maxUnavailable` with which so many old pods end before new ones are ready."""
        return count + self.replicas - len(self.old) - self.available


def rolling_update_of(
    snapshot: ClusterSnapshot, pod: PodRecord, again: bool = False
) -> DeploymentRollout | None:
    """The rollout that the pod is a new one of; or the next one, once the template has changed again,
    of which the pods of all ReplicaSets are old. None unless a Deployment that is known made the pod,
    with the strategy RollingUpdate."""
    raw = snapshot.find(POD, pod.name, pod.namespace)
    owner = controller_of(raw or _UNKNOWN)
    own = snapshot.find(REPLICA_SET, owner.get("name") or "", pod.namespace)
    above = controller_of(own or _UNKNOWN)
    deployment = snapshot.find(DEPLOYMENT, above.get("name") or "", pod.namespace)
    if own is None or deployment is None or above.get("kind") != "Deployment":
        return None
    uids = {
        each["metadata"].get("uid")
        for each in snapshot.all(REPLICA_SET)
        if (again or each is not own) and controller_of(each).get("uid") == above.get("uid")
    }
    old = [
        each
        for each in snapshot.cluster.pods.values()
        if each.row >= 0
        and not each.cls.terminating
        and any(owner.controller and owner.uid in uids for owner in each.cls.owners)
    ]
    available = 0 if again else int((own.get("status") or {}).get("availableReplicas") or 0)
    rollout = DeploymentRollout(deployment, _in_order(old), available)
    return None if rollout.strategy.get("type") == "Recreate" else rollout


def _in_order(pods: list[PodRecord]) -> list[PodRecord]:
    """As the ReplicaSet controller ends them: those on nodes with the most of them first, then the
    newest."""
    on = Counter(pod.row for pod in pods)
    newest = sorted(pods, key=lambda pod: (pod.created or "", pod.name), reverse=True)
    return sorted(newest, key=lambda pod: -on[pod.row])
