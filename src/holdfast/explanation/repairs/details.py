"""Facts about why nodes reject a pod: names of labels, ports, pods, claims and taints, with figures."""

from collections.abc import Callable, Iterable, Iterator

from holdfast.api.affinity import Taint
from holdfast.api.names import TAINT_UNSCHEDULABLE
from holdfast.api.plurals import plural
from holdfast.api.pod import ResourceRequirements
from holdfast.api.quantity import amount
from holdfast.api.resources import is_pod_level, is_sidecar
from holdfast.api.selectors import tolerated
from holdfast.api.similar_names import did_you_mean, similar_names
from holdfast.api.times import format_time
from holdfast.explanation.facts.capacity import (
    absent_on,
    largest,
    missing_on,
    requested,
    row_of,
    served_by_classes,
    shortages,
)
from holdfast.explanation.facts.claim_details import claim_details
from holdfast.explanation.facts.hardware import (
    attach_details,
    closest_by_devices,
    device_details,
    lacks_text,
)
from holdfast.explanation.facts.node_labels import label_details, labels_of_nodes, unmet_labels
from holdfast.explanation.facts.numa_alignment import numa_details
from holdfast.explanation.facts.own_reservations import own_entries
from holdfast.explanation.phrases import amounts_text, pods_text
from holdfast.explanation.repairs.claim_volumes import (
    largest_new_volume,
    nodes_gone,
    unknown_values,
    unsuitable_volumes,
    volume_terms,
)
from holdfast.explanation.repairs.gpu_names import other_gpu_names
from holdfast.explanation.repairs.host_ports import port_details
from holdfast.explanation.repairs.mistaken_units import unit_hint
from holdfast.explanation.repairs.node_repairs import (
    FEATURE_FIELDS,
    limit_problem,
)
from holdfast.explanation.repairs.pod_affinity import pod_affinity_details
from holdfast.explanation.repairs.repair import CLAIM, STORAGE_CLASS, VOLUME
from holdfast.explanation.repairs.taints import is_lifecycle, own_toleration, taint_text, untolerated
from holdfast.explanation.repairs.topology_spread import spread_details
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.framework.config.plugin_sets import CALENDAR_FILTER, NODE_RESOURCES_FIT
from holdfast.scheduler.managers.devices.requests import TYPE_OF
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_NODES = 3
_CORDON = Taint(key=TAINT_UNSCHEDULABLE, effect="NoSchedule")
_LINES = 3
_SAME_DOMAIN = 0.8
"""The ratio of equal characters from which two domains of resources are similar."""
_LOOKED_AT = 50
"""How many nodes of one reason are looked at for details."""


