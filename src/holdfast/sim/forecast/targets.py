"""The pods, pod groups, workloads, reservations and schedules that a forecast is asked about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.api import kinds, names
from holdfast.api.cron import CronError, never_due_text
from holdfast.api.decode import convert, object_name
from holdfast.api.errors import HoldfastError, InvalidObject, SelectorError, TimeError
from holdfast.api.pod import Pod
from holdfast.api.reservation_schedules import ReservationSchedule, starts_of
from holdfast.api.selectors import Selector, compile_selector
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import parse_time
from holdfast.scheduler.controllers.reservation_schedules import occurrence_name
from holdfast.scheduler.jobs.job import named_by
from holdfast.sim.forecast.answers import WorkloadAnswer
from holdfast.sim.forecast.run_times import controller_in
from holdfast.sim.forecast.workloads import WORKLOADS, pods_by_workload, without_pods

Raw = dict[str, Any]

_GROUP_APIS = (names.SIGS_PODGROUP_API, names.VOLCANO_API, names.WORKLOAD_API)
_JOB_APIS = ("batch/v1", names.VOLCANO_JOB_API)
KINDS = {
    "pod": ("Pod", ("v1",)),
    "podgroup": ("PodGroup", _GROUP_APIS),
    "job": ("Job", _JOB_APIS),
    **WORKLOADS,
    "reservation": ("Reservation", (names.RESERVATION_API,)),
    "reservationschedule": ("ReservationSchedule", (names.HOLDFAST_API,)),
}
"""What can be asked about: the kind and its API versions."""
_OTHERS = {"podgroup": ("pg",), "reservation": ("hold", "holds")}
ALIASES = {
    alias: title
    for title, (kind, versions) in KINDS.items()
    for alias in (
        title,
        *_OTHERS.get(title, ()),
        *(name for version in versions for name in kinds.KINDS[version, kind].command_names),
    )
}
"""What can be asked about by each name that a user may give: those that kubectl takes, and our own."""
_CLUSTER_WIDE = ("reservation", "reservationschedule")
_OCCURRENCES = 3
"""How many occurrences of a schedule are asked about."""
_LIVE = ("", "Pending", "Waiting")


class NoSuchTarget(HoldfastError):
    """The snapshot does not have the object."""


@dataclass(frozen=True, slots=True)
class ForecastTarget:
    raw: Raw
    needed: int = 1
    """How many pods must start for it to count as started, besides those that have."""
    started: float | None = None
    """When it started, if it has; 0 if that is not known."""
    over: str = ""
    """The phase of what has ended."""
    gates: tuple[str, ...] = ()
    """What keeps it, or all its pods, from being scheduled."""
    scheduler: str = ""
    """The scheduler's name, of pods."""
    workload: WorkloadAnswer | None = None
    """The Deployment or other workload that was asked about, of its pods."""
    without_pods: str = ""
    """Why a workload has no pods."""
    missing_node: str = ""
    """The node that the pod names, of one that has not started, if that does not exist."""
    never_due: str = ""
    """That a schedule has no start."""

    @property
    def name(self) -> str:
        metadata = self.raw["metadata"]
        return "/".join(filter(None, (self.raw["kind"], _namespace(self.raw), metadata["name"])))

    @property
    def is_single(self) -> bool:
        """Whether it starts itself, rather than its pods."""
        return self.raw["kind"] in ("Pod", "Reservation")


def members_of(pod: Raw) -> Iterable[str]:
    """The names of the pod group and the job that the pod belongs to."""
    namespace = _namespace(pod)
    controller = controller_in(pod)
    if controller is not None and controller.get("kind") == "Job":
        yield f"Job/{namespace}/{controller.get('name')}"
    try:
        group = named_by(msgspec.convert(pod, Pod))
    except msgspec.ValidationError:
        return
    if group is not None:
        yield f"PodGroup/{group.namespace or namespace}/{group.name}"


def required_affinity(pod: Raw) -> Iterator[Callable[[Raw], bool]]:
    """Of each required affinity term of a pod, whether it selects another pod."""
    try:
        affinity = msgspec.convert(pod, Pod).spec.affinity
    except msgspec.ValidationError:
        return
    if affinity is None or affinity.pod_affinity is None:
        return
    for term in affinity.pod_affinity.required_during_scheduling_ignored_during_execution:
        try:
            selector = compile_selector(term.label_selector)
        except SelectorError:
            continue
        anywhere = term.namespace_selector is not None
        places = term.namespaces or [_namespace(pod)]

        def selects(
            other: Raw,
            selector: Selector = selector,
            anywhere: bool = anywhere,
            places: Sequence[str] = places,
        ) -> bool:
            is_there = anywhere or _namespace(other) in places
            return is_there and selector.matches(other["metadata"].get("labels") or {})

        yield selects


