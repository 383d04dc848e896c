"""What a pending pod, or its gang, reclaims from over-allocated queues, and why it reclaims nothing.

The reclaim action is asked what it would do, with the pods that start before placed, as in a round.
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.names import VOLCANO_API
from holdfast.api.plurals import plural
from holdfast.explanation.facts.rehearsed_rounds import started_in_round
from holdfast.explanation.phrases import amounts_text, pods_text
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import GangGoal, Subject, profile_for
from holdfast.kube.object_client import Raw
from holdfast.scheduler.actions.reclaim import ReclaimPlan
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.plugins.disruption_budgets import DisruptionBudgets
from holdfast.snapshot.cluster_changes import applied, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot, shown

QUEUE = KINDS[VOLCANO_API, "Queue"]
_NODES = 3
_TRIES = 8
"""How often the action is asked again without pods that a disruption budget protects."""


class Reclaiming(NamedTuple):
    """What is known of reclaim for a pod that has no node."""

    text: str = ""
    """What it reclaims in the next round, as the end of a sentence; empty if it reclaims nothing."""
    details: tuple[str, ...] = ()


def reclaiming(snapshot: ClusterSnapshot, pod: PodRecord) -> Reclaiming:
    """What is reclaimed for the pod, or for its job, which does not start now."""
    if not _is_possible(snapshot, pod):
        return Reclaiming()
    plan, protected = _allowed_plan(snapshot, pod)
    if plan is None:
        return Reclaiming(details=tuple(_why_not(snapshot, pod)))
    what = plan_text(snapshot, plan)
    budgets = DisruptionBudgets(snapshot.cluster)
    refusals = [
        f"{budget.text}, and protects {pods_text(p for p in protected if budget.protects(p))}"
        for budget in budgets.violated_by(protected)
    ]
    if not snapshot.scheduler.reclaims:
        missing = f"the action reclaim is not configured: with it, it could reclaim {what}"
        return Reclaiming(details=(missing, *refusals))
    if any(victim in protected for victim in plan.victims):
        refused = [f"{each}: the eviction is refused, and tried again later" for each in refusals]
        return Reclaiming(details=(f"it would reclaim {what}", *refused))
    text = f"it can reclaim {what}, and will in the next round"
    return Reclaiming(text, tuple(f"{each}: others are evicted" for each in refusals))


def reclaim_plan(snapshot: ClusterSnapshot, pod: PodRecord) -> ReclaimPlan | None:
    """What the next round reclaims for the pod, or for its job, which does not start now."""
    if not snapshot.scheduler.reclaims or not _is_possible(snapshot, pod):
        return None
    plan, protected = _allowed_plan(snapshot, pod)
    return plan if plan and not any(victim in protected for victim in plan.victims) else None


def _is_possible(snapshot: ClusterSnapshot, pod: PodRecord) -> bool:
    """Whether there are queues to reclaim from."""
    queues = snapshot.cluster.jobs.queues
    queues.refresh()
    if len(queues.known) < 2 or pod.reservation is not None or queues.of(pod) not in queues.known:
        return False
    return any(record.allocated for record in queues)


def plan_text(snapshot: ClusterSnapshot, plan: ReclaimPlan) -> str:
    """`4 cpu from queue a (default/x) on n1`"""
    cluster = snapshot.cluster
    asked = {slot for member, _ in plan.places for slot in member.cls.amounts if slot != PODS}
    by_queue: dict[str, list[PodRecord]] = {}
    for victim in plan.victims:
        by_queue.setdefault(cluster.jobs.queues.of(victim), []).append(victim)
    found = []
    for queue, victims in sorted(by_queue.items()):
        amounts: Amounts = {}
        for victim in victims:
            for slot, amount in victim.cls.amounts.items():
                if slot in asked:
                    amounts[slot] = amounts.get(slot, 0) + amount
        found.append(f"{amounts_text(snapshot, amounts)} from queue {queue} ({pods_text(victims)})")
    nodes = sorted({cluster.nodes.name(victim.row) for victim in plan.victims})
    return f"{' and '.join(found)} on {few(nodes, _NODES)}"


def deserved_sizes(snapshot: ClusterSnapshot, pod: PodRecord) -> dict[str, tuple[int, int]]:
    """By resource, the request of the pod and what is left of its queue's deserved share, where it
    requests more: it reclaims only up to that."""
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    if not _is_possible(snapshot, pod):
        return {}
    with queues.shared_out(p for p in snapshot.scheduler.queue.waiting(with_jobs=True) if p.row < 0):
        record = queues.path(queues.of(pod))[0]
        return {
            slots.name(slot): (amount, left)
            for slot, amount in pod.cls.amounts.items()
            if slot != PODS and slot < len(record.share)
            for left in [int(record.share[slot]) - record.allocated.get(slot, 0)]
            if left < amount
        }


def kept_queues(snapshot: ClusterSnapshot) -> list[Raw]:
    """The queues of which nothing is reclaimed because reclaimable is false."""
    return [raw for raw in snapshot.all(QUEUE) if (raw.get("spec") or {}).get("reclaimable") is False]


# The action's answer


def _allowed_plan(
    snapshot: ClusterSnapshot, pod: PodRecord
) -> tuple[ReclaimPlan | None, list[PodRecord]]:
    """What is reclaimed for the pod or its job, without pods whose eviction a disruption budget refuses
    if there is a way; and the pods that are protected."""
    first: ReclaimPlan | None = None
    protected: list[PodRecord] = []
    refused = snapshot.cluster.not_evicted_before
    budgets = DisruptionBudgets(snapshot.cluster)
    try:
        for _ in range(_TRIES):
            plan = _plan(snapshot, pod)
            if plan is None:
                break
            first = first or plan
            violating, _ = budgets.split(plan.victims)
            if not violating:
                return plan, protected
            protected += violating
            refused |= {each.uid: snapshot.now for each in violating}
    finally:
        for each in protected:
            refused.pop(each.uid, None)
    return first, protected


def _plan(snapshot: ClusterSnapshot, pod: PodRecord) -> ReclaimPlan | None:
    jobs = snapshot.cluster.jobs
    job = jobs.of(pod)
    names = {each.name for each in jobs.partners(job)} if job is not None else set()
    if job is None and not _is_large_enough(snapshot, pod):
        return None
    found = _plans(snapshot, pod)
    return next((plan for plan in found if plan.leader is pod or plan.leader.job in names), None)


def _is_large_enough(snapshot: ClusterSnapshot, pod: PodRecord) -> bool:
    """Whether some node that is eligible but for its pods has what the pod requests, were it empty."""
    scheduler, nodes = snapshot.scheduler, snapshot.cluster.nodes
    profile = profile_for(scheduler, pod)
    column = scheduler.columns.column(profile, pod.cls)
    if column.rejected is not None:
        return False
    dry_run = DryRun(snapshot.cluster, column, pod, profile.pins(pod))
    rows = dry_run.resolvable() | column.fits
    for slot, asked in pod.cls.requests:
        rows = rows & (nodes.allocatable[slot, : nodes.size] >= asked)
    return bool(rows.any())


def _plans(snapshot: ClusterSnapshot, pod: PodRecord) -> list[ReclaimPlan]:
    job = snapshot.cluster.jobs.of(pod)
    with started_in_round(snapshot, Subject.of(pod) if job is None else GangGoal(job.name)):
        return snapshot.scheduler.reclaim_plans()


# Why nothing is reclaimed


def _why_not(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[str]:
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    kept = kept_queues(snapshot)
    changes = [patch(QUEUE, raw, {"spec": {"reclaimable": True}}) for raw in kept]
    with applied(snapshot, changes):
        plan = _plan(snapshot, pod) if kept else None
        if plan is not None:
            whose = {queues.of(each) for each in plan.victims}
            names = few(sorted(whose & {raw["metadata"]["name"] for raw in kept}))
            yield (
                f"nothing is reclaimed from queue {names}, of which reclaimable is false: otherwise it "
                f"could reclaim {plan_text(snapshot, plan)}"
            )
            return
    raw = snapshot.find(POD, pod.name, pod.namespace)
    if pod.cls.pod.spec.preemption_policy == "Never" and raw is not None:
        with applied(snapshot, [patch(POD, raw, {"spec": {"preemptionPolicy": None}})]):
            again = snapshot.cluster.pod(pod.namespace, pod.name)
            plan = _plan(snapshot, again) if again is not None else None
            if plan is not None:
                what = plan_text(snapshot, plan)
                yield f"its preemptionPolicy is Never: otherwise it could reclaim {what}"
                return
    with queues.shared_out(p for p in snapshot.scheduler.queue.waiting(with_jobs=True) if p.row < 0):
        (record, *_), own = queues.path(queues.of(pod)), dict(pod.cls.amounts)
        for slot, amount in sorted(own.items()):
            has, share = record.allocated.get(slot, 0), int(record.share[slot])
            above = [
                each.name
                for each in queues
                if each.allocated.get(slot, 0) > each.share[slot] and each is not record
            ]
            if slot != PODS and has + amount > share and above:
                name = slots.name(slot)
                yield (
                    f"queue {record.name} deserves {shown(name, share)} {name} and uses "
                    f"{shown(name, has)}: it reclaims nothing for a request of {shown(name, amount)}"
                )
                return
    if not snapshot.scheduler.reclaims:
        return
    first = [plan.leader for plan in _plans(snapshot, pod) if plan.queue == queues.of(pod)]
    if first:
        which = f"{pods_text(first)} of its queue {plural(len(first), 'is', 'are')} tried before it"
        yield f"{which} and {plural(len(first), 'reclaims', 'reclaim')} what can be reclaimed"
