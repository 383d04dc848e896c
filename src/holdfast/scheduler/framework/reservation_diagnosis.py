"""Why no reservation serves an unschedulable pod, in Koordinator's words.

Reservations that match the pod are counted by reason at the end of the pod's condition message:

    0/5 nodes are available: 3 Insufficient cpu, 2 Reservation(s) Insufficient cpu. 1 Reservation(s) is
    unschedulable, 3 Reservation(s) matched owner total

The part about reservations is repeated in an event:

    0/3 reservations are available: 2 Reservation(s) Insufficient cpu, 1 Reservation(s) is
    unschedulable.
"""

import re
from collections import Counter
from collections.abc import Sequence

from holdfast.scheduler.cluster.records import ReservationEntry
from holdfast.scheduler.cluster.view import One
from holdfast.scheduler.framework.config.plugin_sets import NODE_AFFINITY
from holdfast.scheduler.framework.diagnosis import (
    MATCHED_NAME,
    MATCHED_TOTAL,
    OF_RESERVATIONS,
    NodeRejection,
)
from holdfast.scheduler.framework.feasibility.reservation_column import ReservationColumn
from holdfast.scheduler.framework.interface import Scope
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.reservation_affinity import (
    AFFINITY,
    NOT_EXACT,
    OTHER_NAME,
    UNSCHEDULABLE,
)
from holdfast.scheduler.state.cluster import Cluster

_FOR_NODE = "for node reason that "
_FIRST = (MATCHED_NAME, OTHER_NAME, AFFINITY, UNSCHEDULABLE, NOT_EXACT)

_START = re.compile(r"0/[0-9]+ nodes are available: ")
_COUNT = re.compile(r"([0-9]+) Reservation\(s\) (.*)")


def count_reservations(cluster: Cluster, column: ReservationColumn) -> str:
    """The number of reservations that match the class, and of these by reason. Empty if none matches
    and pods of the class do not require one."""
    reservations = cluster.reservations
    affinity = reservations.affinity(column.cls)
    counts: Counter[str] = Counter()
    on_nodes: Counter[str] = Counter()
    total = 0
    named = reservations.get(affinity.by_name) if affinity.by_name else None
    only = named.pod.row if named is not None and named.pod is not None else -1
    by_usage = {name for name, test in column.guarded_filters if test.scope is Scope.USAGE}
    lacking: list[tuple[ReservationEntry, NodeRejection]] = []
    for spec in reservations.matching(column.cls):
        for reservation in reservations.members.get(spec, {}).values():
            if (
                not reservations.is_usable(reservation)
                or not column.allows(reservation)
                or not _matches_node(cluster, column, reservation)
            ):
                continue
            assert reservation.pod is not None
            if only >= 0 and reservation.pod.row != only:
                continue  # for a pod that names a reservation only those on its node count
            total += 1
            refusal = affinity.refusal(reservation, reservations.node_labels(reservation.pod.row))
            if refusal:
                counts[refusal] += 1
                continue
            if affinity.by_name:
                counts[MATCHED_NAME] += 1
            if affinity.required:
                on_nodes.update(_against_node(cluster, column, reservation))
                continue
            rejection = column.diagnosis.known_rejection(reservation.pod.row)
            if rejection.plugin in by_usage and reservation.entry is not None:
                lacking.append((reservation.entry, rejection))
            else:
                on_nodes.update(_of_nodes(rejection.texts))
    # What the node lacks the reservation may have, and be of no use for another reason.
    with_them = column.node_reasons([entry for entry, _ in lacking])
    for entry, rejection in lacking:
        on_nodes.update(_of_nodes(with_them.get(entry.index) or rejection.texts))
    if not total and not affinity.required:
        return ""
    texts = [*_FIRST, *sorted(counts.keys() - set(_FIRST))]
    parts = [f"{counts[text]} Reservation(s) {text}" for text in texts if counts[text]]
    parts += [f"{on_nodes[text]} Reservation(s) {_FOR_NODE}{text}" for text in sorted(on_nodes)]
    return ", ".join([*parts, f"{total} Reservation(s) {MATCHED_TOTAL}"])


def _matches_node(cluster: Cluster, column: ReservationColumn, reservation: ReservationInfo) -> bool:
    """Whether the reservation's node matches the node selector and affinity of the class: reservations
    on other nodes do not count."""
    assert reservation.pod is not None
    row = reservation.pod.row
    if not cluster.nodes.alive[row]:
        return False
    view = One(cluster.nodes, row)
    return all(test.passes(view) for name, test in column.guarded_filters if name == NODE_AFFINITY)


def _against_node(
    cluster: Cluster, column: ReservationColumn, reservation: ReservationInfo
) -> Sequence[str]:
    """The reasons of the reservation's node; empty if the reservation itself is the reason, which is
    counted among the nodes."""
    entry = reservation.entry
    if entry is None:
        return []
    return _of_nodes(column.against(entry))


def _of_nodes(against: Sequence[str]) -> Sequence[str]:
    return [] if any(text.startswith(OF_RESERVATIONS) for text in against) else against


def about_reservations(message: str) -> str:
    """The part of a pod's condition message that is about reservations; empty if there is none."""
    start = _START.match(message)
    if start is None:
        return ""
    reasons = message[start.end() :].partition("preemption: ")[0].replace(". ", ", ")
    total = ""
    first: list[str] = []
    details: list[str] = []
    last: list[str] = []
    for item in (part.strip(". ") for part in reasons.split(",")):
        count = _COUNT.fullmatch(item)
        if count is None:
            continue
        text = count[2]
        if text == MATCHED_TOTAL:
            total = count[1]
        elif text == MATCHED_NAME:
            first.append(item)
        else:
            (last if text.startswith(_FOR_NODE) else details).append(item)
    if not total:
        return ""
    found = ", ".join((*first, *details, *last))
    return f"0/{total} reservations are available{f': {found}' if found else ''}."