def find_targets(
    objects: Sequence[Raw],
    kind: str,
    name: str | None,
    namespace: str,
    now: float,
    horizon: float = math.inf,
) -> list[ForecastTarget]:
    """The object of that name, or everything of the kind that is pending, in all namespaces if none is
    given. Of a schedule, its next occurrences: of one that is named, several within the horizon. Raises
    NoSuchTarget."""
    kind_name, apis = KINDS[kind]
    found = [
        raw
        for raw in objects
        if raw.get("kind") == kind_name
        and raw.get("apiVersion") in apis
        and (name is None or raw["metadata"].get("name") == name)
        and (kind in _CLUSTER_WIDE or not namespace or _namespace(raw) == namespace)
    ]
    if kind == "reservationschedule" and found:
        most, until = (1, math.inf) if name is None else (_OCCURRENCES, now + horizon)
        return [each for raw in found for each in _occurrences(objects, raw, now, most, until)]
    if kind in WORKLOADS and found:
        pods = pods_by_workload(objects)
        return [each for raw in found for each in _of_workload(raw, pods, is_named=name is not None)]
    members = _members(objects) if kind in ("podgroup", "job") else {}
    targets = [_target(raw, members) for raw in found]
    if kind == "pod":
        nodes = {raw["metadata"].get("name") for raw in objects if raw.get("kind") == "Node"}
        targets = [_with_node(each, nodes) for each in targets]
    if name is None:
        return [each for each in targets if each.started is None and not each.over]
    if not targets and kind == "podgroup":
        targets = _declared_by_pods(objects, name, namespace)
    if not targets:
        where = f" in namespace {namespace}" if namespace and kind not in _CLUSTER_WIDE else ""
        raise NoSuchTarget(f'no {kind} "{name}"{where}{_similar(objects, kind, name, namespace)}')
    return targets[:1]


def _similar(objects: Sequence[Raw], kind: str, name: str, namespace: str) -> str:
    """`; did you mean web?`, or the namespace that has an object of that name."""
    kind_name, apis = KINDS[kind]
    found = [raw for raw in objects if raw.get("kind") == kind_name and raw.get("apiVersion") in apis]
    elsewhere = sorted({_namespace(raw) for raw in found if raw["metadata"].get("name") == name})
    if elsewhere and kind not in _CLUSTER_WIDE:
        return f"; there is one in namespace {elsewhere[0]}: use -n {elsewhere[0]}"
    here = [raw for raw in found if not namespace or _namespace(raw) in (namespace, "")]
    return did_you_mean(name, [str(raw["metadata"]["name"]) for raw in here])


def _of_workload(raw: Raw, pods: dict[str, list[Raw]], *, is_named: bool) -> Iterator[ForecastTarget]:
    """The pending pods of a workload; of one that is named and has no pending pods, those that started,
    or itself if it has none."""
    workload = ForecastTarget(raw)
    members = sorted(pods.get(workload.name, ()), key=lambda pod: str(pod["metadata"]["name"]))
    waiting = [pod for pod in members if not (pod.get("spec") or {}).get("nodeName")]
    counts = WorkloadAnswer(workload.name, len(members) - len(waiting), len(waiting))
    for pod in waiting or (sorted(members, key=_bound_at) if is_named else ()):
        yield replace(_pod(pod), workload=counts)
    if is_named and not members:
        yield ForecastTarget(raw, workload=counts, without_pods=without_pods(raw))


def _occurrences(
    objects: Sequence[Raw], raw: Raw, now: float, most: int, until: float
) -> Iterator[ForecastTarget]:
    """The reservations of the next occurrences, whether they exist or not: at least the first, and up
    to `most` until a time. Raises NoSuchTarget."""
    try:
        schedule = convert(raw, ReservationSchedule, object_name(raw))
        cron = starts_of(schedule)
    except (CronError, InvalidObject) as error:
        raise NoSuchTarget(f'reservationschedule "{raw["metadata"]["name"]}": {error}') from None
    if schedule.spec.suspend:
        yield ForecastTarget(raw, gates=("spec.suspend",))
        return
    known = {each["metadata"]["name"]: each for each in objects if each.get("kind") == "Reservation"}
    start = cron.next_after(now)
    if start is None:
        yield ForecastTarget(raw, never_due=never_due_text(schedule.spec.schedule))
    for number in range(most):
        if start is None or (number and start > until):
            return
        name = occurrence_name(schedule, start)
        made = {"apiVersion": names.RESERVATION_API, "kind": "Reservation", "metadata": {"name": name}}
        yield _reservation(known.get(name) or made)
        start = cron.next_after(start)


