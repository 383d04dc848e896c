"""Reservations as the scheduler knows them: who may draw on them, where they hold room, what becomes
of them.

    owners        who may draw on a reservation
    wishes        what a pod says about the reservations it would use
    reserve_pod   the pod that stands for those to come
    promise       one reservation
    reading       what its object says
    intake        objects coming, changing and going
    rooms         room that was preempted, held for the pod it was made for
    preempting    those that make others go
    waiting       those that have a node but not yet the room
    promises      all of them, kept in step with objects and pods
    drawable      the ones pods of a class may draw on, by row
    status        what a reservation's status should say
    requirements  what pods ask of a provisioner
    virtual       one reservation it has yet to make
    virtuals      all of those

Capacity is counted in the ledger's holds; whether and when a status is written is the lifecycle
controller's business.
"""

from holdfast.scheduler.reservations.matched_reservations import MatchedReservations
from holdfast.scheduler.reservations.reservation_cache import ReservationCache
from holdfast.scheduler.reservations.reservation_info import ReservationInfo
from holdfast.scheduler.reservations.virtual_reservations import VirtualReservations

__all__ = ["MatchedReservations", "ReservationCache", "ReservationInfo", "VirtualReservations"]
