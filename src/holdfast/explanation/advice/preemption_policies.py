"""Pods that preempt nothing because their preemptionPolicy is Never."""

from collections.abc import Iterator

from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.admitted_pods import PRIORITY_CLASS
from holdfast.explanation.facts.own_starts import evicting_start
from holdfast.explanation.facts.preemption_limits import budget_violations
from holdfast.explanation.repairs.repair import DELETE_RESERVATION, Repair, repair, spec_changes
from holdfast.explanation.report import ALLOW_PREEMPTION
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ObjectChange, applied, create
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_NEVER, _LOWER = "Never", "PreemptLowerPriority"


def consider_preempting(advisor: Advisor, pod: PodRecord) -> list[str]:
    """Proposes that the pod, or the members of its gang, may preempt: what they then end is of lower
    priority. Returns facts about disruption budgets that this would violate."""
    snapshot = advisor.snapshot
    for each in _preempting(snapshot, pod) if advisor.subject.info is POD else ():
        if advisor.propose(each):
            if not any(ALLOW_PREEMPTION in made.change["actions"] for made in advisor.advice):
                return []
            with applied(snapshot, each.change.objects):
                victims = evicting_start(snapshot, advisor.goal).victims
                return list(budget_violations(snapshot, victims))
    return []


def _preempting(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[Repair]:
    """The pods with another preemption policy; with another PriorityClass, if they have that of theirs:
    one of the same priority, or the next lower one, or a new one."""
    job = snapshot.cluster.jobs.of(pod)
    members = job.waiting() if job is not None and not job.is_ready else [pod]
    unwilling = {each.cls.id: each for each in members if _is_unwilling(each)}
    names = {_class_name(snapshot, each) for each in unwilling.values()}
    if not unwilling or len(names) != 1:
        return
    (name,) = names
    own = snapshot.find(PRIORITY_CLASS, name) if name else None
    if own is None or own.get("preemptionPolicy") != _NEVER:
        body: Raw = {"preemptionPolicy": _LOWER}
        text = f"set preemptionPolicy: {_LOWER} instead of {_NEVER}"
        yield _edited(snapshot, list(unwilling.values()), text, body)
        return
    value = int(own.get("value") or 0)
    others = [
        (int(raw.get("value") or 0), raw["metadata"]["name"])
        for raw in snapshot.all(PRIORITY_CLASS)
        if raw.get("preemptionPolicy") != _NEVER
    ]
    for priority, other in sorted((each for each in others if each[0] <= value), reverse=True)[:1]:
        body = {"priorityClassName": other, "priority": priority, "preemptionPolicy": _LOWER}
        text = (
            f"set priorityClassName: {other} ({priority}), with which pods preempt, instead of {name}"
        )
        yield _edited(snapshot, list(unwilling.values()), text, body)
    new = f"{name}-preempting"
    if snapshot.find(PRIORITY_CLASS, new) is not None:
        return
    body = {"priorityClassName": new, "priority": value, "preemptionPolicy": _LOWER}
    text = (
        f"create the PriorityClass {new} ({value}), with which pods preempt, and set "
        f"priorityClassName: {new} instead of {name}"
    )
    created: Raw = {
        "apiVersion": PRIORITY_CLASS.api_version,
        "kind": PRIORITY_CLASS.kind,
        "metadata": {"name": new},
        "value": value,
    }
    yield _edited(snapshot, list(unwilling.values()), text, body, create(PRIORITY_CLASS, created))


def _is_unwilling(pod: PodRecord) -> bool:
    return pod.reservation is None and pod.cls.pod.spec.preemption_policy == _NEVER


def _class_name(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    spec = Subject.of(pod).raw(snapshot).get("spec") or {}
    return str(spec.get("priorityClassName") or "")


def _edited(
    snapshot: ClusterSnapshot, pods: list[PodRecord], text: str, body: Raw, *before: ObjectChange
) -> Repair:
    objects = [
        change for each in pods for change in spec_changes(snapshot, Subject.of(each), lambda _: body)
    ]
    return repair(text, ALLOW_PREEMPTION, [*before, *objects], DELETE_RESERVATION)
