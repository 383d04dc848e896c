"""Rollouts of Deployments that wait for capacity which their own old pods have.

A rolling update ends old pods only as new ones become ready, but for `maxUnavailable` of them. Where
the new pods do not fit beside the old ones, it never goes on.
"""

import json
from collections.abc import Iterator

from holdfast.api.plurals import number_of, plural
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.expected_ends import ended_pod
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.explanation.facts.rolling_updates import DEPLOYMENT, REPLICA_SET, rolling_update_of
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.repairs.repair import RESIZE, repair
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_UNKNOWN: Raw = {"metadata": {}}
_TRIED = 8


def deployment_name(snapshot: ClusterSnapshot, raw: Raw) -> str:
    """The name of the Deployment that a pod or ReplicaSet is of; empty if it is of none."""
    owner, namespace = controller_of(raw), raw["metadata"].get("namespace") or ""
    if owner.get("kind") == "ReplicaSet":
        owner = controller_of(snapshot.find(REPLICA_SET, owner["name"], namespace) or _UNKNOWN)
    return str(owner["name"]) if owner.get("kind") == "Deployment" else ""


def consider_rollout(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> Iterator[str]:
    """Letting old pods of the pod's Deployment end first; yields what the rollout waits for."""
    rollout = rolling_update_of(snapshot, pod)
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
        needed = rollout.needed(count)
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
