"""ReservationPreemption: evicts reservations of lower priority so that a reservation fits.

Only a reservation with the label `can-preempt: "true"` preempts, and only reservations of strictly
lower priority, never pods that are allocated from none. Victims are chosen as in DefaultPreemption: as
many as possible are reprieved, the most important first, and the node is chosen by its victims. The
reservation is placed there at once, and waits for its victims to be gone.

Reservations of one gang preempt together: for all of them, or not at all.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import CAN_PREEMPT
from holdfast.scheduler.cluster.decisions import Decision, Emit
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationInfo
from holdfast.scheduler.framework.config import ReservationPreemptionArgs
from holdfast.scheduler.framework.diagnosis import NodeRejection, verdict
from holdfast.scheduler.framework.dry_run import release_reservation
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    FINE,
    ClusterPlugin,
    Nomination,
    ObjectWarning,
    Outcome,
    ReservePlacement,
    Trial,
)
from holdfast.scheduler.jobs import Jobs
from holdfast.scheduler.plugins.default_preemption import NO_VICTIMS, NOT_HELPFUL
from holdfast.scheduler.plugins.preemption_candidates import Found, Tried, candidate, importance
from holdfast.scheduler.reservations.reservation_victims import INCOMPLETE_GANG, may_preempt


def members_of(jobs: Jobs, reservation: ReservationInfo) -> tuple[list[PodRecord], str]:
    """The pending reserve pods of the reservation's gang, the most important first; and an error if the
    gang is incomplete. It is complete with as many members as its total or its minimum, whichever is
    higher; reservations that start later are not there yet."""
    assert reservation.pod is not None
    job = jobs.of(reservation.pod)
    if job is None:
        return [reservation.pod], ""
    name = job.name.name
    if not job.is_known:
        return [], f"the number of reservations of gang {name} is not known"
    wanted = max(job.min_member, job.declared.total if job.declared is not None else 0)
    planned = (m.reservation is not None and m.reservation.is_planned for m in job.members.values())
    there = len(job.members) + len(job.done) - sum(planned)
    if there < wanted:
        return [], f"gang {name} has {there} of {wanted} reservations"
    waiting = [member for member in job.waiting() if member.reservation is not None]
    waiting.sort(key=lambda pod: (-pod.cls.priority, pod.started or 0.0, pod.name))
    return waiting, ""


_PATIENCE = 60.0
"""How long a reservation waits in Permit for victims that no pod uses, in seconds."""
_SHARE = 10
_LEAST = 100
"""How many candidates are compared: `_SHARE` percent of the nodes, and at least `_LEAST`."""

Choice = tuple[int, tuple[PodRecord, ...]]


class ReservationPreemption(ClusterPlugin):
    name = "ReservationPreemption"
    wakes_on = Change.NONE

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        given = args if isinstance(args, ReservationPreemptionArgs) else ReservationPreemptionArgs()
        self._soft = given.eviction == "Soft"
        self._budgets = DisruptionBudgets(self.cluster)
        self._known: dict[int, Tried] = {}
        self._patient: dict[str, float] = {}
        """Until when each reservation waits in Permit for its victims, by uid."""
        self.cluster.classes.on_dropped.append(self._forget)

    def _forget(self, cls: PodClass) -> None:
        self._known.pop(cls.id, None)

    def can_preempt_for(self, cls: PodClass) -> bool:
        if cls.owner_spec_id < 0 or cls.labels.get(CAN_PREEMPT) != "true":
            return False
        return bool(self._less_important(cls).any())

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        reservation = pod.reservation
        if (
            reservation is None
            or reservation.preemptor
            or reservation.being_evicted
            or not may_preempt(reservation.object)
        ):
            return Nomination()
        members, missing = members_of(self.cluster.jobs, reservation)
        warning = ObjectWarning(reservation.ref, INCOMPLETE_GANG, missing)
        if missing:
            return Nomination(message=f"preemption: {missing}", warnings=(warning,))
        found = self._for_one(pod, trial) if len(members) == 1 else self._for_gang(members, trial)
        return found._replace(warnings=(warning,))

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        """Waits for victims that no pod uses: they are gone in a moment, and then the reservation is
        written as Available at once."""
        reservation, reservations = pod.reservation, self.cluster.reservations
        if reservation is None or not reservation.victims or self._soft or reservation.pre_allocation:
            return FINE
        if reservations.has_capacity(reservation):
            reservations.make_available(reservation)
            return FINE
        if any(reservations.allocated_pods(victim) for victim in reservations.awaits(reservation)):
            return FINE
        if pod.uid not in self._patient:
            self._patient = {uid: t for uid, t in self._patient.items() if uid in reservations.known}
            self._patient[pod.uid] = self.cluster.now + _PATIENCE
        if self.cluster.now < self._patient[pod.uid]:
            return Outcome(wait=_PATIENCE)
        del self._patient[pod.uid]
        return FINE  # it is written, and waits on its node

    # One reservation

    def _for_one(self, pod: PodRecord, trial: Trial) -> Nomination:
        tried = Tried(self.cluster)
        if trial.is_local:
            tried = self._known.setdefault(pod.cls.id, tried)
            tried.catch_up((trial.version, self._budgets.version()))
        found = self._choose(pod, trial, tried)
        if isinstance(found, str):
            return Nomination("", found)
        row, victims = found
        clears = frozenset(each.uid for each in (*victims, *self._evicted_on(row)))
        return Nomination(
            decisions=self._preempting_event(pod, row, victims),
            reserve_pods=(ReservePlacement(pod, row, clears),),
        )

    def _choose(self, pod: PodRecord, trial: Trial, tried: Tried) -> Choice | str:
        """The best candidate row and its victims; or the message if there is no candidate."""
        resolvable = trial.resolvable()
        promising = resolvable & self._less_important(pod.cls)
        wanted = max(int(np.count_nonzero(resolvable)) * _SHARE // 100, _LEAST)
        rows = tried.first(promising, wanted, lambda row: self._try(pod, row, trial))
        tried.up_to_date()
        return tried.best(rows) if len(rows) else self._why_not(resolvable, promising, tried)

    def _try(self, pod: PodRecord, row: int, trial: Trial) -> Found:
        there = [entry.pod for entry in self.cluster.ledger.reservations.on(row)]
        lower = [each for each in there if self._is_lower(each, pod) and not self._is_awaited(each)]
        going = [each for each in self._evicted_on(row) if each not in lower]
        if not lower:
            return (NO_VICTIMS,)
        breaking: list[PodRecord] = []

        def spared_first(reserving: list[PodRecord]) -> list[PodRecord]:
            reserving.sort(key=self._importance)
            breaking.extend(self._breaking(reserving))
            return breaking + [each for each in reserving if each not in breaking]

        victims = trial.reservations_to_go(row, lower, going, spared_first)
        if isinstance(victims, tuple):
            return victims
        victims.sort(key=self._importance)
        violations = sum(victim in breaking for victim in victims)
        return candidate(victims, violations, sum(map(self._users, victims)))

    def _importance(self, reserving: PodRecord) -> tuple[float | str, ...]:
        """Sorts the most important first; of one priority, those whose preemption deletes most pods."""
        priority, *rest = importance(reserving)
        return priority, -self._users(reserving), *rest

    def _users(self, reserving: PodRecord) -> int:
        """The number of pods that are allocated from the reservation."""
        reservation = reserving.reservation
        return len(self.cluster.reservations.allocated_pods(reservation)) if reservation else 0

    def _breaking(self, reserving: list[PodRecord]) -> list[PodRecord]:
        """The reservations whose pods would violate a PodDisruptionBudget."""
        owner = {
            pod.uid: each
            for each in reserving
            if each.reservation is not None
            for pod in self.cluster.reservations.allocated_pods(each.reservation)
        }
        pods = [self.cluster.pods[uid] for uid in owner if uid in self.cluster.pods]
        violating, _ = self._budgets.split(pods)
        those = {owner[pod.uid].uid for pod in violating}
        return [each for each in reserving if each.uid in those]

    def _is_evicted(self, reserving: PodRecord) -> bool:
        reservation = reserving.reservation
        return reservation is not None and (reservation.being_evicted or reservation.terminating)

    def _is_awaited(self, reserving: PodRecord) -> bool:
        """Whether the reservation is being evicted and another one waits for its capacity. One that is
        evicted softly may outlast the reservation it was evicted for."""
        reservation = reserving.reservation
        if reservation is None:
            return False
        return reservation.terminating or reservation.uid in self.cluster.reservations.preempted

    def _is_lower(self, reserving: PodRecord, pod: PodRecord) -> bool:
        """Whether the reservation may be a victim. Preemption holds are not, nor are reservations with
        an allocated pod that is not preemptible, nor those that are used up: they are about to end, and
        their pod is one like all others then."""
        reservation = reserving.reservation
        if (
            reservation is None
            or reserving.phase is not Phase.ASSIGNED
            or reservation.preemptor
            or reservation.virtual
            or reserving.cls.priority >= pod.cls.priority
            or reserving.cls.non_preemptible
        ):
            return False
        allocated = self.cluster.reservations.allocated_pods(reservation)
        is_used_up = reservation.once and bool(allocated)
        return not is_used_up and not any(owner.cls.non_preemptible for owner in allocated)

    def _less_important(self, cls: PodClass) -> NDArray[np.bool_]:
        """The rows with a reservation of lower priority than the class."""
        nodes = self.cluster.nodes
        rows: NDArray[np.bool_] = nodes.lowest_held[: nodes.size] < cls.priority
        return rows & nodes.alive[: nodes.size]

    def _why_not(
        self, resolvable: NDArray[np.bool_], promising: NDArray[np.bool_], tried: Tried
    ) -> str:
        nodes, helped = self.cluster.nodes.count, int(np.count_nonzero(resolvable))
        reasons = tried.reasons(promising)
        reasons[NO_VICTIMS,] += helped - int(np.count_nonzero(promising))
        reasons[NOT_HELPFUL,] = nodes - helped
        rejections = {NodeRejection(self.name, texts, False): count for texts, count in reasons.items()}
        return f"preemption: {verdict(rejections).message(nodes)}"

    # A gang of reservations

    def _for_gang(self, members: list[PodRecord], trial: Trial) -> Nomination:
        """A dry run for all pending members, each with the members before it placed."""
        found: list[tuple[PodRecord, Choice]] = []
        cleared: set[int] = set()
        ledger = self.cluster.ledger
        with ledger.transaction():
            for member in members:
                row, its = trial.of(member)
                choice: Choice | str = (row, ())
                if row < 0:
                    choice = self._choose_for(member, its)
                if isinstance(choice, str):
                    placed = f"only {len(found)} of {len(members)} members of the gang would fit"
                    return Nomination("", f"preemption: {placed}.")
                if row < 0:
                    cleared.add(choice[0])
                for victim in choice[1]:
                    release_reservation(self.cluster, victim)
                assert member.reservation is not None
                ledger.reserve(member, choice[0], member.reservation.amounts)
                found.append((member, choice))
        gone: dict[int, set[str]] = {}
        for _, (row, victims) in found:
            gone.setdefault(row, set()).update(victim.uid for victim in victims)
        for row in cleared:
            gone[row].update(each.uid for each in self._evicted_on(row))
        decisions: list[Decision] = []
        for member, (row, victims) in found:
            decisions += self._preempting_event(member, row, victims)
        placements = tuple(
            ReservePlacement(member, row, frozenset(gone[row])) for member, (row, _) in found
        )
        return Nomination(decisions=tuple(decisions), reserve_pods=placements)

    def _choose_for(self, member: PodRecord, trial: Trial) -> Choice | str:
        reservation = member.reservation
        if reservation is None or not may_preempt(reservation.object):
            return NO_VICTIMS
        return self._choose(member, trial, Tried(self.cluster))

    # Results

    def _evicted_on(self, row: int) -> list[PodRecord]:
        """The reserve pods on the row that are being evicted, which the dry run counts as gone."""
        there = (entry.pod for entry in self.cluster.ledger.reservations.on(row))
        return [each for each in there if self._is_evicted(each)]

    def _preempting_event(
        self, pod: PodRecord, row: int, victims: tuple[PodRecord, ...]
    ) -> tuple[Decision, ...]:
        """The Preempting event of a reservation."""
        if not victims:
            return ()
        names = ", ".join(victim.name for victim in victims)
        text = f"Preempting {names} on node {self.cluster.nodes.name(row)}"
        broken = len(self._breaking(list(victims)))
        if broken:
            text += f", violating PodDisruptionBudgets of pods in {broken} of them"
        return (Emit(pod.ref, "Normal", "Preempting", text, "Preempting"),)
