"""A resize of a running pod that its kubelet has not made: why, and what its node has."""

from collections import Counter

from holdfast.api.quantity import amount
from holdfast.api.resources import pod_requests
from holdfast.explanation.capacity import row_of
from holdfast.explanation.report import Report
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_PENDING, _IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_ERROR = "Error"
_REASONS = {
    "Infeasible": "can never be made on {}: it must be deleted and created again, or request less",
    "Deferred": "is deferred until {} has the capacity",
    _ERROR: "failed on {}, and is tried again",
}


def note_resize(snapshot: ClusterSnapshot, pod: PodRecord, raw: Raw, report: Report) -> None:
    """Says so if the pod's requests were changed and its node has not followed."""
    for each in (raw.get("status") or {}).get("conditions") or ():
        reason = str(each.get("reason") or "")
        is_pending = each.get("type") == _PENDING or (
            each.get("type") == _IN_PROGRESS and reason == _ERROR
        )
        if not is_pending or each.get("status") != "True":
            continue
        said = f" ({each['message'].rstrip('.')})" if each.get("message") else ""
        outcome = _REASONS.get(reason, "is pending on {}").format(report.node)
        report.summary += f" Its resize {outcome}{said}."
        report.details += _figures(snapshot, pod, raw, report.node)


def _figures(snapshot: ClusterSnapshot, pod: PodRecord, raw: Raw, node: str) -> list[str]:
    table, row = snapshot.cluster.nodes, row_of(snapshot, node)
    now, counted = _actual(raw), dict(pod.cls.usage)
    found = []
    for name, wanted in sorted(pod_requests(pod.cls.pod, use_status=False).items()):
        slot = table.slots.of(name)
        has, own = table.allocatable.item(slot, row), counted.get(slot, 0)
        beside = has - table.claimed.item(slot, row) + own
        if wanted == now.get(name, wanted) and wanted <= beside:
            continue
        instead = f" instead of {shown(name, now[name])}" if name in now else ""
        found.append(
            f"it requests {shown(name, wanted)} {name}{instead}; {node} has "
            f"{shown(name, has)}, of which {shown(name, max(0, beside))} are not used by others"
        )
    return found


def _actual(raw: Raw) -> dict[str, int]:
    """What the kubelet has given to the containers; empty if it does not say."""
    found: Counter[str] = Counter()
    for each in (raw.get("status") or {}).get("containerStatuses") or ():
        given = each.get("allocatedResources") or (each.get("resources") or {}).get("requests") or {}
        for name, quantity in given.items():
            found[name] += amount(name, quantity)
    return dict(found)
