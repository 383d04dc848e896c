"""The reservations that are meant for a pod, and what stands against using each."""

from holdfast.api.names import RESERVATION_IGNORED
from holdfast.cli.asking.printing import shown
from holdfast.cli.explaining.report import Promised
from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster
from holdfast.core.promises import Promise
from holdfast.core.promises.owners import OwnerSpec
from holdfast.framework.column import Column
from holdfast.framework.owned import NONE_WILL_DO, OwnedColumn


def promised_to(cluster: Cluster, column: Column) -> list[Promised]:
    """All whose owners the class matches, ended ones too."""
    cls, promises = column.cls, cluster.promises
    if cls.labels.get(RESERVATION_IGNORED) == "true":
        return []
    matching = promises.matching(cls)
    found = []
    for promise in sorted(promises.known.values(), key=lambda each: each.name):
        if promise.spec is not None and promise.spec.id in matching:
            found.append(_judged(cluster, column, promise))
        elif promise.spec is None and _was_meant(promise, cls):
            ended = promise.message or _said(promise) or promise.error
            why = f"has ended: {ended}" if ended else "has ended"
            found.append(Promised(promise.name, _phase(promise), "", False, why))
    return found


def _was_meant(promise: Promise, cls: PodClass) -> bool:
    """Of those that have ended only the objects are left."""
    return OwnerSpec(-1, b"", promise.object.spec.owners).matches(cls)


def _judged(cluster: Cluster, column: Column, promise: Promise) -> Promised:
    pod = promise.pod
    row = pod.row if pod is not None else -1
    node = cluster.nodes.name(row) if row >= 0 else ""
    why = _against(cluster, column, promise, row)
    return Promised(
        promise.name, _phase(promise), node, not why, why or "can be used", _left(cluster, promise)
    )


def _against(cluster: Cluster, column: Column, promise: Promise, row: int) -> str:
    """Why the pod cannot use it; empty if it can."""
    promises = cluster.promises
    if row < 0:
        told = promise.message or _said(promise)
        return f"has no node yet: {told}" if told else "has no node yet"
    if not cluster.nodes.alive[row]:
        return "its node is gone"
    if promise.waiting:
        lacking = ", ".join(promises.lacking(promise))
        return f"waits for room on its node: {lacking}" if lacking else "waits for room on its node"
    if not promises.is_usable(promise):
        return (
            f"is used by {', '.join(str(pod.ref) for pod in promises.drawing(promise))}, and only once"
        )
    refusal = promises.wish(column.cls).refusal(promise, promises.node_labels(row))
    if refusal:
        return refusal
    hold = promises.hold(promise)
    if hold is None or not isinstance(column, OwnedColumn):
        return ""
    against = column.against(hold)
    if against == [NONE_WILL_DO]:
        return "has nothing left of what the pod asks for"
    return ", ".join(against)


def _left(cluster: Cluster, promise: Promise) -> str:
    hold = cluster.promises.hold(promise)
    if hold is None:
        return ""
    left = cluster.promises.by_name((slot, hold.left(slot)) for slot in hold.amounts)
    parts = ((name, amount) for name, amount in sorted(left.items()) if name != "pods")
    return ",".join(f"{name}={shown(name, amount)}" for name, amount in parts)


def _phase(promise: Promise) -> str:
    return promise.object.status.phase or "Pending"


def _said(promise: Promise) -> str:
    said = [each.message for each in promise.object.status.conditions if each.status == "False"]
    return said[-1] if said else ""
