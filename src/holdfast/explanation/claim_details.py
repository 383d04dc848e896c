"""Why a pod does not get the devices that its ResourceClaims request, device by device."""

from collections import Counter
from collections.abc import Iterator

from holdfast.explanation.capacity import row_of
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims import explain
from holdfast.scheduler.managers.claims.class_claims import ClassClaims
from holdfast.scheduler.managers.claims.explanation import DeviceReason
from holdfast.scheduler.managers.claims.search import (
    CAPACITY,
    CONSTRAINT,
    COUNTERS,
    IN_USE,
    NODE,
    SELECTOR,
    TAINT,
)
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_NODES = 3
_HOLDERS = 3
_TEXTS = {
    SELECTOR: "not matched by the selectors",
    NODE: "not usable from this node",
    CAPACITY: "without enough capacity left",
    COUNTERS: "without enough left of the counter {}",
    TAINT: "tainted {}",
    CONSTRAINT: "excluded by the constraint on {}",
}


def claim_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """Where allocated claims can be used, and why the devices of nodes are not used for the others."""
    manager = snapshot.cluster.claims
    claims = manager.of_class(pod.cls)
    if claims.problem:
        yield claims.problem
        return
    for need in claims.claims:
        if need.key is not None and need.allocation is not None:
            devices = ", ".join(str(each.device_id) for each in need.allocation.devices.results)
            yield f"claim {need.key} is allocated: {devices}"
    for name in nodes[:_NODES] if claims.needs_devices else ():
        yield from _on_node(snapshot, claims, name)


def _on_node(snapshot: ClusterSnapshot, claims: ClassClaims, node: str) -> Iterator[str]:
    manager, row = snapshot.cluster.claims, row_of(snapshot, node)
    request = claims.on(row).request
    if request is None:
        return
    found = explain(manager.allocator, request, row, manager.use)
    for pool in found.pools:
        yield f"{node}: nothing is allocated from the pool {pool.pool}, which {pool.reason}"
    if not found.visible:
        yield f"{node}: no devices are published for it"
        return
    by_request: dict[tuple[int, str], list[DeviceReason]] = {}
    for reason in found.devices:
        by_request.setdefault((reason.claim, reason.request), []).append(reason)
    for (_, name), reasons in by_request.items():
        yield f"{node}: of {found.visible} devices for request {name}: {_counted(reasons)}"


def _counted(reasons: list[DeviceReason]) -> str:
    """The reasons with the number of devices that each applies to, the most frequent first."""
    counts = Counter(_text(reason) for reason in reasons)
    return ", ".join(f"{count} {text}" for text, count in counts.most_common())


def _text(reason: DeviceReason) -> str:
    if reason.reason == IN_USE:
        holders = [str(each) for each in reason.holders[:_HOLDERS]]
        return f"in use by {' and '.join(holders)}" if holders else "in use"
    return _TEXTS[reason.reason].format(reason.detail)
