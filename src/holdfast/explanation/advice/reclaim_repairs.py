"""Changes with which a pod or gang reclaims capacity from other queues: queues that may be reclaimed
from, disruption budgets that allow it, and requests within the share that its own queue deserves."""

from collections.abc import Iterable

from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.eviction_budgets import wider_budget
from holdfast.explanation.advice.largest_requests import improve_size
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.facts.reclaimed_capacity import QUEUE, deserved_sizes, kept_queues
from holdfast.explanation.repairs.repair import repair
from holdfast.explanation.verdicts import Subject
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import patch

_QUEUES = 4


def consider_reclaim(advisor: Advisor, pod: PodRecord, protected: Iterable[PodRecord] = ()) -> None:
    """Proposes them for a pod that reclaims nothing, since budgets protect some pods or for other
    reasons."""
    snapshot, queues = advisor.snapshot, advisor.snapshot.cluster.jobs.queues
    if not snapshot.scheduler.reclaims or queues.of(pod) not in queues.known:
        return
    for raw in kept_queues(snapshot)[:_QUEUES]:
        change = patch(QUEUE, raw, {"spec": {"reclaimable": True}})
        text = f"set reclaimable: true in queue {raw['metadata']['name']}"
        advisor.propose(repair(text, "SetReclaimable", [change]))
    victims = list(protected)
    for budget in DisruptionBudgets(snapshot.cluster).forbidding(victims):
        evictions = sum(map(budget.protects, victims))
        any(map(advisor.propose, wider_budget(snapshot, budget, evictions)))
    smaller = resize(snapshot, Subject.of(pod), deserved_sizes(snapshot, pod))
    if smaller is not None and advisor.propose_once(("Resize",), smaller):
        improve_size(advisor)
