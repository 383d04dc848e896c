"""DefaultPreemption: evicts pods of lower priority so that a pod fits.

A node is a candidate if the pod fits when all pods of lower priority there are gone. As many of them as
possible are then reprieved, pods that would violate a PodDisruptionBudget first, and the most important
before others. The node is chosen by its victims, by kube-scheduler's criteria.

The capacity of the victims is held for the pod by a reservation (a preemption hold), so that no other
pod gets it. There is none where the pod will be allocated from a reservation it owns already.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.decisions import CreateReservation, Decision, Nominate, preemption
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.config import DefaultPreemptionArgs
from holdfast.scheduler.framework.config.plugin_sets import PREEMPTION
from holdfast.scheduler.framework.diagnosis import NodeRejection, verdict
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import ClusterPlugin, Nomination, Trial
from holdfast.scheduler.plugins.preemption_candidates import Found, Texts, Tried, candidate, importance
from holdfast.scheduler.reservations.hold_objects import hold_template, preemption_hold, with_claims

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
HOLD_PENDING = "not eligible due to a preemption hold on the nominated node that is not bound yet."
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def _found(node: str, victims: int) -> str:
    return f"found a potential placement for pod on node {node}, preempting {victims} victims"


class DefaultPreemption(ClusterPlugin):
    name = PREEMPTION
    wakes_on = Change.NONE

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        self._args = args if isinstance(args, DefaultPreemptionArgs) else DefaultPreemptionArgs()
        self._budgets = DisruptionBudgets(self.cluster)
        self._known: dict[int, Tried] = {}
        self._templates: dict[int, dict[str, Any]] = {}
        self.cluster.classes.on_dropped.append(self._forget)

    def _forget(self, cls: PodClass) -> None:
        self._known.pop(cls.id, None)
        self._templates.pop(cls.id, None)

    def can_preempt_for(self, cls: PodClass) -> bool:
        if cls.owner_spec_id >= 0:
            return False
        if cls.pod.spec.preemption_policy == "Never":
            return False
        nodes = self.cluster.nodes
        return bool((nodes.alive & (nodes.lowest < cls.priority)).any())

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        if pod.reservation is not None:
            return Nomination()  # reserve pods do not preempt pods
        if pod.cls.pod.spec.preemption_policy == "Never":
            return Nomination(message=f"preemption: {NEVER}")
        if pod.cls.claims and self._is_releasing_devices(pod):
            return Nomination(message=f"preemption: {TERMINATING}")
        resolvable = trial.resolvable()
        if self._is_under_way(pod, resolvable):
            return Nomination(message=f"preemption: {TERMINATING}")
        if self._is_hold_pending(pod):
            return Nomination(message=f"preemption: {HOLD_PENDING}")
        nodes = self.cluster.nodes
        promising = resolvable & (nodes.lowest[: nodes.size] < pod.cls.priority)
        tried = self._tried(pod, trial)
        wanted = self._candidates_wanted(int(np.count_nonzero(resolvable)))
        own = nodes.row(pod.nominated) if pod.nominated else None
        if own is not None:
            tried.forget(own)
        allowed = trial.allowed()

        def attempt(row: int) -> Found:
            return self._try(pod, row, trial)

        rows = tried.first(promising if allowed is None else promising & allowed, wanted, attempt)
        message = ""
        if not len(rows):
            reasons = Counter[Texts]()
            if allowed is not None:
                reasons = trial.ruled_out(tried.first(promising & ~allowed, nodes.size, attempt))
            message = self._why_not(resolvable, promising, reasons + tried.reasons(promising))
        tried.up_to_date()
        tried.forget(trial.passing)
        if own is not None:
            tried.forget(own)  # for other pods of the class this pod's nomination counts there
        if message:
            return Nomination("", message)
        chosen, victims = tried.best(rows)
        node = nodes.name(chosen)
        decisions = self._decisions(pod, node, victims)
        if victims and self._is_to_be_held(pod, chosen, trial.reservation_uid(chosen, victims)):
            decisions.append(self._held(pod, node, len(victims)))
        return Nomination(node, f"preemption: {_found(node, len(victims))}", tuple(decisions))

    def _is_to_be_held(self, pod: PodRecord, row: int, reservation_uid: str | None) -> bool:
        """Whether a preemption hold is needed: not if the pod will be allocated from a reservation, or
        has a starvation hold or a preemption hold on the row."""
        reservations = self.cluster.reservations
        if self.cluster.reservations.starvation_holds.is_held_on(pod, row):
            return False
        if not self.cluster.claims.can_be_held(pod):
            return False  # its nomination keeps the devices
        if (
            reservation_uid is None
            or reservation_uid
            or not (self._args.hold_room and reservations.are_kept)
        ):
            return False
        hold = reservations.preemption_holds.of(pod, row)
        return hold is None or hold.released

    def _held(self, pod: PodRecord, node: str, victims: int) -> CreateReservation:
        template = self._templates.get(pod.cls.id)
        if template is None:
            template = self._templates[pod.cls.id] = hold_template(pod.cls)
        if pod.cls.claims:
            template = with_claims(template, self.cluster.claims.pods.keys(pod.uid))
        reservations = self.cluster.reservations

        def taken(name: str) -> bool:
            known = reservations.get(name)
            return known is not None and known.preemptor != pod.uid

        return CreateReservation(preemption_hold(pod, template, node, victims, taken))

    def _tried(self, pod: PodRecord, trial: Trial) -> Tried:
        """The results known from pods of the same class, without rows that changed since."""
        if not trial.is_separable:
            return Tried(self.cluster)
        tried = self._known.get(pod.cls.id)
        if tried is None:
            tried = self._known[pod.cls.id] = Tried(self.cluster)
        queues = self.cluster.jobs.queues
        place = (queues.of(pod), self.cluster.epoch.queues) if queues else None
        tried.catch_up((trial.version, self._budgets.version(), place))
        return tried

    def _candidates_wanted(self, nodes: int) -> int:
        share = nodes * self._args.min_candidate_nodes_percentage // 100
        return max(share, self._args.min_candidate_nodes_absolute, 1)

    def _is_under_way(self, pod: PodRecord, resolvable: Any) -> bool:
        """Whether victims on the pod's nominated node are still terminating."""
        row = self.cluster.nodes.row(pod.nominated) if pod.nominated else None
        if row is None or not resolvable[row]:
            return False
        there = self.cluster.ledger.pods.get(row, {}).values()
        return any(
            (p.being_preempted and p.cls.priority < pod.cls.priority) or self._may_be_reclaimed(p, pod)
            for p in there
        )

    def _is_hold_pending(self, pod: PodRecord) -> bool:
        """Whether the pod's hold on its nominated node has the capacity of victims that are gone, and
        is being bound or waits in Permit: the pod has it as soon as the hold is bound."""
        reservations = self.cluster.reservations
        holds = reservations.preemption_holds
        row = self.cluster.nodes.row(pod.nominated) if pod.nominated and pod.uid in holds else None
        hold = holds.of(pod, row) if row is not None else None
        return (
            hold is not None
            and hold.pod is not None
            and hold.waiting
            and not hold.released
            and hold.pod.phase is Phase.ASSUMED
            and reservations.has_capacity(hold)
        )

    def _is_releasing_devices(self, pod: PodRecord) -> bool:
        """Whether victims on the pod's nominated node are gone, but their devices are not free yet, or
        its hold there is about to have them."""
        row = self.cluster.nodes.row(pod.nominated) if pod.nominated else None
        if row is None:
            return False
        claims, hold = self.cluster.claims, self.cluster.reservations.preemption_holds.of(pod, row)
        its = hold.pod if hold is not None and hold.waiting else None
        return (its is not None and claims.is_getting_devices(its)) or claims.is_releasing(row)

    def _may_be_reclaimed(self, victim: PodRecord, pod: PodRecord) -> bool:
        """Whether a terminating pod may be a victim of reclaim for the queue of `pod`; an evicted pod
        does not name the one it was evicted for."""
        queues = self.cluster.jobs.queues
        is_going = victim.being_preempted or victim.cls.terminating
        return is_going and bool(queues and queues.of(pod)) and not queues.may_preempt(pod, victim)

    def _try(self, pod: PodRecord, row: int, trial: Trial) -> Found:
        there, priority = self.cluster.ledger.pods.get(row, {}).values(), pod.cls.priority
        violating: list[PodRecord] = []

        def spared_first(pods: list[PodRecord]) -> list[PodRecord]:
            nonlocal violating
            pods.sort(key=importance)
            violating, others = self._budgets.split(pods)
            return violating + others

        less = [
            p
            for p in there
            if p.cls.priority < priority
            and not p.cls.non_preemptible
            and p.phase is not Phase.PENDING  # placed by a dry run
        ]
        if self.cluster.jobs.queues:
            less = [p for p in less if self.cluster.jobs.queues.may_preempt(pod, p)]
        victims = trial.victims(row, less, spared_first)
        if isinstance(victims, tuple):
            return victims
        if violating:
            victims.sort(key=importance)
        return candidate(victims, sum(victim in violating for victim in victims))

    def _why_not(
        self, resolvable: NDArray[np.bool_], promising: NDArray[np.bool_], reasons: Counter[Texts]
    ) -> str:
        nodes, helped = self.cluster.nodes.count, int(np.count_nonzero(resolvable))
        reasons[NO_VICTIMS,] = helped - int(np.count_nonzero(promising))
        reasons[NOT_HELPFUL,] = nodes - helped
        rejections = {NodeRejection(self.name, texts, False): count for texts, count in reasons.items()}
        return f"preemption: {verdict(rejections).message(nodes)}"

    def _is_held(self, pod: PodRecord, node: str) -> bool:
        """Whether the pod has a preemption hold on the node."""
        row = self.cluster.nodes.row(node)
        return row is not None and self.cluster.reservations.preemption_holds.of(pod, row) is not None

    def _decisions(self, pod: PodRecord, node: str, victims: tuple[PodRecord, ...]) -> list[Decision]:
        staying = [
            victim
            for victim in (*victims, *self.cluster.jobs.victims.companions(victims))
            if not (victim.cls.terminating or victim.being_preempted)
        ]
        # If all victims are terminating already, the nominations they were preempted for stay.
        nominated_pods = list(self.cluster.nominator.get(node, {}).values()) if staying else ()
        decisions: list[Decision] = [
            Nominate(nominated.ref, "")
            for nominated in nominated_pods
            if not self.cluster.jobs.queues.defers_to(pod, nominated)
            and not self._is_held(nominated, node)
        ]
        for victim in staying:
            decisions += preemption(
                victim.ref, pod.ref, node, pod.scheduler, victim.job_name, victim.reservation_uid
            )
        return decisions