def _declared_by_pods(objects: Sequence[Raw], name: str, namespace: str) -> list[ForecastTarget]:
    """A gang that only the annotations of its pods declare."""
    full = f"PodGroup/{namespace or names.DEFAULT_NAMESPACE}/{name}"
    members = _members(objects)
    if full not in members:
        return []
    metadata = {"name": name, "namespace": namespace or names.DEFAULT_NAMESPACE}
    annotations = members[full][0]["metadata"].get("annotations") or {}
    least = annotations.get(names.GANG_MIN_AVAILABLE) or ""
    raw = {
        "apiVersion": names.SIGS_PODGROUP_API,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": int(least) if least.isdigit() else 1},
    }
    return [_target(raw, members)]


def _members(objects: Sequence[Raw]) -> dict[str, list[Raw]]:
    found: dict[str, list[Raw]] = {}
    for raw in objects:
        if raw.get("kind") == "Pod":
            for name in members_of(raw):
                found.setdefault(name, []).append(raw)
    return found


def _target(raw: Raw, members: dict[str, list[Raw]]) -> ForecastTarget:
    match raw["kind"]:
        case "Pod":
            return _pod(raw)
        case "Reservation":
            return _reservation(raw)
    target = ForecastTarget(raw)
    pods = members.get(target.name, [])
    placed = [pod for pod in pods if (pod.get("spec") or {}).get("nodeName")]
    waiting = [pod for pod in pods if pod not in placed]
    least = _least_members(raw) if raw["kind"] == "PodGroup" else 1
    gated = [_gates(pod) for pod in waiting]
    gates = tuple(dict.fromkeys(gate for each in gated for gate in each)) if all(gated) else ()
    if len(placed) >= least:
        started = sorted(_bound_at(pod) for pod in placed)[least - 1]
        return ForecastTarget(raw, started=started)
    if raw["kind"] == "Job" and (raw.get("spec") or {}).get("suspend"):
        gates = ("spec.suspend",)
    if raw["kind"] == "Job" and (raw.get("status") or {}).get("completionTime"):
        return ForecastTarget(raw, over="Complete")
    scheduler = str((waiting[0].get("spec") or {}).get("schedulerName") or "") if waiting else ""
    return ForecastTarget(raw, max(least - len(placed), 1), gates=gates, scheduler=scheduler)


def _pod(raw: Raw) -> ForecastTarget:
    spec, phase = raw.get("spec") or {}, (raw.get("status") or {}).get("phase") or ""
    if phase in ("Succeeded", "Failed"):
        return ForecastTarget(raw, over=phase)
    if spec.get("nodeName"):
        return ForecastTarget(raw, started=_bound_at(raw))
    return ForecastTarget(raw, gates=_gates(raw), scheduler=str(spec.get("schedulerName") or ""))


def _with_node(target: ForecastTarget, nodes: set[str]) -> ForecastTarget:
    """Of a pod that names a node which does not exist, and does not run: that it has not started.
    Without nodes among the objects nothing is known of them."""
    node = str((target.raw.get("spec") or {}).get("nodeName") or "")
    phase = (target.raw.get("status") or {}).get("phase")
    if target.started is None or not nodes or node in nodes or phase not in (None, "", "Pending"):
        return target
    return replace(target, started=None, missing_node=node)


def _reservation(raw: Raw) -> ForecastTarget:
    status = raw.get("status") or {}
    phase = status.get("phase") or ""
    if phase == "Available":
        return ForecastTarget(raw, started=_condition_time(raw, "Ready"))
    return ForecastTarget(raw, over="" if phase in _LIVE else phase)


def _gates(pod: Raw) -> tuple[str, ...]:
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return tuple(str(each.get("name")) for each in gates)


def _least_members(group: Raw) -> int:
    spec = group.get("spec") or {}
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    return max(1, int(spec.get("minMember") or gang.get("minCount") or 1))


def _bound_at(pod: Raw) -> float:
    start = (pod.get("status") or {}).get("startTime")
    return _condition_time(pod, "PodScheduled") or _time(start)


def _condition_time(raw: Raw, type_: str) -> float:
    for condition in (raw.get("status") or {}).get("conditions") or ():
        if condition.get("type") == type_ and condition.get("status") == "True":
            return _time(condition.get("lastTransitionTime"))
    return 0.0


def _time(text: Any) -> float:
    try:
        return parse_time(text) if isinstance(text, str) else 0.0
    except TimeError:
        return 0.0


def _namespace(raw: Raw) -> str:
    if raw["kind"] in ("Reservation", "ReservationSchedule"):
        return ""
    return str(raw["metadata"].get("namespace") or names.DEFAULT_NAMESPACE)