def details_of(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> list[str]:
    """Facts behind the rejections, the most frequent plugins first."""
    by_plugin: dict[str, list[str]] = {}
    for name, rejection in sorted(placing.rejections.items()):
        if rejection.texts:
            by_plugin.setdefault(rejection.plugin, []).append(name)
    found: list[str] = []
    for plugin, nodes in sorted(by_plugin.items(), key=lambda each: -len(each[1])):
        make = _BY_PLUGIN.get(plugin)
        if plugin == NODE_RESOURCES_FIT and "DeviceShare" in by_plugin:
            # Those have enough of everything, but not on single devices: they are closer.
            closest = closest_by_devices(snapshot, pod, by_plugin["DeviceShare"][:_LOOKED_AT])
            if closest:
                found.insert(0, closest)
                continue
        if make is not None:
            found += list(make(snapshot, pod, nodes))[:_LINES]
    return found


Details = Callable[[ClusterSnapshot, PodRecord, list[str]], Iterable[str]]


# Capacity


def _shortage(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    table = snapshot.cluster.nodes
    asked, served = requested(pod), served_by_classes(snapshot, pod)
    empty = [name for name in nodes if not table.allocatable[:, row_of(snapshot, name)].any()]
    if empty:
        has = plural(len(empty), "has", "have")
        yield f"{few(empty, _NODES)} {has} no status.allocatable: the kubelet has not reported it"
    if len(empty) == table.count:
        return
    impossible, absent = set[int](), False
    for slot, wanted in asked.items():
        most, name = largest(snapshot, slot), table.slots.name(slot)
        if slot == PODS or wanted <= most or (not most and slot in served):
            continue
        impossible.add(slot)
        if not most:
            absent = True
            hint = did_you_mean(name, resources_like(snapshot, name))
            if others := other_gpu_names(snapshot, name):
                hint = f"; nodes have {few(others)}"
            yield f"no node has the resource {name}{hint}"
        else:
            yield (
                f"no node is large enough: it requests {shown(name, wanted)} {name}"
                f"{_deciding(pod, name, wanted)}, the most a node has is {shown(name, most)}"
                f"{unit_hint(snapshot, pod, name)}"
            )
    if impossible:
        yield from device_details(snapshot, pod, nodes, only_health=absent)
    short = shortages(snapshot, pod)
    rows = sorted(
        (any(unmet_labels(snapshot, pod, row)), float(short[row]), name, row)
        for name in nodes
        for row in [row_of(snapshot, name)]
    )
    for _, _, name, row in rows[:1]:
        if impossible:
            missing = missing_on(snapshot, pod, row)
            if missing.keys() - impossible - {PODS}:
                yield f"closest: {name}, short of {lacks_text(snapshot, pod, row, missing)}"
            return
        if not table.allocatable.item(PODS, row):
            yield f"{name} takes no pods: it has 0 allocatable"
            return
        if absent_on(snapshot, pod, row):
            names = [table.slots.name(slot) for slot in asked if slot != PODS]
            yield f"none of these nodes has all the resources that it requests: {', '.join(names)}"
            return
        missing = missing_on(snapshot, pod, row)
        if missing:
            excess = snapshot.cluster.ledger.excess(row)  # waiting reservations claim what is not there
            lacks = {
                slot: lack if lack <= asked[slot] else lack - excess.get(slot, 0)
                for slot, lack in missing.items()
            }
            if text := lacks_text(snapshot, pod, row, {s: n for s, n in lacks.items() if n > 0}):
                yield f"closest: {name}, short of {text}"
            for slot in missing:
                of = table.slots.name(slot)
                if who := _deciding(pod, of, asked[slot]):
                    yield f"it requests {shown(of, asked[slot])} {of}{who}"
            yield from _devices_short(snapshot, pod, name, missing)
        yield from _nominated(snapshot, pod, name, row)
        over = {
            slot: table.claimed.item(slot, row) - table.allocatable.item(slot, row)
            for slot in missing
            if slot != PODS and table.claimed.item(slot, row) > table.allocatable.item(slot, row)
        }
        if over and not any(True for _ in snapshot.cluster.ledger.reservations.on(row)):
            yield f"{name} is over-committed by {amounts_text(snapshot, over)}"


def _nominated(snapshot: ClusterSnapshot, pod: PodRecord, node: str, row: int) -> Iterator[str]:
    """The pods that are nominated to a node and that the pod has to leave capacity to."""
    asked = requested(pod)
    for other in snapshot.cluster.nominated_pods_for(pod, row):
        kept = {slot: n for slot, n in requested(other).items() if slot in asked and slot != PODS}
        if kept:
            yield (
                f"{node}: {amounts_text(snapshot, kept)} are kept for {other.namespace}/{other.name} "
                f"(priority {other.cls.priority}), which is nominated there"
            )


def resources_like(snapshot: ClusterSnapshot, name: str) -> set[str]:
    """The resources of nodes that a name may be a misspelling of: both its domain and the rest must be
    alike. A name of a kind of device resembles no other: another kind would not do."""
    if name in TYPE_OF:
        return set()
    table = snapshot.cluster.nodes
    rows = (info for row, info in table.info.items() if table.alive[row])
    domain, _, own = name.rpartition("/")
    return {
        known
        for known in {known for info in rows for known in info.allocatable}
        for other, _, rest in [known.rpartition("/")]
        if (rest == own or similar_names(own, [rest]))
        and (other.startswith(domain) or similar_names(domain, [other], _SAME_DOMAIN))
    }


def _deciding(pod: PodRecord, name: str, asked: int) -> str:
    """Names what decides how much the pod requests, if that is not a container."""
    spec = pod.cls.pod.spec
    if spec.resources is not None and is_pod_level(name) and _given(spec.resources, name):
        return " (spec.resources)"
    beside = amount(name, spec.overhead[name]) if name in spec.overhead else 0
    parts = [*spec.containers, *filter(is_sidecar, spec.init_containers)]
    running = sum(_given(each.resources, name) for each in parts)
    sidecars = 0
    for each in spec.init_containers:
        own = _given(each.resources, name)
        if is_sidecar(each):
            sidecars += own
        elif own + sidecars + beside == asked and own + sidecars > running:
            return f" (its init container {each.name} {'beside its sidecars' if sidecars else 'does'})"
    largest = max(parts, key=lambda each: _given(each.resources, name))
    if is_sidecar(largest):
        own = _given(largest.resources, name)
        return f" (its sidecar {largest.name} requests {shown(name, own)})"
    if beside:
        runtime = f" of RuntimeClass {spec.runtime_class_name}" if spec.runtime_class_name else ""
        return f" ({shown(name, beside)} of it is the overhead{runtime})"
    return ""


def _given(resources: ResourceRequirements, name: str) -> int:
    quantity = resources.requests.get(name, resources.limits.get(name))
    return amount(name, quantity) if quantity is not None else 0


def _devices_short(
    snapshot: ClusterSnapshot, pod: PodRecord, node: str, missing: Amounts
) -> Iterator[str]:
    """A sum over devices does not say what is free on one."""
    search = snapshot.cluster.managers.devices.valid_search(pod.cls)
    if search is not None and search.slots & missing.keys():
        yield from device_details(snapshot, pod, [node])


def _limits(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    cluster = snapshot.cluster
    for name in nodes[:_LOOKED_AT]:
        row = row_of(snapshot, name)
        if problem := limit_problem(snapshot, row):
            yield f"{name} has an invalid annotation limit-to-allocatable: {problem}"
            continue
        for resource, (own, there, allowed) in limits_on(snapshot, pod, row).items():
            there_is = cluster.nodes.info[row].allocatable.get(resource, 0)
            percent = round(100 * allowed / max(1, there_is))
            held = cluster.nodes.held.item(cluster.classes.counted[resource].slot, row)
            of_these = f", {shown(resource, held)} of it held by reservations" if held else ""
            yield (
                f"{name}: limits add up to {shown(resource, there)} of {shown(resource, allowed)} "
                f"{resource} allowed ({percent}% of allocatable{of_these}), and its limit is "
                f"{shown(resource, own)}{unit_hint(snapshot, pod, resource)}"
            )


def limits_on(
    snapshot: ClusterSnapshot, pod: PodRecord, row: int, count: int = 1
) -> dict[str, tuple[int, int, int]]:
    """Of resources whose limits would exceed what a node allows with so many such pods: the pod's
    limit, the sum there, and the maximum. What a reservation of its own holds is not counted."""
    cluster = snapshot.cluster
    found = {}
    for resource, counted in cluster.classes.counted.items():
        own = pod.cls.limits.of(resource)
        allowed = min((most(resource, row) for most in cluster.limits.ceilings), default=0)
        own_left = (entry.left(counted.slot) for entry in own_entries(snapshot, pod, row))
        there = cluster.nodes.claimed.item(counted.slot, row) - max(own_left, default=0)
        if own and there + count * own > allowed:
            found[resource] = (own, there, allowed)
    return found


def _planned(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """Why the pod may not use capacity until a reservation that starts later needs it."""
    if pod.reservation is not None:
        return
    jobs = snapshot.cluster.jobs
    estimate = jobs.estimates.of(pod)
    if estimate is None:
        yield (
            "it has no run-time estimate, so it counts as never ending: the capacity that reservations "
            "need later is closed to it"
        )
        return
    if not snapshot.scheduler.backfills:
        yield "the configuration has no backfill action: its run-time estimate is not used"
        return
    if not jobs.estimates.is_trusted(pod):
        yield "a pod of its job exceeded its run-time estimate: the job is not backfilled again"
        return
    end = snapshot.now + estimate
    if any(not jobs.planner.fits_until(row_of(snapshot, name), pod.cls, end) for name in nodes):
        yield (
            f"by its run-time estimate it would end at {format_time(end)}, after the capacity is needed"
        )


# Labels, taints, cordons


def _taints(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    taints: dict[str, Taint] = {}
    for name in nodes:
        for taint in untolerated(snapshot, pod, row_of(snapshot, name)):
            text = taint_text(taint)
            taints[text] = taint
            found.setdefault(text, []).append(name)
    for text in sorted(found):
        if is_lifecycle(taints[text]):
            yield f"not usable now ({text}): {few(found[text], _NODES)}"
    others = {text: taint for text, taint in taints.items() if not is_lifecycle(taint)}
    near = {text: own_toleration(each, others.values(), pod) for text, each in others.items()}
    for text in sorted(others, key=lambda each: (not near[each], each)):
        yield f"taint {text} is not tolerated: {few(found[text], _NODES)}{near[text]}"


def _cordoned(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    yield f"cordoned: {few(nodes, _NODES)}"


def _features(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """The features that kubelets must declare for the pod."""
    for feature in sorted(pod.cls.features):
        infos = {name: snapshot.cluster.nodes.info[row_of(snapshot, name)] for name in nodes}
        lacking = [name for name, info in infos.items() if feature not in info.features]
        if lacking:
            yield (
                f"{FEATURE_FIELDS[feature]} needs the kubelet feature {feature}, which is not in "
                f"status.declaredFeatures of {few(lacking, _NODES)}"
            )


# Volumes


def claims_of(snapshot: ClusterSnapshot, pod: PodRecord) -> list[str]:
    """The names of the claims that the pod's volumes use."""
    wanted = snapshot.cluster.volumes.wanted(pod.cls)
    return [claim.key.name for claim in wanted.claims]


def _volumes(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """Which volumes tie the pod to some nodes."""
    for name in claims_of(snapshot, pod):
        claim = snapshot.find(CLAIM, name, pod.namespace)
        spec = (claim or {}).get("spec") or {}
        volume = snapshot.find(VOLUME, spec.get("volumeName") or "")
        if volume is None:
            kind = spec.get("storageClassName")
            storage_class = snapshot.find(STORAGE_CLASS, kind or "") or {}
            if allowed := storage_class.get("allowedTopologies"):
                there = labels_of_nodes(snapshot)
                places = [
                    f"{each.get('key')} in ({', '.join(each.get('values') or ())})"
                    f"{unknown_values(there, each)}"
                    for term in allowed
                    for each in term.get("matchLabelExpressions") or ()
                ]
                yield (
                    f"claim {name} is not bound: storage class {kind} makes volumes only where "
                    f"{' or '.join(places)}"
                )
                continue
            if unsuitable := unsuitable_volumes(snapshot, name, pod.namespace):
                volumes = few(unsuitable, _NODES)
                yield f"claim {name} is not bound: of the volumes of storage class {kind}, {volumes}"
                continue
            if (made := largest_new_volume(snapshot, kind or "")) is not None:
                storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "")
                yield (
                    f"claim {name} is not bound: it requests {storage}, and the driver of storage "
                    f"class {kind} reports capacity for volumes of {made[1]} at most"
                )
                continue
            storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "")
            yield (
                f"claim {name} is not bound: no available volume of storage class {kind or '(none)'} "
                f"with {storage or 'enough space'}"
            )
            continue
        labels = (volume["metadata"].get("labels") or {}).items()
        zones = [f"{key}={value}" for key, value in labels if "zone" in key or "region" in key]
        zones += volume_terms(volume)
        if zones:
            to = volume["metadata"]["name"]
            gone = nodes_gone(snapshot, volume)
            lost = f"; {few(gone, _NODES)} {plural(len(gone), 'does', 'do')} not exist" if gone else ""
            yield f"claim {name} is bound to {to}, which needs {' and '.join(zones)}{lost}"


def _volume_use(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    for name, users in users_of_claims(snapshot, pod).items():
        yield f"claim {name} may be used by one pod only (ReadWriteOncePod): {pods_text(users)} uses it"


def users_of_claims(snapshot: ClusterSnapshot, pod: PodRecord) -> dict[str, list[PodRecord]]:
    """The pods on nodes that use claims of the pod which only one pod may use."""
    found: dict[str, list[PodRecord]] = {}
    for name in claims_of(snapshot, pod):
        claim = snapshot.find(CLAIM, name, pod.namespace)
        if "ReadWriteOncePod" not in (((claim or {}).get("spec") or {}).get("accessModes") or ()):
            continue
        users = [
            other
            for other in snapshot.cluster.pods.values()
            if other.row >= 0
            and other.namespace == pod.namespace
            and name in claims_of(snapshot, other)
        ]
        if users:
            found[name] = users
    return found


# Reservations


def _reservations(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """Why reservations that the pod requires, or others for its owners, keep it off nodes."""
    yield from _same_owners(snapshot, pod, nodes)
    if pod.reservation is not None or tolerated(_CORDON, pod.cls.tolerations):
        return
    matching = snapshot.cluster.reservations.matching(pod.cls)
    rows = {name: row_of(snapshot, name) for name in nodes}
    on = snapshot.cluster.ledger.reservations.on
    cordoned = [
        name
        for name, row in rows.items()
        if snapshot.cluster.nodes.info[row].unschedulable
        and any(entry.reservation.owner_spec_id in matching for entry in on(row))
    ]
    if cordoned:
        yield f"its reservation cannot be used, since the node is cordoned: {few(cordoned, _NODES)}"


def _same_owners(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """The reusable reservations for the same owners that keep another one off their nodes."""
    own = pod.reservation
    if own is None:
        return
    for name in nodes[:_NODES]:
        for entry in snapshot.cluster.ledger.reservations.on(row_of(snapshot, name)):
            if entry.reservation.owner_spec_id == own.owner_spec_id:
                yield (
                    f"reservation {entry.reservation.name} on {name} has the same owners, and both are "
                    "reusable (allocateOnce: false without an allocatePolicy)"
                )


def terminating_on(snapshot: ClusterSnapshot, node: str) -> list[PodRecord]:
    row = snapshot.cluster.nodes.row(node)
    if row is None:
        return []
    pods = snapshot.cluster.ledger.pods.get(row, {}).values()
    return sorted((each for each in pods if each.cls.terminating), key=lambda each: each.name)


_BY_PLUGIN: dict[str, Details] = {
    NODE_RESOURCES_FIT: _shortage,
    CALENDAR_FILTER: _planned,
    "LimitAware": _limits,
    "NodeAffinity": label_details,
    "TaintToleration": _taints,
    "NodeUnschedulable": _cordoned,
    "NodeDeclaredFeatures": _features,
    "NodePorts": port_details,
    "InterPodAffinity": pod_affinity_details,
    "PodTopologySpread": spread_details,
    "VolumeBinding": _volumes,
    "VolumeZone": _volumes,
    "VolumeRestrictions": _volume_use,
    "NodeVolumeLimits": attach_details,
    "DeviceShare": device_details,
    "DynamicResources": claim_details,
    "NodeNUMAResource": numa_details,
    "Reservation": _reservations,
}
