"""The reservations whose owners match a pod, and why each can be used or not."""

from collections.abc import Iterable, Iterator

from holdfast.api.annotations import ReservationAffinity
from holdfast.api.names import RESERVATION_IGNORED
from holdfast.api.plurals import number_of
from holdfast.api.selectors import tolerated
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import format_time
from holdfast.explanation.facts.holders import held_for
from holdfast.explanation.facts.node_labels import expression_text
from holdfast.explanation.report import MatchingReservation, few
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.reservation_column import NONE_FEASIBLE, ReservationColumn
from holdfast.scheduler.plugins import node_unschedulable, node_volume_limits
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.reservations.owners import OwnerSpec
from holdfast.scheduler.reservations.reservation_affinity import NOT_EXACT, UNSCHEDULABLE
from holdfast.scheduler.state.cluster import Cluster
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, reserved_by_name, shown

_NAMED = 3
_OF_NODE = "node(s) "
_SAID_ELSEWHERE = (_OF_NODE, "didn't match ")
"""Reasons that are those of the node, or of what the pod says of the reservation that it requires."""
_OF_ITS_NODE = {
    node_unschedulable.REASON: "its node is cordoned",
    node_volume_limits.REASON: "its node has too many volumes attached",
}
"""Reasons that count nodes, of one node."""
UNTOLERATED = "had untolerated taint"


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
            why = _end_text(cluster, reservation)
            found.append(MatchingReservation(reservation.name, _phase(reservation), "", False, why))
    return found


def _end_text(cluster: Cluster, reservation: ReservationInfo) -> str:
    """`has ended: …`, with the reason as far as it is known."""
    ended = reservation.message or _condition_message(reservation) or reservation.error
    if not ended and (users := _users_of_ended(cluster, reservation)):
        ended = f"it served one pod only (allocateOnce), {users}"
    return f"has ended: {ended}" if ended else "has ended"


def _users_of_ended(cluster: Cluster, reservation: ReservationInfo) -> str:
    """The pods that an ended reservation was allocated to; empty if it could serve several."""
    if not reservation.object.spec.once:
        return ""
    owners = reservation.object.status.current_owners
    names = [f"{owner.namespace}/{owner.name}" for owner in owners]
    pods = [pod for pod in cluster.pods.values() if pod.reservation_uid == reservation.uid]
    names += [f"{pod.namespace}/{pod.name}" for pod in pods]
    return few(list(dict.fromkeys(names)), _NAMED)


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
    if not why and column.rejected is not None:
        why = f"the pod itself is rejected: {column.rejected.message}"
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
    if (planned := reservations.calendar.get(reservation.uid)) is not None and row < 0:
        return _start_text(planned)
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
    entry = reservation.entry
    if refusal == NOT_EXACT:
        unequal = reservations.affinity(column.cls).unequal(reservation)
        sizes = ", ".join(
            f"the pod requests {shown(name, own)} {name}, the reservation has {shown(name, has)}"
            for name, (own, has) in unequal.items()
        )
        return f"its size must match exactly (exact-match-reservation): {sizes}"
    if refusal == UNSCHEDULABLE:
        closed = "it is being deleted" if reservation.terminating else "spec.unschedulable is true"
        return f"it takes no new pods ({closed})"
    if refusal.startswith(UNTOLERATED):
        return f"the pod does not tolerate {taints_text(reservation)}"
    if refusal:
        return refusal
    if entry is None or not isinstance(column, ReservationColumn):
        return ""
    against = column.against(entry)
    if against == [NONE_FEASIBLE]:
        return "has nothing left of what the pod requests"
    text = ", ".join(against)
    if UNTOLERATED in text and reservations.affinity(column.cls).required:
        # The node is rejected for lack of a reservation, so that nothing else names the taint.
        taints = _node_taints(cluster, column.cls, row)
        return f"the pod does not tolerate {taints}, a taint of its node"
    if text.startswith(_OF_NODE) and reservations.affinity(column.cls).required:
        return _OF_ITS_NODE.get(text, f"its node {text.removeprefix(_OF_NODE)}")  # for the same reason
    if reservation.restricted is not None and "Reservation(s) Insufficient" in text:
        compared = _compared(cluster, column.cls, entry.remaining)
        return f"{compared} left, and its policy is Restricted" if compared else text
    if all(each.startswith("Insufficient ") for each in against):
        return _beside(cluster, column.cls, entry) or text
    return text


