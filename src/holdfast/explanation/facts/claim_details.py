"""Why a pod does not get the devices that its ResourceClaims request, device by device."""

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator

from holdfast.api.kinds import KINDS
from holdfast.api.names import RESOURCE_API
from holdfast.api.plurals import number_of, plural
from holdfast.api.quantity import format_amount, from_nano, parse
from holdfast.api.resource_slices import DeviceID
from holdfast.api.similar_names import did_you_mean
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.facts.device_taint_rules import rule_text, rules_behind
from holdfast.explanation.facts.device_values import values_text
from holdfast.explanation.facts.own_reservations import own_entries
from holdfast.explanation.report import few
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.scheduler.managers.claims import explain
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest, RequestPart
from holdfast.scheduler.managers.claims.class_claims import ClassClaims
from holdfast.scheduler.managers.claims.device_table import values_of
from holdfast.scheduler.managers.claims.explanation import DeviceReason, DevicesExplained
from holdfast.scheduler.managers.claims.held_devices import HolderClaim
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey
from holdfast.scheduler.managers.claims.search import (
    CAPACITY,
    CONSTRAINT,
    COUNTERS,
    IN_USE,
    NODE,
    SELECTOR,
    TAINT,
)
from holdfast.scheduler.state.cluster import Cluster
from holdfast.snapshot.cluster_snapshot import RESOURCE_CLAIM, ClusterSnapshot

RESOURCE_SLICE = KINDS[RESOURCE_API, "ResourceSlice"]
MISSING_KEY = re.compile(r"on device (?P<device>\S+): .*no such key: (?P<key>\w+)")
_TRIED_FIRST = "for pods that are tried before it"
_UNUSED = "no pod uses it"
_NODES = 3
_HOLDERS = 3
_DEVICES = 8
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
            users = _users(snapshot, need.key).strip(" ()")
            reserved = f", reserved for {users}" if users != _UNUSED else ""
            yield f"claim {need.key} is allocated: {devices}{reserved}"
    if claims.needs_devices:
        pools = {name: manager.catalogue.visible(row_of(snapshot, name)).pools for name in nodes}
        without = [name for name in nodes if not pools[name]]
        explained = [name for name in nodes if pools[name]][:_NODES]
        for name in explained:
            yield from _on_node(snapshot, pod, claims, name)
        yield from _taint_rules(snapshot, pod, explained)
        if without:
            yield f"no devices are published for {few(without, _NODES)}"


def _on_node(
    snapshot: ClusterSnapshot, pod: PodRecord, claims: ClassClaims, node: str
) -> Iterator[str]:
    row, manager = row_of(snapshot, node), snapshot.cluster.claims
    request, found = claims.on(row).request, devices_explained(snapshot, pod, row)
    if request is None or found is None:
        return
    if found.problem:
        yield from _attribute_hint(snapshot, found.problem)
        return
    for pool in found.pools:
        yield f"{node}: nothing is allocated from the pool {pool.pool}, which {pool.reason}"
    if not found.visible:
        if not found.pools:
            yield f"{node}: no devices are published for it"
        return
    by_request: dict[tuple[int, str], list[DeviceReason]] = {}
    for reason in found.devices:
        by_request.setdefault((reason.claim, reason.request), []).append(reason)
    named = manager.names_to_allocate(pod) if len(request.claims) > 1 else []
    devices = number_of(found.visible, "device")
    for (claim, name), reasons in by_request.items():
        more = {
            _TEXTS[SELECTOR]: _unmatched(request, row, snapshot, reasons),
            _TEXTS[CAPACITY]: _left_text(snapshot, row, reasons),
        }
        counted = _counted(snapshot, reasons, more)
        of = f" of claim {named[claim].name}" if claim < len(named) else ""
        yield f"{node}: of {devices} for request {name}{of}: {counted}"
    if not by_request:
        requested = _requested_text(request.parts)
        published = number_of(found.visible, "is", "are")
        yield f"{node}: {requested} requested, and {published} published for it"


