"""Containers of a pod on a node that do not run: what the kubelet says of them."""

from collections.abc import Iterator

from holdfast.api.plurals import number_of
from holdfast.explanation.report import Report
from holdfast.kube.object_client import Raw

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
