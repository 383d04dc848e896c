"""What a pending pod, or its gang, reclaims from over-allocated queues, and why it reclaims nothing.

The rounds of `played_rounds` show what is reclaimed.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.names import VOLCANO_API
from holdfast.api.plurals import plural
from holdfast.explanation.facts.played_rounds import RECLAIMED, Eviction, Play, played
from holdfast.explanation.phrases import amounts_text, job_text, pods_text
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import GangGoal, Goal, Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_changes import applied, delete, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot, shown

QUEUE = KINDS[VOLCANO_API, "Queue"]
_BUDGET = KINDS["policy/v1", "PodDisruptionBudget"]
_NODES = 3


class Reclaiming(NamedTuple):
    """What is known of reclaim for a pod that has no node."""

    text: str = ""
    """What it reclaims in the next round, as the end of a sentence; empty if it reclaims nothing."""
    details: tuple[str, ...] = ()
    protected: tuple[PodRecord, ...] = ()
    """The pods that it would reclaim, if disruption budgets did not protect them."""


def reclaiming(snapshot: ClusterSnapshot, pod: PodRecord) -> Reclaiming:
    """What is reclaimed for the pod, or for its job, which does not start now."""
    if not _is_possible(snapshot, pod):
        return Reclaiming()
    is_configured = snapshot.scheduler.reclaims
    play = played(snapshot, _goal(snapshot, pod), reclaims=True)
    if play.own_round != 1 and (play.nodes or play.own_round):
        return Reclaiming()  # once others have evicted
    if not play.victims(RECLAIMED):
        return _forbidden(snapshot, pod) or Reclaiming(details=tuple(_why_not(snapshot, pod, play)))
    what = reclaimed_text(snapshot, play.own)
    if not is_configured:
        missing = f"the action reclaim is not configured: with it, it could reclaim {what}"
        return Reclaiming(details=(missing,))
    text = f"it can reclaim {what}, and will in the next round"
    if not play.nodes:
        text += ", but does not start then, since others take that first"
    return Reclaiming(text)


def _forbidden(snapshot: ClusterSnapshot, pod: PodRecord) -> Reclaiming | None:
    """What would be reclaimed if no disruption budget forbade it; None if nothing would."""
    budgets = [raw["metadata"] for raw in snapshot.all(_BUDGET)]
    if not budgets:
        return None
    changes = [delete(_BUDGET, each["name"], each.get("namespace", "")) for each in budgets]
    with applied(snapshot, changes):
        play = played(snapshot, _goal(snapshot, pod), reclaims=True)
    victims = play.victims(RECLAIMED)
    if not victims or not play.nodes:
        return None
    details = [f"it would reclaim {reclaimed_text(snapshot, play.own)}"]
    for budget in DisruptionBudgets(snapshot.cluster).forbidding(victims):
        names = pods_text(each for each in victims if budget.protects(each))
        details.append(f"{budget.text}, and protects {names}: it reclaims nothing or all it needs")
    return Reclaiming("", tuple(details), tuple(victims))


def _goal(snapshot: ClusterSnapshot, pod: PodRecord) -> Goal:
    job = snapshot.cluster.jobs.of(pod)
    return Subject.of(pod) if job is None else GangGoal(job.name)


def _is_possible(snapshot: ClusterSnapshot, pod: PodRecord) -> bool:
    """Whether there are queues to reclaim from."""
    queues = snapshot.cluster.jobs.queues
    queues.refresh()
    if len(queues.known) < 2 or pod.reservation is not None or queues.of(pod) not in queues.known:
        return False
    return any(record.allocated for record in queues)


def reclaimed_text(snapshot: ClusterSnapshot, evictions: Iterable[Eviction]) -> str:
    """`4 cpu from queue a (default/x) on n1`"""
    cluster, asked = snapshot.cluster, set[int]()
    by_queue: dict[str, list[PodRecord]] = {}
    for each in evictions:
        if each.verb == RECLAIMED:
            job = cluster.jobs.of(each.pod)
            members = [each.pod] if job is None else job.waiting()
            asked |= {slot for pod in members for slot in pod.cls.amounts if slot != PODS}
            for victim in each.victims:
                by_queue.setdefault(cluster.jobs.queues.of(victim), []).append(victim)
    found = []
    for queue, victims in sorted(by_queue.items()):
        amounts: Amounts = {}
        for victim in victims:
            for slot, amount in victim.cls.amounts.items():
                if slot in asked:
                    amounts[slot] = amounts.get(slot, 0) + amount
        found.append(f"{amounts_text(snapshot, amounts)} from queue {queue} ({pods_text(victims)})")
    rows = {victim.row for victims in by_queue.values() for victim in victims if victim.row >= 0}
    nodes = sorted(map(cluster.nodes.name, rows))
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


# Why nothing is reclaimed


def not_for_further_members(snapshot: ClusterSnapshot, job: Job, pod: PodRecord) -> list[str]:
    """That nothing is reclaimed for a member beyond those that its job needs, where its queue has less
    than it deserves and others have more."""
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    is_never = pod.cls.pod.spec.preemption_policy == "Never"
    if not snapshot.scheduler.reclaims or is_never or not _is_possible(snapshot, pod):
        return []
    asked = {slot: amount for slot, amount in pod.cls.amounts.items() if slot != PODS and amount}
    with queues.shared_out(p for p in snapshot.scheduler.queue.waiting(with_jobs=True) if p.row < 0):
        path = queues.path(queues.of(pod))
        if any(
            record.allocated.get(slot, 0) + amount > record.share[slot]
            for record in path
            for slot, amount in asked.items()
            if slot < len(record.share)
        ):
            return []
        above = {
            (each.name, slots.name(slot))
            for slot in asked
            for each in queues
            if each not in path
            and each.reclaimable
            and slot < len(each.share)
            and each.allocated.get(slot, 0) > each.share[slot]
        }
    if not above:
        return []
    names, resources = (sorted(set(each)) for each in zip(*above, strict=True))
    have = plural(len(names), "has", "have")
    return [
        f"nothing is reclaimed for it from queue {few(names)}, which {have} more {few(resources)} than "
        f"deserved: {job_text(job)} has the members that it needs ({job.min_member}), and for further "
        "ones nothing is reclaimed"
    ]


def _why_not(snapshot: ClusterSnapshot, pod: PodRecord, unchanged: Play) -> Iterator[str]:
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    kept = kept_queues(snapshot)
    changes = [patch(QUEUE, raw, {"spec": {"reclaimable": True}}) for raw in kept]
    with applied(snapshot, changes):
        play = played(snapshot, _goal(snapshot, pod), reclaims=True) if kept else Play()
        if play.nodes and (victims := play.victims(RECLAIMED)):
            whose = {queues.of(each) for each in victims}
            names = few(sorted(whose & {raw["metadata"]["name"] for raw in kept}))
            yield (
                f"nothing is reclaimed from queue {names}, of which reclaimable is false: otherwise it "
                f"could reclaim {reclaimed_text(snapshot, play.own)}"
            )
            return
    raw = snapshot.find(POD, pod.name, pod.namespace)
    if pod.cls.pod.spec.preemption_policy == "Never" and raw is not None:
        with applied(snapshot, [patch(POD, raw, {"spec": {"preemptionPolicy": None}})]):
            play = played(snapshot, _goal(snapshot, pod), reclaims=True)
            if play.nodes and play.victims(RECLAIMED):
                what = reclaimed_text(snapshot, play.own)
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
    first = [
        each.pod
        for each in unchanged.first
        if each.verb == RECLAIMED and queues.of(each.pod) == queues.of(pod)
    ]
    if first:
        which = f"{pods_text(first)} of its queue {plural(len(first), 'is', 'are')} tried before it"
        yield f"{which} and {plural(len(first), 'reclaims', 'reclaim')} what can be reclaimed"