def _beside(cluster: Cluster, cls: PodClass, entry: ReservationEntry) -> str:
    """`the pod requests 5 cpu, the reservation has 2 left and node-1 has 1 free`, if that is too
    little."""
    nodes, texts = cluster.nodes, []
    for slot, asked in cls.requests:
        free = max(0, nodes.allocatable.item(slot, entry.row) - nodes.claimed.item(slot, entry.row))
        name, left = nodes.slots.name(slot), entry.left(slot)
        if name and asked > left + free:
            texts.append(
                f"the pod requests {shown(name, asked)} {name}, the reservation has "
                f"{shown(name, left)} left and {nodes.name(entry.row)} has {shown(name, free)} free"
            )
    return ", ".join(texts)


def _compared(cluster: Cluster, cls: PodClass, amounts: dict[int, int]) -> str:
    """`the pod requests 2 cpu, the reservation has 1`, for resources that it has less of."""
    slots = cluster.nodes.slots
    texts = [
        f"the pod requests {shown(name, asked)} {name}, "
        f"the reservation has {shown(name, amounts[slot])}"
        for slot, asked in cls.requests
        if slot in amounts and asked > amounts[slot]
        for name in [slots.name(slot)]
    ]
    return ", ".join(texts)


def _left(cluster: Cluster, reservation: ReservationInfo) -> str:
    entry = reservation.entry
    if entry is None:
        return ""
    amounts = {slot: entry.left(slot) for slot in entry.amounts}
    left = reserved_by_name(cluster, entry.amounts, amounts)
    return ",".join(f"{name}={shown(name, amount)}" for name, amount in sorted(left.items()))


def _phase(reservation: ReservationInfo) -> str:
    return reservation.object.status.phase or "Pending"


def _condition_message(reservation: ReservationInfo) -> str:
    said = [each.message for each in reservation.object.status.conditions if each.status == "False"]
    return said[-1] if said else ""


def _start_text(planned: PlannedReservation) -> str:
    where = f" on {planned.node}" if planned.node else "; no node is planned for it"
    return f"starts at {format_time(planned.start)}{where}"


def unusable_reservations(found: list[MatchingReservation]) -> list[str]:
    """Why the reservations on nodes that are for a pod do not help it."""
    unusable = [
        each
        for each in found
        if each.node
        and not each.usable
        and each.phase == "Available"
        and not each.why.startswith(_SAID_ELSEWHERE)
    ]
    texts = [f"reservation {each.name} on {each.node} cannot be used: {each.why}" for each in unusable]
    more = len(texts) - _NAMED
    return [*texts[:_NAMED], *([f"and {number_of(more, 'more reservation')}"] if more > 0 else [])]


