"""Explains a node: whether it takes pods, what is on it, what is left, and which pending pods fit."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from holdfast.api.names import TAINT_UNSCHEDULABLE
from holdfast.api.node_taints import is_lifecycle_taint
from holdfast.api.plurals import plural
from holdfast.api.times import format_time
from holdfast.explanation.facts.capacity import requested
from holdfast.explanation.facts.expected_ends import expected_end, overrun_text
from holdfast.explanation.facts.hardware import devices_on
from holdfast.explanation.facts.holders import held_for, kind_of_holder
from holdfast.explanation.facts.rehearsed_rounds import placed
from holdfast.explanation.facts.requested_reservations import (
    awaiting_reservations,
    unknown_capacity,
)
from holdfast.explanation.phrases import amounts_text
from holdfast.explanation.repairs.node_repairs import limit_problem, uncordoned
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.explanation.repairs.taints import KEEPING_OUT, is_lifecycle, taint_text
from holdfast.explanation.report import (
    Advice,
    NodeCapacity,
    PodOnNode,
    PodsOfWorkload,
    Report,
    ReservationOnNode,
    few,
)
from holdfast.explanation.subjects.plain_reasons import plain_on
from holdfast.explanation.verdicts import (
    GangGoal,
    Subject,
    attempt,
    planned_of,
    profile_for,
    rejection_on,
    starts_on,
)
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.limit_sums import UNLIMITED
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.framework.scheduling_cycle import Statement
from holdfast.snapshot.cluster_changes import applied, patch
from holdfast.snapshot.cluster_snapshot import (
    NODE,
    ClusterSnapshot,
    claimed_devices,
    limited_resources,
    node_amounts,
    reserved_by_name,
    shown,
    unknown_bounds,
)

_SUMMED_UP = ("cpu", "memory")
_REASONS = 3
_CLASSES = 1000
"""How many classes of pending pods are tried on the node."""
_PRESSURE = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
FITS = "Fits"
KEPT_OUT = "Kept out"


def explain_node(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    name = raw["metadata"]["name"]
    report = Report(f"Node {name}", _status(raw), "", node=name)
    row = snapshot.cluster.nodes.row(name)
    if row is None or not snapshot.cluster.nodes.alive[row]:
        report.summary = "It is invalid for the scheduler."
        return report
    report.node_capacity = list(_capacity(snapshot, name))
    report.placed = list(_pods(snapshot, row))
    report.held = [*_reservations(snapshot, row), *_plans(snapshot, row)]
    groups = _pending(snapshot, row)
    report.pods = _as_groups(groups)
    waiting = _waiting(snapshot, row, groups)
    report.summary = " ".join((_whether_open(snapshot, raw, row), _free(report), waiting))
    report.details = [
        *_conditions(raw),
        *_keeping_out(snapshot, raw, row),
        *_nominated(snapshot, row),
        *_limits(snapshot, report, row),
        *_over_committed(snapshot, row),
        *devices_on(snapshot, row),
        *unknown_capacity(snapshot, awaiting_reservations(snapshot)),
    ]
    report.advice = list(_advice(snapshot, raw, row, groups))
    return report


# Whether it takes pods


def _ready(raw: Raw) -> Raw:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), {})


def _status(raw: Raw) -> str:
    """As in `kubectl get nodes`."""
    ready = _ready(raw).get("status")
    text = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if _is_cordoned(raw) else text


def _is_cordoned(raw: Raw) -> bool:
    return bool((raw.get("spec") or {}).get("unschedulable"))


def _whether_open(snapshot: ClusterSnapshot, raw: Raw, row: int) -> str:
    taints = [_taint_of(each) for each in _taints(raw)]
    lifecycle = [_taint_of(each) for each in _taints(raw) if is_lifecycle_taint(each["key"])]
    if _is_cordoned(raw):
        return "It takes no new pods: it is cordoned."
    if _ready(raw).get("status") == "Unknown":
        since = _ready(raw).get("lastHeartbeatTime")
        return f"Its kubelet has not reported{f' since {since}' if since else ''}."
    if lifecycle:
        return f"It takes only pods that tolerate {' and '.join(lifecycle)}: it is not usable now."
    if taints:
        return f"It takes only pods that tolerate {' and '.join(taints)}."
    if limit_problem(snapshot, row):
        return "It takes only pods of DaemonSets: its annotation limit-to-allocatable is invalid."
    cluster = snapshot.cluster
    holds = cluster.reservations.starvation_holds.on(row)
    if holds and cluster.settings.holds_nodes:
        jobs = list(dict.fromkeys(held_for(snapshot, each) for each in holds))
        return (
            f"It is held for {few(jobs, _REASONS)} (starvation hold): until "
            f"{plural(len(jobs), 'it has', 'they have')} started, it takes no other pods but those "
            "that request nothing."
        )
    return "It takes pods."


def _taints(raw: Raw) -> list[Raw]:
    """Those that keep pods out; that of a cordon says nothing more."""
    return [
        each
        for each in (raw.get("spec") or {}).get("taints") or ()
        if each.get("effect") in KEEPING_OUT and each.get("key") != TAINT_UNSCHEDULABLE
    ]


def _taint_of(taint: Raw) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _conditions(raw: Raw) -> Iterator[str]:
    """Conditions that are not as they should be."""
    for each in (raw.get("status") or {}).get("conditions") or ():
        kind, status = str(each.get("type")), each.get("status")
        is_wrong = (kind == "Ready" and status != "True") or (kind in _PRESSURE and status == "True")
        if is_wrong:
            since = f" since {each['lastTransitionTime']}" if each.get("lastTransitionTime") else ""
            message = f": {each['message']}" if each.get("message") else ""
            yield f"condition {kind} is {status}{since}{message}"


def _keeping_out(snapshot: ClusterSnapshot, raw: Raw, row: int) -> Iterator[str]:
    if _is_cordoned(raw):
        yield (
            f"cordoned: only pods that tolerate {TAINT_UNSCHEDULABLE} start, such as those of "
            "DaemonSets"
        )
    for taint in _taints(raw):
        since = f" (added {taint['timeAdded']})" if taint.get("timeAdded") else ""
        yield f"taint {_taint_of(taint)}{since}"
    if not snapshot.cluster.nodes.allocatable.item(PODS, row):
        yield "it takes no pods: it has 0 allocatable pods"


# What is on it


def _capacity(snapshot: ClusterSnapshot, name: str) -> Iterator[NodeCapacity]:
    cluster = snapshot.cluster
    amounts = node_amounts(cluster, name) | claimed_devices(cluster).get(name, {})
    limited = limited_resources(cluster, name)
    ratios = cluster.limits.ratios(limited).get(name, {}) if limited else {}
    first = [each for each in ("cpu", "memory", "pods") if each in amounts]
    for resource in (*first, *sorted(amounts.keys() - set(first))):
        of, ratio = amounts[resource], ratios.get(resource)
        figures = (of.allocatable, of.requested, of.held, of.free)
        limits = f"{100 * ratio:.0f}%" if ratio is not None and resource in limited else ""
        allocatable, asked, held, free = (shown(resource, each) for each in figures)
        yield NodeCapacity(resource, allocatable, asked, held, free, limits)


def _pods(snapshot: ClusterSnapshot, row: int) -> Iterator[PodOnNode]:
    cluster = snapshot.cluster
    pods = cluster.ledger.pods.get(row, {}).values()
    for pod in sorted(pods, key=lambda each: (each.namespace, each.name)):
        if pod.reservation is not None:
            continue
        reservation = cluster.reservations.known.get(pod.reservation_uid)
        end = expected_end(snapshot, pod)
        yield PodOnNode(
            f"{pod.namespace}/{pod.name}",
            "Terminating" if pod.cls.terminating else "Bound",
            pod.cls.priority,
            _named(snapshot, dict(pod.cls.requests)),
            reservation.name if reservation is not None else "",
            format_time(end) if end is not None else "",
            end is None and bool(overrun_text(snapshot, pod)),
        )


def _reservations(snapshot: ClusterSnapshot, row: int) -> Iterator[ReservationOnNode]:
    cluster = snapshot.cluster
    entries = cluster.ledger.reservations.on(row)
    for entry in sorted(entries, key=lambda each: each.reservation.name):
        reservation = entry.reservation
        start = cluster.jobs.planner.expected_start(reservation) if reservation.waiting else None
        yield ReservationOnNode(
            kind_of_holder(snapshot, reservation),
            reservation.name,
            "Waiting" if reservation.waiting else "Available",
            held_for(snapshot, reservation),
            _named(snapshot, entry.amounts),
            _named(snapshot, entry.amounts, {slot: entry.left(slot) for slot in entry.amounts}),
            format_time(start) if start is not None else "",
            format_time(reservation.expires) if reservation.expires is not None else "",
        )


def _plans(snapshot: ClusterSnapshot, row: int) -> Iterator[ReservationOnNode]:
    """Reservations that start here later."""
    plans = snapshot.cluster.reservations.calendar.on(row)
    for planned in sorted(plans, key=lambda each: (each.start, each.reservation.name)):
        yield ReservationOnNode(
            "Reservation",
            planned.reservation.name,
            "Planned",
            held_for(snapshot, planned.reservation),
            _named(snapshot, planned.amounts),
            {},
            format_time(planned.start),
            format_time(planned.end) if planned.end != float("inf") else "",
        )


def _named(
    snapshot: ClusterSnapshot, reserved: Amounts, amounts: Amounts | None = None
) -> dict[str, str]:
    named = reserved_by_name(snapshot.cluster, reserved, amounts)
    return {name: shown(name, amount) for name, amount in named.items()}


def _free(report: Report) -> str:
    texts = [
        f"{each.free} of {each.allocatable} {each.resource}"
        for each in report.node_capacity
        if each.resource in _SUMMED_UP or "/" in each.resource
    ]
    held = [
        f"{each.held} {each.resource}"
        for each in report.node_capacity
        if each.held != "0" and each.resource != "pods"
    ]
    kept = f" {', '.join(held)} are held by reservations." if held else ""
    return f"{', '.join(texts)} are free.{kept}" if texts else "It has no capacity."


def _nominated(snapshot: ClusterSnapshot, row: int) -> Iterator[str]:
    for pod in snapshot.cluster.nominated_pods(row):
        amounts = {slot: n for slot, n in requested(pod).items() if slot != PODS}
        kept = f": {amounts_text(snapshot, amounts)} are kept for it" if amounts else ""
        yield (f"pod {pod.namespace}/{pod.name} (priority {pod.cls.priority}) is nominated to it{kept}")


def _limits(snapshot: ClusterSnapshot, report: Report, row: int) -> Iterator[str]:
    """What LimitAware allows, where it counts."""
    if problem := limit_problem(snapshot, row):
        yield f"its annotation limit-to-allocatable is invalid: {problem}"
        return
    cluster = snapshot.cluster
    for resource, counted in sorted(cluster.classes.counted.items()):
        allowed = min((most(resource, row) for most in cluster.limits.ceilings), default=None)
        if allowed is None or allowed >= UNLIMITED:
            continue
        there = cluster.nodes.claimed.item(counted.slot, row)
        yield (
            f"limits add up to {shown(resource, there)} of {shown(resource, allowed)} {resource} "
            "that LimitAware allows"
        )
    if any(each.limits for each in report.node_capacity) and (note := unknown_bounds(snapshot)):
        yield note


def _over_committed(snapshot: ClusterSnapshot, row: int) -> Iterator[str]:
    table = snapshot.cluster.nodes
    over = {
        slot: -left
        for slot, name in table.slots.resources()
        if name and (left := table.allocatable.item(slot, row) - table.claimed.item(slot, row)) < 0
    }
    waits = any(each.reservation.waiting for each in snapshot.cluster.ledger.reservations.on(row))
    if over and not waits:
        yield f"it is over-committed by {amounts_text(snapshot, over)}"


# Pending pods

_Group = tuple[str, tuple[PodRecord, ...]]
"""Why pods are kept out, empty if they fit, and the pods."""


def _pending(snapshot: ClusterSnapshot, row: int) -> list[_Group]:
    """The pending pods and reservations by what keeps them out: those that fit first, then the most."""
    cluster = snapshot.cluster
    classes: dict[tuple[int, str | None, str], list[PodRecord]] = {}
    reserving = [
        each.pod
        for each in cluster.reservations.known.values()
        if each.pod is not None and not each.finished and not each.error
    ]
    for pod in (*cluster.pods.values(), *reserving):
        is_waiting = pod.phase is Phase.PENDING and pod.row < 0 and not pod.deletion_pending
        if is_waiting and planned_of(snapshot, pod) is None:
            uid = pod.uid if pod.nominated else ""
            classes.setdefault((pod.cls.id, pod.pinned_node, uid), []).append(pod)
    found: dict[str, list[PodRecord]] = {}
    for pods in list(classes.values())[:_CLASSES]:
        for pod in pods:
            found.setdefault(_against(snapshot, pods[0], pod, row), []).append(pod)
    ranked = sorted(found.items(), key=lambda each: (bool(each[0]), -len(each[1]), each[0]))
    return [(why, tuple(pods)) for why, pods in ranked]


def _against(snapshot: ClusterSnapshot, alike: PodRecord, pod: PodRecord, row: int) -> str:
    """What keeps a pod off the node; `alike` is a pod of the same class."""
    if pod.gates:
        return "has scheduling gates"
    scheduler = snapshot.scheduler
    if pod.scheduler and scheduler.profile_of(pod.scheduler) is None:
        return "another scheduler's"
    if reason := snapshot.cluster.jobs.queue_limits.admission_error(pod):
        return f"not admitted: {reason}"
    rejection, name = rejection_on(snapshot, alike, row), snapshot.cluster.nodes.name(row)
    texts = dict.fromkeys(plain_on(snapshot, alike, name, text) for text in rejection.texts)
    return ", ".join(texts)


def _as_groups(groups: Iterable[_Group]) -> list[PodsOfWorkload]:
    return [
        PodsOfWorkload(len(pods), KEPT_OUT if why else FITS, why, [_name(pod) for pod in pods])
        for why, pods in groups
    ]


def _name(pod: PodRecord) -> str:
    if pod.reservation is not None:
        return f"Reservation/{pod.name}"
    return f"{pod.namespace}/{pod.name}"


def _waiting(snapshot: ClusterSnapshot, row: int, groups: list[_Group]) -> str:
    total, fit = sum(len(pods) for _, pods in groups), sum(len(pods) for why, pods in groups if not why)
    if not total:
        return "No pod is pending."
    has_reservations = any(pod.reservation is not None for _, pods in groups for pod in pods)
    what = "pending pods and reservations" if has_reservations else "pending pods"
    reasons = [f"{why} ({len(pods)})" for why, pods in groups if why]
    others = f": {few(reasons, _REASONS)}" if reasons else ""
    if fit:
        rest = f"; the others do not{others}" if others else ""
        together = _at_once(snapshot, row, [pod for why, pods in groups if not why for pod in pods])
        only = f", {together} of them at once" if together < fit else ""
        return f"{fit} of the {total} {what} would fit here{only}{rest}."
    if total == 1:
        one = "reservation" if has_reservations else "pod"
        return f"The only pending {one} does not fit here{others}."
    return f"None of the {total} {what} fits here{others}."


def _at_once(snapshot: ClusterSnapshot, row: int, pods: list[PodRecord]) -> int:
    """How many of the pods, each of which fits, fit on the node together, in the order of the queue."""
    scheduler, count, full = snapshot.scheduler, 0, set[int]()
    statement = Statement(scheduler.cycle)
    try:
        for pod in sorted(pods, key=scheduler.queue.sort_key):
            if pod.cls.id in full or rejection_on(snapshot, pod, row).texts:
                full.add(pod.cls.id)
            elif statement.assume_on(profile_for(scheduler, pod), pod, row):
                count += 1
        return count
    finally:
        statement.discard()


# Advice


def _advice(snapshot: ClusterSnapshot, raw: Raw, row: int, groups: list[_Group]) -> Iterator[Advice]:
    """Changes of the node with which more pending pods would fit."""
    name = raw["metadata"]["name"]
    waiting = [pod for why, pods in groups if why for pod in pods]
    before = _starting(snapshot, waiting)
    repairs = list(_repairs(snapshot, raw))
    if len(repairs) > 1:
        text = " and ".join(each.text for each in repairs)
        body = {"spec": {"unschedulable": False, "taints": _lifecycle_taints(raw)}}
        both = repair(text, repairs[0].change.actions[0], [patch(NODE, raw, body)])
        repairs.append(both)
    found: set[str] = set()
    for each in repairs:
        with applied(snapshot, each.change.objects):
            fit = [_name(pod) for pod in waiting if _fits(snapshot, pod, name)]
            starting = _starting(snapshot, waiting)
        starts = [pod for pod in fit if pod in starting and pod not in before]
        if set(starts) - found:
            found |= set(starts)
            rest = [pod for pod in fit if pod not in starting]
            beside = plural(len(starts), "it", "them")
            besides = f" ({few(rest, 3)} would too, but not beside {beside})" if rest else ""
            text = f"{each.text}; then {few(starts, 3)} {plural(len(starts), 'fits', 'fit')}{besides}"
            yield Advice(text, each.change.data(), [name])


def _starting(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> set[str]:
    """The names of the pods that get a node if all are tried in the order of the queue, gangs as a
    whole."""
    jobs, sort_key, full = snapshot.cluster.jobs, snapshot.scheduler.queue.sort_key, set[int]()
    records = [known for pod in pods if (known := Subject.of(pod).record(snapshot)) is not None]
    with ExitStack() as stack:
        for pod in sorted(records, key=sort_key):
            if pod.row >= 0 or pod.gates or pod.cls.id in full:
                continue
            job = jobs.of(pod)
            if job is not None and not job.is_ready:
                if starts_on(snapshot, GangGoal(job.name)):
                    stack.enter_context(attempt(snapshot, job))
            elif not stack.enter_context(placed(snapshot, [pod])) and pod.pinned_node is None:
                full.add(pod.cls.id)
        return {_name(pod) for pod in records if pod.row >= 0}


def _lifecycle_taints(raw: Raw) -> list[Raw]:
    """The taints that are set and removed by components of the cluster."""
    return [
        each
        for each in (raw.get("spec") or {}).get("taints") or ()
        if is_lifecycle_taint(str(each.get("key")))
    ]


def _fits(snapshot: ClusterSnapshot, pod: PodRecord, node: str) -> bool:
    row = snapshot.cluster.nodes.row(node)
    return row is not None and not _against(snapshot, pod, pod, row)


def _repairs(snapshot: ClusterSnapshot, raw: Raw) -> Iterator[Repair]:
    name, taints = raw["metadata"]["name"], (raw.get("spec") or {}).get("taints") or []
    row = snapshot.cluster.nodes.row(name)
    assert row is not None
    if _is_cordoned(raw):
        yield uncordoned(raw)
    for taint in snapshot.cluster.nodes.info[row].taints:
        own = taint.effect in KEEPING_OUT and not is_lifecycle(taint)
        if not own or taint.key == TAINT_UNSCHEDULABLE:
            continue
        key = taint.key
        left = [t for t in taints if (t.get("key"), t.get("effect")) != (taint.key, taint.effect)]
        text = f"remove the taint {taint_text(taint)} (kubectl taint node {name} {key}:{taint.effect}-)"
        yield repair(text, "RemoveTaint", [patch(NODE, raw, {"spec": {"taints": left}})])
