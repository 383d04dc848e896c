"""Host ports of reservations: reserved ports are closed to other pods and free for owners.

A reserve pod uses the host ports of its template on its node as a pod does (`PortUse` counts both). A
pod is allocated from one reservation, but may use the ports of every matched reservation on its node
that it could be allocated from: one that is Available, not about to end, not used up, and excluded
neither by its taints nor by the pod's reservation affinity. Ports of all others, as of a Waiting
reservation, are closed to it. NodePorts filters by this.
"""

from collections.abc import Iterable, Iterator

from holdfast.scheduler.cluster.node_table import HostPort, PortUse, conflict
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.reservations.reservation_index import ReservationIndex


class ReservedPorts:
    """The host ports of a class that reservations reserve for its pods."""

    __slots__ = ("_cls", "_reservations")

    def __init__(self, reservations: ReservationIndex, cls: PodClass) -> None:
        self._reservations = reservations
        self._cls = cls

    def on(self, row: int) -> int:
        """How many uses of the ports on the row are by reservations that the pods may be allocated
        from."""
        matched = self._reservations.matched(self._cls)
        if matched is None:
            return 0
        return sum(conflicts(self._cls.ports, entry.pod.cls.ports) for entry in matched.on(row))

    def everywhere(self) -> Iterator[tuple[int, int]]:
        """The same as pairs of a row and a number, for rows with such reservations; a row can occur
        more than once."""
        matched = self._reservations.matched(self._cls)
        for entry in matched.everywhere() if matched is not None else ():
            reserved = entry.pod.cls.ports
            if reserved:
                yield entry.row, conflicts(self._cls.ports, reserved)


def conflicts(ports: Iterable[HostPort], others: Iterable[HostPort]) -> int:
    """How many pairs of the ports conflict."""
    return sum(conflict(port, other) for port in ports for other in others)


def used_by_others(in_use: PortUse, cls: PodClass, row: int, ours: Iterable[PodRecord]) -> bool:
    """Whether pods or reserve pods other than `ours` use a host port of the class on the row. Until
    then a reservation with these ports is Waiting."""
    for port in cls.ports:
        uses = sum(counts.item(row) for counts in in_use.conflicts(port))
        if uses > sum(conflicts((port,), pod.cls.ports) for pod in ours):
            return True
    return False
