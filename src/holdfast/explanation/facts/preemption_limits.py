"""Why a pod does not preempt others: although their priority is lower, or because it is not."""

from collections.abc import Iterator, Sequence

from holdfast.api.names import DISABLE_PREEMPTIBLE, NO, PREEMPTABLE
from holdfast.api.plurals import plural
from holdfast.explanation.facts.admitted_pods import PRIORITY_CLASS
from holdfast.explanation.facts.capacity import shortages
from holdfast.explanation.facts.other_pods import siblings
from holdfast.explanation.facts.own_starts import evicting_start
from holdfast.explanation.phrases import job_text, pods_text
from holdfast.explanation.report import Holder
from holdfast.explanation.verdicts import NodeVerdicts, Subject, rejection_on
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.diagnosis import FITS
from holdfast.snapshot.cluster_changes import applied, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_NODES = 3
_CLASSES = 5
"""How many higher PriorityClasses are tried."""
CRITICAL = 2 * 10**9
"""Pods of this priority and above are the system's own."""


def preemption_limits(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, holders: list[Holder]
) -> Iterator[str]:
    """Facts about a pod that preempts nothing: an action that is not configured, pods that must not be
    preempted, reservations."""
    if pod.reservation is not None or pod.cls.pod.spec.preemption_policy == "Never":
        return
    cluster, short = snapshot.cluster, shortages(snapshot, pod)
    rows = [
        row
        for name, each in placing.rejections.items()
        if each.resolvable and (row := cluster.nodes.row(name)) is not None
    ]
    rows.sort(key=lambda row: (float(short[row]), cluster.nodes.name(row)))
    for row in rows[:_NODES]:
        there = cluster.ledger.pods.get(row, {}).values()
        lower = [
            each
            for each in there
            if each.reservation is None
            and each.cls.priority < pod.cls.priority
            and not each.cls.is_daemon
        ]
        lower.sort(key=lambda each: each.name)
        kept = [each for each in lower if each.cls.non_preemptible]
        if not (kept or (lower and not snapshot.scheduler.preempts)):
            continue
        if not _fits_without(snapshot, pod, row, lower):
            continue
        node = cluster.nodes.name(row)
        if not snapshot.scheduler.preempts:
            yield (
                "the action preempt is not configured: pods of lower priority are not preempted, as "
                f"{pods_text(lower)} on {node}"
            )
        else:
            by_reason: dict[str, list[PodRecord]] = {}
            for each in kept:
                by_reason.setdefault(_why_kept(snapshot, each), []).append(each)
            for reason, pods in by_reason.items():
                verb = plural(len(pods), "is", "are")
                yield f"{pods_text(pods)} on {node} {verb} not preempted: {reason}"
        return
    yield from _higher_class(snapshot, pod)
    if pod.cls.priority > 0 and any(each.kind == "Reservation" for each in holders):
        yield "a pod preempts no reservations, whatever its priority"


def budget_violations(snapshot: ClusterSnapshot, victims: Sequence[PodRecord]) -> Iterator[str]:
    """The disruption budgets that preempting these pods violates."""
    budgets = DisruptionBudgets(snapshot.cluster)
    violating, _ = budgets.split(list(victims))
    for budget in budgets.violated_by(violating):
        pods = pods_text([pod for pod in violating if budget.protects(pod)])
        yield f"{budget.text}, and protects {pods}: preemption prefers other pods, but may violate it"


def _why_kept(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """Why the pod is never a victim."""
    cls, job = pod.cls, snapshot.cluster.jobs.of(pod)
    if cls.labels.get(DISABLE_PREEMPTIBLE) == "true":
        return f"{DISABLE_PREEMPTIBLE} is true"
    is_own = NO in (cls.annotations.get(PREEMPTABLE), cls.labels.get(PREEMPTABLE))
    whose = "" if is_own or job is None else f" of {job_text(job)}"
    return f"{PREEMPTABLE}{whose} is false"


def _higher_class(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[str]:
    """The lowest PriorityClass with which the pod would preempt others. All pods of a workload have
    that of its template, and preempt none of each other."""
    own, subject = pod.cls.priority, Subject.of(pod)
    classes = sorted(
        (value, raw["metadata"]["name"])
        for raw in snapshot.all(PRIORITY_CLASS)
        if own < (value := int(raw.get("value") or 0)) < CRITICAL
        and raw.get("preemptionPolicy") != "Never"
    )
    alike = [subject, *siblings(snapshot, subject)] if classes else []
    for value, name in classes[:_CLASSES]:
        body = {"spec": {"priority": value, "priorityClassName": name}}
        raws = [each.raw(snapshot) for each in alike]
        with applied(snapshot, [patch(POD, raw, body) for raw in raws]):
            start = evicting_start(snapshot, subject)
        if start.nodes:
            with_class = f"with PriorityClass {name} ({value}), {start.text}"
            yield f"its priority {own} is too low to preempt other pods: {with_class}"
            return


def _fits_without(snapshot: ClusterSnapshot, pod: PodRecord, row: int, others: list[PodRecord]) -> bool:
    ledger = snapshot.cluster.ledger
    with ledger.transaction():
        for each in others:
            ledger.remove(each)
        return rejection_on(snapshot, pod, row) == FITS