def _requested_text(parts: Iterable[RequestPart]) -> str:
    """`4 devices are`; `8 or 6 devices are` with a list of alternatives."""
    always, alternatives = 0, dict[str, list[int]]()
    for part in parts:
        if part.parent:
            alternatives.setdefault(part.parent, []).append(part.count)
        else:
            always += part.count
    if len(alternatives) == 1:
        (counts,) = alternatives.values()
        if len(totals := dict.fromkeys(always + count for count in counts)) > 1:
            return f"{' or '.join(map(str, totals))} devices are"
    least = always + sum(map(min, alternatives.values()))
    text = number_of(least, "device is", "devices are")
    return f"at least {text}" if len(alternatives) > 1 else text


def _taint_rules(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """The rules that taint devices of these nodes."""
    texts: dict[str, None] = {}
    for row in (row_of(snapshot, name) for name in nodes):
        found = devices_explained(snapshot, pod, row)
        rules = rules_behind(snapshot, row, found.devices) if found is not None else []
        texts |= dict.fromkeys(map(rule_text, rules))
    yield from texts


def _attribute_hint(snapshot: ClusterSnapshot, problem: str) -> Iterator[str]:
    """Of a selector that reads an attribute or capacity which a device does not have: those it has."""
    if (missing := MISSING_KEY.search(problem)) is None:
        return
    device, key = missing["device"], missing["key"]
    known = device_fields(snapshot, device)
    near = did_you_mean(key, known)
    has = few(sorted(known)) or "no attributes"
    yield f"a selector reads {key} of device {device}, which has {has}{near}"


def device_fields(snapshot: ClusterSnapshot, device: str) -> list[str]:
    """The attributes and capacities of a device, `driver/pool/name`."""
    for raw in snapshot.all(RESOURCE_SLICE):
        spec = raw.get("spec") or {}
        prefix = f"{spec.get('driver')}/{(spec.get('pool') or {}).get('name')}/"
        for each in spec.get("devices") or ():
            if f"{prefix}{each.get('name')}" == device:
                names = [*(each.get("attributes") or {}), *(each.get("capacity") or {})]
                return [str(name).rpartition("/")[2] for name in names]
    return []


def devices_explained(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> DevicesExplained | None:
    """Why the devices of a row are not used for the pod's claims. Devices that its own reservations
    hold count as free. None if no devices are needed there."""
    manager = snapshot.cluster.claims
    request = manager.of_class(pod.cls).on(row).request
    if request is None:
        return None
    own = [key for entry in own_entries(snapshot, pod, row) for key in manager.held.of(entry.pod.uid)]
    return explain(manager.allocator, request, row, manager.use.without(own))


def device_reasons(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> tuple[tuple[str, int], ...]:
    """By reason, the number of devices of a row that the claims do not get."""
    explained = devices_explained(snapshot, pod, row)
    reasons = Counter(each.reason for each in explained.devices) if explained is not None else {}
    return tuple(sorted(reasons.items()))


def _unmatched(
    request: ClaimsRequest, row: int, snapshot: ClusterSnapshot, reasons: list[DeviceReason]
) -> str:
    """` (model is a100)`: what selectors read of the devices that they do not match."""
    refused = {each.device for each in reasons if each.reason == SELECTOR}
    about = next(iter(reasons))
    entries = snapshot.cluster.claims.catalogue.visible(row).entries
    devices = [values_of(e.id.driver, e.device) for e in entries if e.id in refused]
    parts = (p for p in request.parts if (p.claim, p.full_name) == (about.claim, about.request))
    texts = [text for part in parts if (text := values_text(part, devices))]
    return f" ({'; '.join(texts)})" if texts else ""


def capacity_left(
    snapshot: ClusterSnapshot, row: int, devices: Collection[DeviceID]
) -> dict[str, list[int]]:
    """By name, what is left of the capacity of devices of a row, in nano units."""
    manager = snapshot.cluster.claims
    found: dict[str, list[int]] = {}
    for entry in manager.catalogue.visible(row).entries:
        consumed = manager.use.consumed(entry.identity) if entry.id in devices else {}
        for name, capacity in entry.device.capacity.items() if entry.id in devices else ():
            found.setdefault(name, []).append(parse(capacity.value) - consumed.get(name, 0))
    return found


def _left_text(snapshot: ClusterSnapshot, row: int, reasons: list[DeviceReason]) -> str:
    """` (memory left: 40Gi, 10Gi)`"""
    refused = {each.device for each in reasons if each.reason == CAPACITY}
    texts = []
    for name, amounts in sorted(capacity_left(snapshot, row, refused).items()):
        shown = [format_amount(name, from_nano(name, each)) for each in sorted(amounts, reverse=True)]
        texts.append(f"{name} left: {few(shown, _HOLDERS)}")
    return f" ({'; '.join(texts)})" if texts else ""


def _counted(snapshot: ClusterSnapshot, reasons: list[DeviceReason], more: dict[str, str]) -> str:
    """The reasons with the number of devices that each applies to, the most frequent first; `more` is
    added to a reason. Devices for pods that are tried before it count together."""
    counts, before = Counter[str](), dict[str, None]()
    for reason in reasons:
        pods = [pod for each in reason.holders for pod in _decided_for(snapshot, each)]
        before |= dict.fromkeys(f"{pod.namespace}/{pod.name}" for pod in pods)
        counts[_TRIED_FIRST if pods else _text(snapshot, reason)] += 1
    more[_TRIED_FIRST] = f" ({few(sorted(before), _HOLDERS)})"
    return ", ".join(f"{count} {text}{more.get(text, '')}" for text, count in counts.most_common())


def _decided_for(snapshot: ClusterSnapshot, claim: Hashable) -> list[PodRecord]:
    manager = snapshot.cluster.claims
    is_held = _holder(snapshot, claim) is not None
    return manager.decided_for(claim) if isinstance(claim, ResourceClaimKey) and not is_held else []


def _text(snapshot: ClusterSnapshot, reason: DeviceReason) -> str:
    if reason.reason == IN_USE:
        held = {holder.name for each in reason.holders if (holder := _holder(snapshot, each))}
        if held:
            noun = plural(len(held), "reservation")
            return f"held by {noun} {few(sorted(held), _HOLDERS)}"
        holders = [f"{each}{_users(snapshot, each)}" for each in reason.holders[:_HOLDERS]]
        return f"in use by {' and '.join(holders)}" if holders else reason.detail or "in use"
    return _TEXTS[reason.reason].format(reason.detail)


def _holder(snapshot: ClusterSnapshot, claim: Hashable) -> HolderClaim | None:
    """The reservation that holds devices with a claim, if one does."""
    held = snapshot.cluster.claims.held
    return held.get(claim) if isinstance(claim, ResourceClaimKey) else None


def _users(snapshot: ClusterSnapshot, claim: Hashable) -> str:
    """` (pod train-0)`: the pods, or the PodGroup, that a claim is reserved for."""
    namespace, _, name = str(claim).partition("/")
    raw = snapshot.find(RESOURCE_CLAIM, name, namespace) or {}
    reserved = (raw.get("status") or {}).get("reservedFor") or ()
    if raw and not reserved:
        return f" ({_UNUSED})"
    groups = [str(each.get("name")) for each in reserved if each.get("resource") == "podgroups"]
    if groups:
        return f" (PodGroup {groups[0]})"
    pods = [str(each.get("name")) for each in reserved if each.get("resource") == "pods"]
    return f" (pod {pods[0]})" if len(pods) == 1 else f" (pods {few(pods, _HOLDERS)})"


def held_devices(cluster: Cluster, reservation: ReservationInfo) -> Iterator[str]:
    """The devices that a reservation on a node holds by claims, and those that it has not."""
    manager = cluster.claims
    for key in manager.held.of(reservation.uid):
        holder, rest = manager.held.get(key), manager.allocation(key)
        if holder is None:
            continue
        free = {each.device_id for each in rest.devices.results} if rest is not None else set()
        devices = [each.device_id for each in holder.held.devices.results]
        used = [str(each) for each in devices if each not in free]
        listed = f"claim {key} holds {few([str(each) for each in devices], _DEVICES)}"
        yield f"{listed}; in use: {few(used, _DEVICES) or 'none'}"
    if reservation.pod is not None and (problem := manager.missing(reservation.pod)):
        yield problem
