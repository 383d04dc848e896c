"""Explains a workload by its pods: how many are placed, and why the others are pending."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.plurals import number_of
from holdfast.explanation.advice.advisor import MOST_ADVICE, Advisor
from holdfast.explanation.facts.capacity import missing_node, shortages
from holdfast.explanation.facts.created_claims import created_pods
from holdfast.explanation.facts.rehearsed_rounds import placed
from holdfast.explanation.facts.workload_dry_runs import is_replaced
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.explanation.report import Advice, PodsOfWorkload, Report
from holdfast.explanation.subjects.daemon_sets import explain_without_pods, ineligible_nodes
from holdfast.explanation.subjects.missing_nodes import (
    NamedNode,
    consider_other_node,
    named_node_of,
)
from holdfast.explanation.subjects.no_node import NOTHING_HELPS, too_few_places
from holdfast.explanation.subjects.plain_reasons import plain_on
from holdfast.explanation.subjects.pods import explain_pod
from holdfast.explanation.subjects.uncreated_pods import (
    MOST_PODS,
    creation_failures,
    creation_repairs,
    missing_classes,
    pods_of_template,
    wanted_pods,
)
from holdfast.explanation.verdicts import Subject, rejection_on, starts_on
from holdfast.kube.object_client import Raw
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import PATCH, ClusterChange, applied, one_patch, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_NEAREST = 3
"""How many pods of a DaemonSet that are pending for the same reason are explained."""
_KUEUE = "kueue.x-k8s.io/queue-name"


def explain_workload(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    """A Deployment, ReplicaSet, StatefulSet, DaemonSet or Job. Pending pods that scheduling cannot tell
    apart are one group, and the first of each group is explained.
    """
    metadata, kind = raw["metadata"], raw["kind"]
    namespace = metadata.get("namespace") or ""
    # Schedulers do not read Deployments, DaemonSets and Jobs; advice changes their templates.
    known = snapshot.objects.setdefault((raw["apiVersion"], kind), {})
    known[namespace, metadata["name"]] = raw
    report = Report(f"{kind} {namespace}/{metadata['name']}", "", "")
    pods = _pods_of(snapshot, raw)
    lost = _on_missing_nodes(snapshot, pods)
    placed = [pod for pod in pods if pod.row >= 0 and not any(pod in those for those in lost)]
    groups = alike(snapshot, [pod for pod in pods if pod.row < 0])
    explained = [each for those in groups for each in _explained_alike(snapshot, those)]
    if kind == "DaemonSet":
        explained.sort(key=lambda each: (each.starts, -len(each.pods), _ends_pods(each.report)))
    explained += [_Alike(those, _explained(snapshot, those[0]), starts=False) for those in lost]
    report.phase = "Pending" if explained else "Scheduled" if placed else "No pods"
    report.pods = [
        PodsOfWorkload(len(those), "Pending", _reason(snapshot, those, found), _names(those))
        for those, found, _ in explained
    ]
    if placed:
        report.pods.append(PodsOfWorkload(len(placed), "Placed", "", _names(placed)))
    report.summary = f"{len(placed)} of {number_of(len(pods), 'pod has', 'pods have')} a node."
    if not pods:
        report.summary = f"It has no pods: {_without_pods(raw)}."
        if raw["kind"] == "DaemonSet" and snapshot.cluster.nodes.count:
            explain_without_pods(snapshot, raw, report)
    if (raw.get("spec") or {}).get("suspend"):
        report.phase = "Suspended"
        _suspended(snapshot, raw, len(pods), report)
    if explained:
        those, first, _ = explained[0]
        reason = _reason(snapshot, those, first)
        fitting = sum(len(each.pods) for each in explained[1:] if each.starts)
        fits = f", of which {number_of(fitting, 'fits', 'fit')} now" if fitting else ""
        pending = len(pods) - len(placed)
        others = [each for each in explained[1:] if not each.starts]
        rest = sum(len(each.pods) for each in others if each.report.summary != first.summary)
        which = f", for different reasons; {len(those)} of them" if rest else ""
        report.summary += f" {pending} pending{fits}{which}: {reason}"
        report.details, report.advice = first.details, first.advice
        if kind == "DaemonSet":
            report.advice = _of_all_nodes([each.report for each in explained if not each.starts])
        replicas = (raw.get("spec") or {}).get("replicas")
        wanted = replicas if isinstance(replicas, int) else len(pods)
        if few := too_few_places(snapshot, those[0], wanted):
            more = [each for each in first.details if each not in few]
            report.details = [*few, *(each for each in more if not each.startswith(NOTHING_HELPS))]
        if reason != first.summary or rest:
            report.details = [f"what follows is about {those[0].name}", *report.details]
        report.holders, report.nodes = first.holders, first.nodes
        report.told, report.would_say = first.told, first.would_say
    if (named := named_node_of(snapshot, raw)) is not None:
        _note_missing_node(snapshot, raw, named, pods, report)
    if pods and kind == "DaemonSet":
        report.details += ineligible_nodes(snapshot, raw)
    _note_uncreated(snapshot, raw, len(pods), report)
    return report


def alike(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[list[PodRecord]]:
    """Pending pods that scheduling cannot tell apart together, the largest group first; pods of old
    templates last."""
    groups: dict[tuple[int, tuple[str, ...], str], list[PodRecord]] = {}
    for pod in pods:
        groups.setdefault((pod.cls.id, pod.gates, _own_node(snapshot, pod)), []).append(pod)
    return sorted(groups.values(), key=lambda each: (bool(is_replaced(snapshot, each[0])), -len(each)))


def explained_groups(
    snapshot: ClusterSnapshot, pods: list[PodRecord], most: int
) -> list[tuple[PodsOfWorkload, Report]]:
    """Pending pods of any workloads by why they are pending, with the report on the first of each. Of
    more groups than `most`, those with the fewest pods are left out."""
    found = []
    for those in alike(snapshot, pods)[:most]:
        report = _explained(snapshot, those[0])
        names = [f"{pod.namespace}/{pod.name}" for pod in those]
        found.append((PodsOfWorkload(len(those), "Pending", report.summary, names), report))
    return found


def _note_uncreated(snapshot: ClusterSnapshot, raw: Raw, count: int, report: Report) -> None:
    """Pods that the controller should have created, and cannot."""
    replicas = (raw.get("spec") or {}).get("replicas")
    failures = creation_failures([raw, *_replica_sets(snapshot, raw)])
    is_lacking = count < replicas if isinstance(replicas, int) else not count
    if isinstance(replicas, int) and is_lacking:
        report.summary += f" spec.replicas is {replicas}."
    if failures:
        report.phase = "Pending"
        report.summary += f" Pods cannot be created: {failures[-1].rstrip('.')}."
        report.details += [f"also: {each}" for each in failures[:-1]]
    if not failures and not is_lacking:
        return
    report.details += [each.text for each in missing_classes(snapshot, raw)]
    if fixes := creation_repairs(snapshot, raw):
        found = _consider_creation(snapshot, raw, fixes, wanted_pods(raw, count))
        if found.pending:
            report.details += [f"if they were created, {found.pending}", *found.details]
        report.advice = [*found.advice, *report.advice]
    elif failures and (wanted := wanted_pods(raw, count)):
        found = explained_new_pods(snapshot, pods_of_template(snapshot, raw, wanted))
        report.details.append(f"if they were created, {found.pending or 'its pods would start'}")


def _replica_sets(snapshot: ClusterSnapshot, raw: Raw) -> list[Raw]:
    """Those of a Deployment that should have pods."""
    if raw["kind"] != "Deployment":
        return []
    sets = snapshot.objects.get(("apps/v1", "ReplicaSet"), {}).values()
    owned = [each for each in sets if _is_owned(each, {raw["metadata"].get("uid")})]
    return [each for each in owned if (each.get("spec") or {}).get("replicas") != 0]


def _without_pods(raw: Raw) -> str:
    spec = raw.get("spec") or {}
    if spec.get("suspend"):
        return "spec.suspend is true, so its controller creates none until it is resumed"
    if spec.get("replicas") == 0:
        return "spec.replicas is 0"
    if spec.get("paused"):
        return "its rollout is paused (spec.paused), so its controller creates none until it is resumed"
    for each in (raw.get("status") or {}).get("conditions") or () if raw["kind"] == "Job" else ():
        if each.get("status") == "True" and each.get("type") in ("Complete", "Failed"):
            why = ": ".join(filter(None, (each.get("reason"), each.get("message"))))
            return f"it is {each['type']}{f' ({why})' if why else ''}"
    if raw["kind"] == "DaemonSet" and (raw.get("status") or {}).get("desiredNumberScheduled") == 0:
        return "no node should run one (status.desiredNumberScheduled is 0)"
    return "its controller has created none, or all have ended"


def _suspended(snapshot: ClusterSnapshot, raw: Raw, there: int, report: Report) -> None:
    """A Job that is suspended: how to resume it, and whether its pods would then start."""
    metadata, info = raw["metadata"], KINDS[raw["apiVersion"], raw["kind"]]
    where = f" -n {metadata['namespace']}" if metadata.get("namespace") not in (None, "default") else ""
    body = {"spec": {"suspend": False}}
    merged = json.dumps(body, separators=(",", ":"))
    command = f"kubectl patch job {metadata['name']}{where} -p '{merged}'"
    if queue := (metadata.get("labels") or {}).get(_KUEUE):
        report.details.append(f"Kueue resumes it once the queue {queue} admits it ({_KUEUE})")
        return
    count = wanted_pods(raw, there)
    if not count:
        report.details.append(f"to resume it: {command}; it would create no pods then either")
        return
    resumed = repair("resume it", "Resume", [patch(info, raw, body)])
    found = _consider_creation(snapshot, raw, [resumed], count, f" ({command})")
    if found.pending:
        report.details.append(f"to resume it: {command}")
        report.details.append(f"if it were resumed, {found.pending}")
        report.details += found.details
    report.advice = [*found.advice, *report.advice]


class NewPods(NamedTuple):
    """What would come of the pods that a controller would create."""

    advice: list[Advice]
    pending: str = ""
    """`its pods would be pending: …`; empty if all start."""
    details: Sequence[str] = ()
    report: Report | None = None
    """On the first of them that would be pending."""


def _consider_creation(
    snapshot: ClusterSnapshot, raw: Raw, fixes: list[Repair], count: int, how: str = ""
) -> NewPods:
    """What lets the controller of a workload create so many pods, if they start then; otherwise the
    first of the `fixes` together with what else would help them. `how` is added to the text of one that
    is enough."""
    advisors = []
    for fix in fixes:
        with applied(snapshot, fix.change.objects):
            pods = pods_of_template(snapshot, _with_template(raw, fix.change), count)
        subject = Subject(POD, pods[0]["metadata"]["name"], pods[0]["metadata"]["namespace"])
        advisor = Advisor(snapshot, subject, created=pods)
        first = ClusterChange((), tuple(created_pods(snapshot, pods[:1])))
        advisor.propose(fix._replace(text=f"{fix.text}{how}", change=fix.change + first))
        advisors.append((advisor, pods))
    enough = [each for advisor, _ in advisors if advisor.helpful for each in advisor.advice]
    some = [each for advisor, _ in advisors if not advisor.helpful for each in advisor.advice]
    if enough:
        return NewPods([*enough, *some])
    fix, pods = fixes[0], advisors[0][1]
    with applied(snapshot, fix.change.objects):
        found = explained_new_pods(snapshot, pods)
    alone = fix.change.data()
    advice = [*(_beside(fix.text, alone, each) for each in found.advice), *some]
    details = [each for each in found.details if not (advice and each.startswith(NOTHING_HELPS))]
    return found._replace(advice=advice, details=details)


def explained_new_pods(snapshot: ClusterSnapshot, pods: list[Raw]) -> NewPods:
    """What would come of pods if their controller created them now."""
    before = snapshot.is_hypothetical, snapshot.before
    if not snapshot.is_hypothetical:
        objects = {kind: dict(each) for kind, each in snapshot.objects.items()}
        snapshot.is_hypothetical, snapshot.before = True, objects
    try:
        with applied(snapshot, created_pods(snapshot, pods)):
            names = [(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in pods]
            records = [pod for name in names if (pod := snapshot.cluster.pod(*name)) is not None]
            groups = [
                each for those in alike(snapshot, records) for each in _explained_alike(snapshot, those)
            ]
    finally:
        snapshot.is_hypothetical, snapshot.before = before
    left = [each for each in groups if not each.starts]
    if not left:
        return NewPods([], details=groups[0].report.details if groups else ())
    report, count = left[0].report, sum(len(each.pods) for each in left)
    which = "its pods" if count == len(pods) else f"{count} of its {len(pods)} pods"
    pending = f"{which} would be pending: {report.summary}"
    return NewPods(report.advice, pending, report.details, report)


def _with_template(raw: Raw, change: ClusterChange) -> Raw:
    """The workload with its template as changed, be it that of a workload above it."""
    for each in change.objects:
        spec = each.body.get("spec") or {}
        spec = (spec.get("jobTemplate") or {}).get("spec") or spec
        if each.operation == PATCH and "template" in spec:
            raw = merge_patch(raw, {"spec": {"template": spec["template"]}})
    return raw


def _beside(text: str, fix: Raw, each: Advice) -> Advice:
    """Advice for pods that a workload creates only with another change, which is made too."""
    objects = [*each.change["objects"]]
    for edit in reversed(fix["objects"]):
        same = [at for at, other in enumerate(objects) if _edited(other) == _edited(edit) != ()]
        if same:
            patched = one_patch(edit["patch"], objects[same[0]]["patch"])
            objects[same[0]] = {**edit, "patch": patched}
        else:
            objects.insert(0, edit)
    change = {**each.change, "actions": [*fix["actions"], *each.change["actions"]], "objects": objects}
    return replace(each, text=f"{text} and {each.text}", change=change)


def _edited(change: Raw) -> tuple[str, ...]:
    """The object that is patched; empty for another change."""
    if change["operation"] != PATCH:
        return ()
    return change["apiVersion"], change["kind"], change["namespace"], change["name"]


def _on_missing_nodes(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[list[PodRecord]]:
    """The pods that are assigned to nodes that do not exist, by node."""
    found: dict[str, list[PodRecord]] = {}
    for pod in pods:
        raw = snapshot.find(POD, pod.name, pod.namespace) or {}
        node = str((raw.get("spec") or {}).get("nodeName") or "")
        if node and missing_node(snapshot, node) is not None:
            found.setdefault(node, []).append(pod)
    return list(found.values())


def _note_missing_node(
    snapshot: ClusterSnapshot, raw: Raw, named: NamedNode, pods: list[PodRecord], report: Report
) -> None:
    """The node of the template does not exist: nothing runs the pods that are made from it."""
    text = named.text(snapshot)
    if not pods:
        report.phase = "Pending"
        report.summary += f" {text[0].upper()}{text[1:].rstrip('?')}."
    elif text not in report.details:
        report.details = [text, *report.details]
    wanted = (raw.get("spec") or {}).get("replicas")
    count = wanted if isinstance(wanted, int) else max(1, len(pods))
    metadata = raw["spec"]["template"].get("metadata") or {}
    found = [snapshot.find(POD, pod.name, pod.namespace) for pod in pods]
    there = [each for each in found if each is not None]
    advice = list(consider_other_node(snapshot, named, metadata, count, there))
    if not advice:
        body = {"spec": {"nodeName": None}}
        removed = repair(f"remove nodeName: {named.name}", "RemoveNodeName", [named.owner.change(body)])
        new = _consider_creation(snapshot, raw, [removed], min(count, MOST_PODS))
        report.details += [f"without it, {new.pending}"] if new.pending else []
        advice = new.advice
    report.advice = advice or report.advice


def _names(pods: list[PodRecord]) -> list[str]:
    return sorted(pod.name for pod in pods)


def _own_node(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """Why the only node that a pod of a DaemonSet can run on rejects it; empty if it fits, and for
    other pods."""
    if pod.pinned_node is None:
        return ""
    row = snapshot.cluster.nodes.row(pod.pinned_node)
    if row is None:
        return "their nodes do not exist"
    texts = rejection_on(snapshot, pod, row).texts
    return ", ".join(plain_on(snapshot, pod, pod.pinned_node, text) for text in texts)


def _reason(snapshot: ClusterSnapshot, pods: list[PodRecord], found: Report) -> str:
    there = _own_node(snapshot, pods[0])
    if len(pods) == 1 or not there:
        return found.summary
    return f"Each can only run on its own node: {there}."


class _Alike(NamedTuple):
    """Pending pods of a workload that scheduling cannot tell apart."""

    pods: list[PodRecord]
    report: Report
    """On the first of them."""
    starts: bool
    """Whether the first of them would start now. One may have feasible nodes and not start: its queue
    does not admit it, it is gated, or its gang does not start."""


def _explained_alike(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> Iterator[_Alike]:
    """The report on the first of these pods; if there is room for some of them only, one on the first
    that has none once those have their nodes, before that on those."""
    if len(pods) > 1 and pods[0].pinned_node is not None:
        pods, report = _explained_nearest(snapshot, pods)
        yield _Alike(pods, report, _starts(snapshot, pods[0]))
        return
    report, starts = _explained(snapshot, pods[0]), _starts(snapshot, pods[0])
    if len(pods) == 1 or pods[0].job is not None or not starts:
        yield _Alike(pods, report, starts)
        return
    with placed(snapshot, pods) as fitting:
        bound = [(pod, snapshot.cluster.nodes.name(pod.row)) for pod in fitting]
    left = [pod for pod in pods if all(pod is not each for each, _ in bound)]
    raws = [(snapshot.find(POD, pod.name, pod.namespace), node) for pod, node in bound]
    changes = [patch(POD, raw, {"spec": {"nodeName": node}}) for raw, node in raws if raw is not None]
    if bound and left:
        subject = Subject.of(left[0])
        with applied(snapshot, changes):
            record = subject.record(snapshot)
            rest = _explained(snapshot, record) if record is not None else None
            others_start = record is not None and _starts(snapshot, record)
        if rest is not None:
            yield _Alike(left, rest, others_start)
            yield _Alike([pod for pod, _ in bound], report, starts)
            return
    yield _Alike(pods, report, starts)


def _starts(snapshot: ClusterSnapshot, pod: PodRecord) -> bool:
    return bool(starts_on(snapshot, Subject.of(pod)))


def _explained_nearest(
    snapshot: ClusterSnapshot, pods: list[PodRecord]
) -> tuple[list[PodRecord], Report]:
    """The pods that can each run on one node only, the one first that is explained: of those that lack
    the least there, the first that something helps without pods of others that end."""

    def lacks(pod: PodRecord) -> float:
        row = snapshot.cluster.nodes.row(pod.pinned_node or "")
        return float(shortages(snapshot, pod)[row]) if row is not None else math.inf

    nearest = sorted(pods, key=lacks)
    found = []
    for pod in nearest[:_NEAREST]:
        found.append((pod, _explained(snapshot, pod)))
        if found[-1][1].advice and not _ends_pods(found[-1][1]):
            break
    chosen, report = min(found, key=lambda each: _ends_pods(each[1]))
    return [chosen, *(each for each in nearest if each is not chosen)], report


def _ends_pods(report: Report) -> bool:
    """Whether nothing is advised but ending pods of others, or nothing at all."""
    return all(each.ends_pods for each in report.advice)


def _of_all_nodes(reports: list[Report]) -> list[Advice]:
    """The advice for pods that can each run on one node only: pods of others end only on nodes that
    nothing else opens."""
    found = [each for report in reports for each in report.advice]
    gentle = [each for each in found if not each.ends_pods]
    opened = {node for each in gentle for node in each.nodes}
    gentle += [each for each in found if each.ends_pods and opened.isdisjoint(each.nodes)]
    return list({each.text: each for each in gentle}.values())[:MOST_ADVICE]


def _explained(snapshot: ClusterSnapshot, pod: PodRecord) -> Report:
    raw = snapshot.find(POD, pod.name, pod.namespace)
    assert raw is not None, pod.ref
    return explain_pod(snapshot, raw)


def _pods_of(snapshot: ClusterSnapshot, raw: Raw) -> list[PodRecord]:
    """Its pods that have not ended; those of a Deployment belong to its ReplicaSets."""
    owners = {raw["metadata"].get("uid")}
    if raw["kind"] == "Deployment":
        sets = snapshot.objects.get(("apps/v1", "ReplicaSet"), {}).values()
        owners |= {each["metadata"].get("uid") for each in sets if _is_owned(each, owners)}
    owned = [each for each in snapshot.all(POD) if _is_owned(each, owners)]
    names = [(each["metadata"].get("namespace") or "", each["metadata"]["name"]) for each in owned]
    records = [snapshot.cluster.pod(*name) for name in sorted(names)]
    return [record for record in records if record is not None]


def _is_owned(raw: Raw, owners: set[str | None]) -> bool:
    return any(each.get("uid") in owners for each in raw["metadata"].get("ownerReferences") or ())
