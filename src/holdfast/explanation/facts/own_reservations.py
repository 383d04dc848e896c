"""Reservations and holds for a pod itself, usable now or once they are Available."""

from collections.abc import Iterator

from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry, ReservationInfo
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def own_reservations(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[ReservationInfo]:
    """Reservations and holds for the pod itself, usable now or once they are Available."""
    reservations = snapshot.cluster.reservations
    yield from reservations.preemption_holds.get(pod.uid, {}).values()
    for spec in reservations.matching(pod.cls):
        for reservation in reservations.members.get(spec, {}).values():
            if reservation.waiting or reservations.is_usable(reservation):
                yield reservation


def own_entries(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[ReservationEntry]:
    """The entries on a row of reservations and holds for the pod itself."""
    reservations = snapshot.cluster.reservations
    matching = reservations.matching(pod.cls)
    for entry in snapshot.cluster.ledger.reservations.on(row):
        reservation = entry.reservation
        is_owner = reservation.owner_spec_id in matching or reservation.preemptor == pod.uid
        if is_owner and (reservation.waiting or reservations.is_usable(reservation)):
            yield entry


def waiting_for(snapshot: ClusterSnapshot, pod: PodRecord) -> list[ReservationInfo]:
    """Its own reservations that wait for capacity on their nodes."""
    return [each for each in own_reservations(snapshot, pod) if each.waiting and each.entry]
