"""Rollouts of Deployments that wait for capacity which their own old pods have.

A rolling update ends old pods only as new ones become ready, but for `maxUnavailable` of them. Where
the new pods do not fit beside the old ones, it never goes on.
"""

import json
from collections.abc import Iterator

from holdfast.api.plurals import number_of, plural
from holdfast.explanation.advice.advisor import END_OLD_PODS, Advisor
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.explanation.facts.workload_dry_runs import (
    DEPLOYMENT,
    REPLICA_SET,
    least_unavailable,
    more_unavailable,
    parts_of,
)
from holdfast.explanation.repairs.kept_pods import bounds_text
from holdfast.explanation.repairs.repair import RESIZE, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ClusterChange
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_UNKNOWN: Raw = {"metadata": {}}
_SHOWN = 3


def deployment_name(snapshot: ClusterSnapshot, raw: Raw) -> str:
    """The name of the Deployment that a pod or ReplicaSet is of; empty if it is of none."""
    owner, namespace = controller_of(raw), raw["metadata"].get("namespace") or ""
    if owner.get("kind") == "ReplicaSet":
        owner = controller_of(snapshot.find(REPLICA_SET, owner["name"], namespace) or _UNKNOWN)
    return str(owner["name"]) if owner.get("kind") == "Deployment" else ""


def consider_rollout(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> Iterator[str]:
    """Letting old pods of the pod's Deployment end first; yields what the rollout waits for."""
    parts = parts_of(snapshot, Subject.of(pod))
    old = parts.old if parts is not None and parts.info is DEPLOYMENT else []
    if parts is None or not old:
        return
    name = parts.workload["metadata"]["name"]
    has = f"{number_of(len(old), 'old pod')} of Deployment {name} {plural(len(old), 'has', 'have')}"
    names = few([f"{pod.namespace}/{raw['metadata']['name']}" for raw in old], _SHOWN)
    have = f"{has} a node: {names}"
    if parts.is_paused:
        yield f"{have}. Its rollout is paused (spec.paused)"
        return
    least = least_unavailable(snapshot, parts, ClusterChange())
    if least is None:
        return
    needed, surge, unavailable = least[0], *parts.bounds
    change = more_unavailable(parts, needed)
    text = bounds_text(parts, needed)
    if not snapshot.is_hypothetical:
        where = "" if pod.namespace == "default" else f" -n {pod.namespace}"
        merged = json.dumps(change.body, separators=(",", ":"))
        text += f" (kubectl patch deployment {name}{where} -p '{merged}')"
    if advisor.propose(repair(text, END_OLD_PODS[0], [change], RESIZE)):
        yield (
            f"{have}. The rollout ends old pods only once new ones are ready (maxUnavailable "
            f"{unavailable}, maxSurge {surge})"
        )
