"""The reservation cache: owners, matching, phases and status of reservations.

    reservation_index       all reservations by uid, name, owners; those a pod class matches, by row
    reservation_cache       the changes they go through, kept in line with nodes and pods
    reservation_handlers    event handlers of Reservations
    reserve_pod             the pod that a reservation is scheduled as
    owners                  which pods are owners
    reservation_affinity    the reservation affinity of a pod
    reserved_ports          host ports: free for owners, closed to other pods
    waiting_reservations    pre-allocation: Waiting reservations of each node, oldest first
    preemption_holds        reservations that keep capacity for a preemptor
    starvation_holds        reservations that keep capacity for pods of starving jobs
    reservation_victims     preemption among reservations
    provisioning_requests   what pods request of a provisioner
    virtual_reservations    reservations that a provisioner has not created yet
    reservation_status      the status of a reservation

Amounts are counted in the ledger (`cluster`); the lifecycle controller decides when a status is
written. May import `managers`, `cluster`, `machinery` and `api`.
"""

from holdfast.scheduler.cluster.records import ReservationInfo
from holdfast.scheduler.reservations.reservation_cache import ReservationCache
from holdfast.scheduler.reservations.reservation_index import MatchedReservations
from holdfast.scheduler.reservations.virtual_reservations import VirtualReservations

__all__ = ["MatchedReservations", "ReservationCache", "ReservationInfo", "VirtualReservations"]
