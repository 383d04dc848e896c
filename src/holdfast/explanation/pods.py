"""Explains a pod or a pod group: why it is pending, or why it runs where it does."""

from collections import Counter

from holdfast.api.names import RESERVATION_IGNORED
from holdfast.explanation.report import MatchingReservation, Report, place, rank
from holdfast.explanation.suggestions import help_for, stopping_on
from holdfast.kube.object_client import Raw
from holdfast.local.setup import SERVED
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.reservation_column import NONE_FEASIBLE, ReservationColumn
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.owners import OwnerSpec
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot, shown


def explain_pod(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    metadata = raw["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace") or ""
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    report = Report(f"Pod {namespace}/{name}", str(status.get("phase") or "Pending"), "")
    report.node = str(spec.get("nodeName") or "")
    report.told = condition_message(raw, "PodScheduled")
    pod = snapshot.cluster.pod(namespace, name)
    if pod is None:
        report.summary = _not_known(raw)
    elif report.node:
        _placed(snapshot, pod, report)
    else:
        _waiting(snapshot, pod, raw, report)
    return report


def _not_known(raw: Raw) -> str:
    if (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        node = (raw.get("spec") or {}).get("nodeName")
        return f"It has ended, on {node}." if node else "It has ended."
    return "It is invalid for the scheduler; see its condition."


def _placed(snapshot: ClusterSnapshot, pod: PodRecord, report: Report) -> None:
    """Ranks the nodes as if the pod were not bound yet."""
    cluster = snapshot.cluster
    reservation = cluster.reservations.known.get(pod.reservation_uid)
    report.reservation = reservation.name if reservation is not None else ""
    through = f", through the reservation {report.reservation}" if report.reservation else ""
    report.summary = f"It is on {report.node}{through}."
    cluster.ledger.remove(pod)
    placing = place(snapshot.scheduler, pod)
    report.ranked = rank(snapshot.scheduler, placing)
    report.nodes = placing.reasons
    report.reservations = matching_reservations(cluster, placing.column)


def _waiting(snapshot: ClusterSnapshot, pod: PodRecord, raw: Raw, report: Report) -> None:
    scheduler = snapshot.scheduler
    placing = place(scheduler, pod)
    report.would_say = placing.message
    report.nodes = placing.reasons
    report.ranked = rank(scheduler, placing)
    report.reservations = matching_reservations(snapshot.cluster, placing.column)
    nominated = (raw.get("status") or {}).get("nominatedNodeName")
    if nominated and placing.message:
        report.help = stopping_on(snapshot, nominated)
    else:
        report.help = help_for(snapshot, pod, placing)
    if pod.deletion_pending:
        report.summary = "It is being deleted and will not be scheduled."
    elif pod.gates:
        report.summary = "It is blocked by scheduling gates."
        report.help.insert(0, f"scheduling gates to remove: {', '.join(pod.gates)}")
    elif scheduler.profile_of(pod.scheduler) is None:
        report.summary = (
            f"Its schedulerName is {pod.scheduler}, but this configuration serves "
            f"{', '.join(_served(scheduler))}; see --config."
        )
        report.help = []
    elif nominated:
        report.summary = f"{nominated} is nominated for it; victims are terminating there."
    elif refusal := snapshot.cluster.jobs.queue_limits.admission_error(pod):
        report.summary = f"It is not being scheduled: {refusal}."
        if full := over_capability(snapshot, [pod]):
            text, never = full
            report.help.insert(0, f"{text}: it can never start" if never else text)
    elif placing.message:
        report.summary = "No suitable node."
    elif held_up := _held_up(snapshot, pod):
        report.summary = held_up
    elif asked := _asked_for(snapshot, pod):
        report.summary = asked
    else:
        best = f": {report.ranked[0].node}" if report.ranked else ""
        report.summary = f"It fits now{best}. It is queued, or the scheduler is not running."
        if report.told.startswith("0/"):
            report.help.append(
                "its condition has reasons that this configuration does not give; if they persist, the "
                "scheduler runs with another configuration: pass it with --config"
            )


def _served(scheduler: Scheduler) -> list[str]:
    """The scheduler names that the profiles serve."""
    own = [profile.scheduler_name for profile in scheduler.profiles]
    return [*own, *(each for each in SERVED if each not in own and scheduler.profile_of(each))]


def _held_up(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """Why a pod that fits waits for the rest of its job, if it does."""
    job = snapshot.cluster.jobs.of(pod)
    if job is None or job.is_ready:
        return ""
    early_refusal = snapshot.scheduler.gangs.early_refusal(
        snapshot.cluster.jobs.partners(job), job.waiting()
    )
    if early_refusal is not None:
        return f"It is placed only together with the rest of its job: {early_refusal.problem.message}."
    return f"It fits, but is placed only together with the rest of {job.name}."


def _asked_for(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """The state of the reservation requested for the pod, if there is one."""
    requirements = snapshot.cluster.virtuals.requirements
    ask = requirements.requests.get(pod.uid)
    if ask is None or ask.requirement is None:
        return ""
    if ask.error:
        return f"The reservation requested for it, {ask.id}, was not created: {ask.error}"
    if ask.id in requirements.made:
        return f"The reservation requested for it, {ask.id}, exists; the pod is bound next."
    amounts = ", ".join(f"{name}: {amount}" for name, amount in ask.requirement.resources.items())
    return f"It waits until the reservation {ask.id} is created for it ({amounts})."


def condition_message(raw: Raw, type: str) -> str:
    """The message of the condition of that type, if it is not true."""
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == type and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "")
    return ""


# Matching reservations, and why each can or cannot be used


def matching_reservations(cluster: Cluster, column: ClassColumn) -> list[MatchingReservation]:
    """All reservations whose owners match the class, ended ones included."""
    cls, reservations = column.cls, cluster.reservations
    if cls.labels.get(RESERVATION_IGNORED) == "true":
        return []
    matching = reservations.matching(cls)
    found = []
    for reservation in sorted(reservations.known.values(), key=lambda each: each.name):
        if reservation.owner_spec_id in matching:
            found.append(_matching_reservation(cluster, column, reservation))
        elif reservation.owner_spec_id < 0 and _matches_owner(reservation, cls):
            ended = reservation.message or _condition_message(reservation) or reservation.error
            why = f"has ended: {ended}" if ended else "has ended"
            found.append(MatchingReservation(reservation.name, _phase(reservation), "", False, why))
    return found


def _matches_owner(reservation: ReservationInfo, cls: PodClass) -> bool:
    """Ended reservations are matched by their objects, since the cache has no more of them."""
    return OwnerSpec(-1, b"", reservation.object.spec.owners).matches(cls)


def _matching_reservation(
    cluster: Cluster, column: ClassColumn, reservation: ReservationInfo
) -> MatchingReservation:
    pod = reservation.pod
    row = pod.row if pod is not None else -1
    node = cluster.nodes.name(row) if row >= 0 else ""
    why = _against(cluster, column, reservation, row)
    return MatchingReservation(
        reservation.name,
        _phase(reservation),
        node,
        not why,
        why or "can be used",
        _left(cluster, reservation),
    )


def _against(cluster: Cluster, column: ClassColumn, reservation: ReservationInfo, row: int) -> str:
    """Why the pod cannot use it; empty if it can."""
    reservations = cluster.reservations
    if row < 0:
        message = reservation.message or _condition_message(reservation)
        return f"has no node yet: {message}" if message else "has no node yet"
    if not cluster.nodes.alive[row]:
        return "its node is gone"
    if reservation.waiting:
        lacking = ", ".join(reservations.lacking(reservation))
        return (
            f"waits for capacity on its node: {lacking}"
            if lacking
            else "waits for capacity on its node"
        )
    if not reservations.is_usable(reservation):
        owners = ", ".join(str(pod.ref) for pod in reservations.allocated_pods(reservation))
        return f"is allocated to {owners} (allocateOnce)"
    refusal = reservations.affinity(column.cls).refusal(reservation, reservations.node_labels(row))
    if refusal:
        return refusal
    entry = reservation.entry
    if entry is None or not isinstance(column, ReservationColumn):
        return ""
    against = column.against(entry)
    if against == [NONE_FEASIBLE]:
        return "has nothing left of what the pod requests"
    return ", ".join(against)


def _left(cluster: Cluster, reservation: ReservationInfo) -> str:
    entry = reservation.entry
    if entry is None:
        return ""
    left = cluster.reservations.by_name((slot, entry.left(slot)) for slot in entry.amounts)
    parts = ((name, amount) for name, amount in sorted(left.items()) if name != "pods")
    return ",".join(f"{name}={shown(name, amount)}" for name, amount in parts)


def _phase(reservation: ReservationInfo) -> str:
    return reservation.object.status.phase or "Pending"


def _condition_message(reservation: ReservationInfo) -> str:
    said = [each.message for each in reservation.object.status.conditions if each.status == "False"]
    return said[-1] if said else ""


# Queue capability


def over_capability(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> tuple[str, bool] | None:
    """Which queue's capability the pods together exceed, and whether they exceed it even in an empty
    queue; None if they fit.
    """
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    queues.refresh()
    asked: Counter[int] = Counter()
    for pod in pods:
        asked.update(pod.cls.amounts)
    found: tuple[str, bool] | None = None
    for record in queues.path(queues.of(pods[0])) if pods else ():
        for slot, limit in (record.capability or {}).items():
            used = record.allocated.get(slot, 0)
            if not asked[slot] or used + asked[slot] <= limit:
                continue
            name = slots.name(slot)
            text = (
                f"queue {record.name} uses {shown(name, used)} of the {shown(name, limit)} {name} of "
                f"its capability, and {shown(name, asked[slot])} {name} are requested"
            )
            never = asked[slot] > limit
            if found is None or (never and not found[1]):
                found = (text, never)
    return found


# Pod groups: which members have a node, and how many of the others fit now


def explain_group(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    metadata = raw["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace") or ""
    phase = (raw.get("status") or {}).get("phase") or "Pending"
    report = Report(f"PodGroup {namespace}/{name}", str(phase), "")
    job = snapshot.cluster.jobs.get(namespace, name)
    if job is None:
        report.summary = "It is invalid for the scheduler."
        return report
    report.members = [_member(snapshot, pod) for pod in job.members.values()]
    done = f", {len(job.done)} have completed" if job.done else ""
    counted = f"{len(list(job.placed()))} of {len(job.members)} members have a node{done}"
    report.summary = f"{counted}, {job.min_member} are needed. {_standing(snapshot, job, report)}"
    return report


def _standing(snapshot: ClusterSnapshot, job: Job, report: Report) -> str:
    waiting = job.waiting()
    full = over_capability(snapshot, waiting[: max(1, job.still_needs - job.ready_members)])
    fitting = _fitting(snapshot, waiting, report)
    if job.is_ready:
        return "It is running."
    if job.lacks(waiting) or not waiting:
        return "It has too few pods."
    if full is not None:
        text, never = full
        return f"It can never start: {text}." if never else f"It waits for its queue: {text}."
    if refusal := snapshot.cluster.jobs.queue_limits.admission_error(waiting[0]):
        return f"It is not being scheduled: {refusal}."
    if job.would_be_ready(fitting):
        return f"{len(fitting)} more fit now; it is queued."
    return f"Only {len(fitting)} more fit now."


def _fitting(snapshot: ClusterSnapshot, waiting: list[PodRecord], report: Report) -> list[PodRecord]:
    """The members that fit one after the other; the report gives the reason for the first that does
    not.
    """
    scheduler, ledger = snapshot.scheduler, snapshot.cluster.ledger
    fitting = []
    with ledger.transaction():
        for pod in waiting:
            if snapshot.cluster.jobs.queue_limits.admission_error(pod):
                continue
            placing = place(scheduler, pod)
            if placing.message:
                if not report.would_say:
                    report.would_say = placing.message
                    report.nodes = placing.reasons
                    report.help = help_for(snapshot, pod, placing)
                continue
            row = scheduler.search.find_row(placing.profile, pod, placing.column)
            pod.reservation_uid = placing.column.reservation_uid(row)
            ledger.place(pod, row)
            fitting.append(pod)
    for pod in waiting:
        pod.reservation_uid = ""
    return fitting


def _member(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    if pod.row >= 0:
        return f"{pod.ref} is on {snapshot.cluster.nodes.name(pod.row)}"
    if pod.reservation is None:
        raw, condition = snapshot.find(POD, pod.name, pod.namespace), "PodScheduled"
    else:
        raw, condition = snapshot.find(RESERVATION, pod.name), "Scheduled"
    said = condition_message(raw, condition) if raw is not None else ""
    return f"{pod.ref} is pending: {said}" if said else f"{pod.ref} is pending"