def named_reservation(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[str]:
    """What is wrong with the reservation that the pod requires."""
    reservations = snapshot.cluster.reservations
    affinity = reservations.affinity(pod.cls)
    if pod.reservation is not None or not affinity.required:
        return
    matching = reservations.matching(pod.cls)
    if not affinity.by_name:
        if affinity.affinity is not None and (wanted := affinity.affinity.reservation_selector):
            labels = ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
            some = [each for each in reservations.known.values() if not each.finished]
            if not any(has_labels(each, wanted) for each in some):
                has = _labels_text([each for each in some if each.owner_spec_id in matching], wanted)
                text = f"it requires a reservation with the labels {labels}"
                yield f"{text}; no reservation has them{has}"
        if affinity.affinity is not None and (terms := _terms_text(affinity.affinity)):
            yield f"it requires a reservation with {terms}, by its own labels or those of its node"
        if not any(reservations.members.get(spec) for spec in matching):
            yield _no_owner_text(reservations.known.values(), pod.cls)
        return
    reservation = reservations.get(affinity.by_name)
    if reservation is None:
        hint = did_you_mean(affinity.by_name, (each.name for each in reservations.known.values()))
        yield f"the reservation it names, {affinity.by_name}, does not exist{hint}"
    elif reservation.finished:
        ended = _end_text(snapshot.cluster, reservation)
        yield f"the reservation it names, {reservation.name}, {ended}"
    elif reservation.owner_spec_id >= 0 and reservation.owner_spec_id not in matching:
        named = f"the reservation it names, {reservation.name}"
        whom = held_for(snapshot, reservation)
        yield f"{named}, is for {whom}, and the pod is not one of them (spec.owners)"
    elif reservation.entry is None and reservations.calendar.get(reservation.uid) is None:
        named = f"the reservation it names, {reservation.name}"
        yield f"{named}, has no node yet"


def _no_owner_text(known: Iterable[ReservationInfo], cls: PodClass) -> str:
    ended = sorted(each.name for each in known if each.finished and _matches_owner(each, cls))
    if not ended:
        return "it requires a reservation, and no reservation has it among its owners"
    which = "the one that has it among its owners has ended"
    if len(ended) > 1:
        which = "all that have it among their owners have ended"
    return f"it requires a reservation, and {which}: {few(ended, _NAMED)}"


def pending_reservations(snapshot: ClusterSnapshot, pod: PodRecord) -> list[ReservationInfo]:
    """The reservations without a node of which a pod requires one, those that start later left out."""
    reservations = snapshot.cluster.reservations
    affinity, matching = reservations.affinity(pod.cls), reservations.matching(pod.cls)
    if pod.reservation is not None or not affinity.required:
        return []
    return [
        each
        for each in sorted(reservations.known.values(), key=lambda each: each.name)
        if each.owner_spec_id in matching
        and each.pod is not None
        and each.pod.row < 0
        and not each.finished
        and affinity.by_name in ("", each.name)
        and reservations.calendar.get(each.uid) is None
    ]


def _terms_text(affinity: ReservationAffinity) -> str:
    """`team In (a) and tier Exists`: the terms of a reservation affinity."""
    required = affinity.required_during_scheduling_ignored_during_execution
    terms = required.reservation_selector_terms if required is not None else []
    texts = [" and ".join(expression_text(each) for each in term.match_expressions) for term in terms]
    return " or ".join(filter(None, texts))


def _labels_text(reservations: list[ReservationInfo], wanted: dict[str, str]) -> str:
    """`; peak has tier=gold`, of the reservations that a pod may use."""
    texts = []
    for each in reservations:
        labels = each.object.metadata.labels
        has = [f"{key}={labels[key]}" for key in sorted(wanted) if key in labels]
        texts.append(f"{each.name} has {','.join(has) or 'none of these labels'}")
    return f"; {few(texts, 3)}" if texts else ""


def has_labels(reservation: ReservationInfo, wanted: dict[str, str]) -> bool:
    labels = reservation.object.metadata.labels
    return all(labels.get(key) == value for key, value in wanted.items())


def _node_taints(cluster: Cluster, cls: PodClass, row: int) -> str:
    """`k=v:NoSchedule`: the taints of a node that keep pods of the class off it."""
    return " and ".join(
        f"{taint.key}={taint.value or ''}:{taint.effect}"
        for taint in cluster.nodes.info[row].taints
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, cls.tolerations)
    )


def taints_text(reservation: ReservationInfo) -> str:
    return " and ".join(f"{t.key}={t.value or ''}:{t.effect}" for t in reservation.taints)
