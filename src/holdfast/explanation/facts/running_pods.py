"""A pod that has a node: containers that wait, and a resize that its kubelet has not made."""

from collections import Counter
from collections.abc import Iterator

from holdfast.api.plurals import number_of
from holdfast.api.quantity import amount
from holdfast.api.resources import pod_requests
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.report import Report
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_STARTING = ("ContainerCreating", "PodInitializing")
"""Reasons of containers whose turn has not come, or that are being made."""
_FIELDS = {"initContainerStatuses": "init container", "containerStatuses": "container"}


def note_waiting_containers(raw: Raw, report: Report) -> None:
    """Adds the reasons of waiting containers to the summary. Those that only wait for others to be
    started are named if nothing else is wrong."""
    waiting = list(_waiting(raw))
    stuck = [text for reason, text in waiting if reason not in _STARTING]
    if not stuck and report.phase == "Pending":
        stuck = [text for _, text in waiting]
    if stuck:
        report.summary += f" {'; '.join(stuck)}."


def _waiting(raw: Raw) -> Iterator[tuple[str, str]]:
    """The reason of each waiting container, and a sentence on it."""
    status = raw.get("status") or {}
    for field, kind in _FIELDS.items():
        for each in status.get(field) or ():
            state = (each.get("state") or {}).get("waiting")
            if state is None:
                continue
            reason = str(state.get("reason") or "")
            said = str(state.get("message") or "").strip().rstrip(".")
            text = f"Its {kind} {each.get('name')} waits"
            text += f": {reason}" if reason else ""
            text += f" ({said})" if said else ""
            yield reason, f"{text}{_last_exit(each)}"


def _last_exit(status: Raw) -> str:
    """How the container ended before, for one that is started again."""
    ended = (status.get("lastState") or {}).get("terminated")
    restarts = status.get("restartCount") or 0
    if not ended:
        return f", after {number_of(restarts, 'restart')}" if restarts else ""
    why = ended.get("reason")
    return (
        f", after {number_of(restarts, 'restart')}; it ended with exit code {ended.get('exitCode')}"
        + (f" ({why})" if why else "")
    )


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
