"""Pods that stay as they are when the template of their workload changes, until somebody deletes them;
and those that a rolling update keeps until new ones are ready, which do not fit beside them.

A StatefulSet with OrderedReady waits until a pending pod is ready, so it never replaces it; with the
update strategy OnDelete a controller replaces no pod, and a ReplicaSet of its own never does.
"""

from collections.abc import Iterable

from holdfast.api.kinds import KINDS
from holdfast.api.plurals import number_of, plural
from holdfast.explanation.facts.other_pods import Fitting, for_each
from holdfast.explanation.facts.pod_owners import controller_of, workload_of
from holdfast.explanation.facts.workload_dry_runs import (
    WorkloadParts,
    all_unavailable,
    dry_run,
    least_unavailable,
    more_unavailable,
)
from holdfast.kube.object_client import Raw
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.snapshot.cluster_changes import (
    PATCH,
    ClusterChange,
    ObjectChange,
    create,
    delete,
)
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_OWNERS = {kind: KINDS["apps/v1", kind] for kind in ("StatefulSet", "DaemonSet", "ReplicaSet")}


def with_rollout(
    snapshot: ClusterSnapshot, parts: WorkloadParts, change: ClusterChange, evicts: bool = False
) -> tuple[ClusterChange, str, Fitting]:
    """The change with the least higher `maxUnavailable` with which the rolling update of a changed
    template, or one that is under way, comes to its end, if that is needed and enough; what that adds
    to its text, and how many pods then start; if it `evicts`, also by preempting or reclaiming."""
    fitting = dry_run(snapshot, parts, change, evicts)
    if fitting.is_all or (not parts.old and all_unavailable(parts, change) is change):
        return change, "", fitting
    least = least_unavailable(snapshot, parts, change, evicts)
    if least is None:
        return change, "", fitting
    needed, fitting = least
    more = ClusterChange((), (more_unavailable(parts, needed),))
    return change + more, f", and {bounds_text(parts, needed)}", fitting


def bounds_text(parts: WorkloadParts, needed: int) -> str:
    count = needed - (parts.replicas - parts.running)
    old = number_of(count, "old pod") if count > 0 else "old pods"
    return f"set maxUnavailable of its rolling update to {needed}, so that {old} may end first"


def with_deletions(
    snapshot: ClusterSnapshot, change: ClusterChange, others: Iterable[Raw]
) -> tuple[ClusterChange, str]:
    """The change with the deletion of the pods that would otherwise stay as they are, and what that
    adds to its text. `others` are pods of the same workload that need the same change."""
    edits = [each for each in change.objects if _follows(each)]
    kept: dict[str, tuple[Raw, Raw]] = {}
    for each in edits:
        raw = snapshot.find(POD, each.name, each.namespace)
        if raw is not None and keeps_pods(snapshot, raw):
            kept[each.name] = (raw, each.body)
    if not kept or snapshot.is_hypothetical:
        return change, ""
    body = next(iter(kept.values()))[1]
    for raw in others:
        kept.setdefault(raw["metadata"]["name"], (raw, for_each(body)))
    objects = [each for each in change.objects if not (_follows(each) and each.name in kept)]
    for raw, _ in kept.values():
        objects.append(delete(POD, raw["metadata"]["name"], raw["metadata"].get("namespace") or ""))
    objects += [create(POD, merge_patch(raw, edit), follows=True) for raw, edit in kept.values()]
    first = next(iter(kept.values()))[0]
    names, namespace = " ".join(kept), first["metadata"].get("namespace") or "default"
    where = "" if namespace == "default" else f" -n {namespace}"
    kind, whom = controller_of(first)["kind"], plural(len(kept), "it", "them")
    text = f", then delete {plural(len(kept), 'the pending pod', 'the pending pods')} (kubectl delete "
    text += f"pod {names}{where}): the {kind} does not replace {whom} by itself"
    return ClusterChange(change.actions, tuple(objects), change.until), text


def keeps_pods(snapshot: ClusterSnapshot, pod: Raw) -> bool:
    """Whether the controller of a pending pod leaves it alone when its template changes."""
    owner = controller_of(pod)
    info, workload = _OWNERS.get(owner.get("kind") or ""), workload_of(snapshot, pod)
    if info is None or workload is None or workload.info.kind == "Deployment":
        return False
    found = snapshot.find(info, owner["name"], pod["metadata"].get("namespace") or "")
    spec = (found or {}).get("spec") or {}
    if info.kind == "ReplicaSet":
        return True
    if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
        return True
    return info.kind == "StatefulSet" and spec.get("podManagementPolicy") != "Parallel"


def _follows(change: ObjectChange) -> bool:
    return change.info is POD and change.operation == PATCH and change.follows
