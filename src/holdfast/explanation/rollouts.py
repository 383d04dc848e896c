"""Rollouts of Deployments that wait for capacity which their own old pods have.

A rolling update ends old pods only as new ones become ready, but for `maxUnavailable` of them. Where
the new pods do not fit beside the old ones, it never goes on.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.api.errors import MalformedText
from holdfast.api.kinds import KINDS
from holdfast.api.plurals import number_of, plural
from holdfast.api.workloads import scaled_value
from holdfast.explanation.advice import Advisor
from holdfast.explanation.expected_ends import ended_pod
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.repairs import RESIZE, controller_of, repair
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

DEPLOYMENT = KINDS["apps/v1", "Deployment"]
_REPLICA_SET = KINDS["apps/v1", "ReplicaSet"]
_UNKNOWN: Raw = {"metadata": {}}
_DEFAULT = "25%"
_TRIED = 8


class _Rollout(NamedTuple):
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


def deployment_name(snapshot: ClusterSnapshot, raw: Raw) -> str:
    """The name of the Deployment that a pod or ReplicaSet is of; empty if it is of none."""
    owner, namespace = controller_of(raw), raw["metadata"].get("namespace") or ""
    if owner.get("kind") == "ReplicaSet":
        owner = controller_of(snapshot.find(_REPLICA_SET, owner["name"], namespace) or _UNKNOWN)
    return str(owner["name"]) if owner.get("kind") == "Deployment" else ""


def consider_rollout(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> Iterator[str]:
    """Letting old pods of the pod's Deployment end first; yields what the rollout waits for."""
    rollout = _rollout_of(snapshot, pod)
    if rollout is None or not rollout.old:
        return
    name, spec = rollout.deployment["metadata"]["name"], rollout.deployment.get("spec") or {}
    old = f"{number_of(len(rollout.old), 'old pod')} of Deployment {name}"
    have = f"{old} {plural(len(rollout.old), 'has', 'have')} a node: {pods_text(rollout.old)}"
    if spec.get("paused"):
        yield f"{have}. Its rollout is paused (spec.paused)"
        return
    most = rollout.unavailable
    for count in range(1, min(len(rollout.old), _TRIED) + 1):
        needed = count + rollout.replicas - len(rollout.old) - rollout.available
        if needed <= most:
            continue  # the rollout does so by itself
        body = {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": needed}}}}
        objects = [patch(DEPLOYMENT, rollout.deployment, body)]
        for each in rollout.old[:count]:
            objects += [change._replace(follows=True) for change in ended_pod(snapshot, each)]
        where = "" if pod.namespace == "default" else f" -n {pod.namespace}"
        merged = json.dumps(body, separators=(",", ":"))
        command = f"kubectl patch deployment {name}{where} -p '{merged}'"
        text = f"let {number_of(count, 'old pod')} end before new ones are ready ({command})"
        if advisor.propose(repair(text, "EndOldPodsFirst", objects, RESIZE)):
            yield (
                f"{have}. The rollout ends old pods only once new ones are ready (maxUnavailable "
                f"{most}, maxSurge {rollout.bound('maxSurge')})"
            )
            return


def _rollout_of(snapshot: ClusterSnapshot, pod: PodRecord) -> _Rollout | None:
    """None unless a Deployment that is known made the pod, with the strategy RollingUpdate."""
    raw = snapshot.find(POD, pod.name, pod.namespace)
    owner = controller_of(raw or _UNKNOWN)
    own = snapshot.find(_REPLICA_SET, owner.get("name") or "", pod.namespace)
    above = controller_of(own or _UNKNOWN)
    deployment = snapshot.find(DEPLOYMENT, above.get("name") or "", pod.namespace)
    if own is None or deployment is None or above.get("kind") != "Deployment":
        return None
    uids = {
        each["metadata"].get("uid")
        for each in snapshot.all(_REPLICA_SET)
        if each is not own and controller_of(each).get("uid") == above.get("uid")
    }
    old = [
        each
        for each in snapshot.cluster.pods.values()
        if each.row >= 0
        and not each.cls.terminating
        and any(owner.controller and owner.uid in uids for owner in each.cls.owners)
    ]
    rollout = _Rollout(
        deployment, _in_order(old), int((own.get("status") or {}).get("availableReplicas") or 0)
    )
    return None if rollout.strategy.get("type") == "Recreate" else rollout


def _in_order(pods: list[PodRecord]) -> list[PodRecord]:
    """As the ReplicaSet controller ends them: those on nodes with the most of them first, then the
    newest."""
    on = Counter(pod.row for pod in pods)
    newest = sorted(pods, key=lambda pod: (pod.created or "", pod.name), reverse=True)
    return sorted(newest, key=lambda pod: -on[pod.row])
