"""Other pods that want the same capacity: those of the same workload, and pending ones, or gangs,
that are tried first."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.explanation.facts.created_claims import (
    claims_of_new_pod,
    ephemeral_claims,
    own_claims,
    provisioned,
)
from holdfast.explanation.facts.expected_ends import ended_pod
from holdfast.explanation.facts.pod_owners import controller_of, workload_text
from holdfast.explanation.facts.rehearsed_rounds import (
    first_pod,
    placed_among_others,
    rehearsed,
    started_before,
)
from holdfast.explanation.phrases import job_text, pod_text
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Goal, Subject, starts_on
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import (
    PATCH,
    ClusterChange,
    ObjectChange,
    applied,
    create,
    delete,
    patch,
)
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot

_MOST_REPLICAS = 500
_SHOWN = 3
_REPLACED = ("Deployment", "Job", "CronJob")
"""Workloads of which also the pods on nodes are replaced when the template changes. A StatefulSet
replaces them one by one, after its pending pod has started beside them, and a ReplicaSet replaces none;
of workloads that are yet to be created all pods are made from the changed template."""
_OF_EACH = ("volumes", "hostname")
"""Fields of a spec that may differ between the pods of one workload."""
_STATEFUL_SET = KINDS["apps/v1", "StatefulSet"]
_CLAIM = KINDS["v1", "PersistentVolumeClaim"]


class Fitting(NamedTuple):
    """How many pods of a workload would start."""

    started: int
    total: int
    nodes: list[str]
    updated: int
    """How many pods of its present template have a node in the end."""
    running: int
    """How many of its pods do."""
    lost: int = 0
    """How many fewer that is than before."""
    victims: tuple[PodRecord, ...] = ()
    """The pods of others that they preempt or reclaim."""

    @property
    def is_all(self) -> bool:
        return self.started == self.total

    def is_more_than(self, other: "Fitting") -> bool:
        """Whether more pods run than with the other, or more of the present template."""
        return self.updated > other.updated or self.running > other.running


# The pods of the same workload


def siblings(snapshot: ClusterSnapshot, subject: Subject) -> list[Subject]:
    """The other pods of the same workload. Those of gangs and DaemonSets have none that count, and
    pending pods that differ are left out."""
    pod = subject.record(snapshot)
    if pod is None or subject.info is RESERVATION or snapshot.cluster.jobs.of(pod) is not None:
        return []
    owner = controller_of(subject.raw(snapshot)).get("uid")
    if not owner or pod.pinned_node is not None:
        return []
    found = []
    for raw in snapshot.all(POD):
        other = Subject(POD, raw["metadata"]["name"], raw["metadata"].get("namespace") or "")
        record = other.record(snapshot) if controller_of(raw).get("uid") == owner else None
        if record is None or record is pod or record.deletion_pending or record.cls.terminating:
            continue
        if record.row >= 0 or record.cls is pod.cls or _spec(raw) == _spec(subject.raw(snapshot)):
            found.append(other)
    return found[:_MOST_REPLICAS]


def _spec(raw: Raw) -> Raw:
    """What the pods of one workload have in common; labels of the pods of StatefulSets and Jobs have
    their numbers."""
    return {key: value for key, value in raw["spec"].items() if key not in _OF_EACH}


def uncreated_replicas(snapshot: ClusterSnapshot, subject: Subject, others: int) -> list[Raw]:
    """The pods that a StatefulSet creates only once this one and the others are ready, as copies of
    this one without volumes."""
    if subject.info is not POD or subject.record(snapshot) is None:
        return []
    raw = subject.raw(snapshot)
    owner = controller_of(raw)
    if (owner.get("apiVersion"), owner.get("kind")) != ("apps/v1", _STATEFUL_SET.kind):
        return []
    workload = snapshot.find(_STATEFUL_SET, owner["name"], subject.namespace)
    replicas = ((workload or {}).get("spec") or {}).get("replicas") or 0
    metadata, spec = raw["metadata"], {**raw["spec"], "volumes": []}
    return [
        {
            **raw,
            "metadata": {**metadata, "name": f"{metadata['name']}-next-{at}", "uid": f"next-{at}"},
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        for at in range(min(replicas, _MOST_REPLICAS) - others - 1)
    ]


def waiting_replicas(snapshot: ClusterSnapshot, subject: Subject) -> int:
    """How many pods of the workload wait, itself and those that are yet to be created among them."""
    others = siblings(snapshot, subject)
    records = [each.record(snapshot) for each in others]
    waiting = sum(pod is not None and pod.row < 0 for pod in records)
    return 1 + waiting + len(uncreated_replicas(snapshot, subject, len(others)))


def replicas_that_start(
    snapshot: ClusterSnapshot,
    subject: Subject,
    others: list[Subject],
    change: ClusterChange,
    preempts: bool = False,
) -> Fitting | None:
    """How many pods of the workload would start with the change, which was made for one of them; a
    change of the template is made for all. None if the change is one of this pod only. If it is one of
    several pods, these count. Those that do not fit preempt others, if that counts."""
    edits = [each for each in change.objects if _edits(each, subject)]
    place = workload_text(change)
    if edits and not place:
        others = [each for each in others if any(_edits(edit, each) for edit in change.objects)]
        if not others:
            return None
        edits = []
    more, again = list[ObjectChange](), list[Subject]()
    is_new = snapshot.is_hypothetical
    for each in others:
        record = each.record(snapshot)
        if record is None:
            continue
        if record.row < 0:
            edited = [patch(POD, each.raw(snapshot), for_each(edit.body)) for edit in edits]
            more += [*edited, *_claims_made_again(snapshot, each, edits)]
        elif edits and (is_new or any(f"of {kind} " in place for kind in _REPLACED)):
            again.append(each)
    for raw in uncreated_replicas(snapshot, subject, len(others)):
        more += [create(POD, raw), *claims_of_new_pod(snapshot, raw)]
        others = [*others, Subject(POD, raw["metadata"]["name"], subject.namespace)]
    with ExitStack() as remade:
        for each in again:
            for changes in _made_again(snapshot, each, edits):
                remade.enter_context(applied(snapshot, changes))
        remade.enter_context(applied(snapshot, more))
        found = [each.record(snapshot) for each in (subject, *others)]
        there = sum(pod is not None and pod.row >= 0 for pod in found)
        pods = [pod for pod in found if pod is not None and pod.row < 0 and not pod.gates]
        pods.sort(key=snapshot.scheduler.queue.sort_key)
        if not pods:
            return Fitting(0, 0, [], there, there)
        victims: list[PodRecord] = []
        with placed_among_others(snapshot, pods) as (_, started), ExitStack() as stack:
            left = [pod for pod in pods if pod.row < 0] if preempts else []
            started = [*started, *rehearsed(snapshot, left, stack, victims)]
            nodes = sorted({snapshot.cluster.nodes.name(pod.row) for pod in started})
            running = there + len(started)
            count = len(started), len(pods)
            return Fitting(*count, nodes, running, running, victims=tuple(victims))


def _claims_made_again(
    snapshot: ClusterSnapshot, subject: Subject, edits: list[ObjectChange]
) -> list[ObjectChange]:
    """The claims of its generic ephemeral volumes, made from changed ones."""
    volumes = [each.body["spec"]["volumes"] for each in edits if "volumes" in each.body.get("spec", {})]
    if not volumes:
        return []
    raw = subject.raw(snapshot)
    pod = {**raw, "spec": {**raw["spec"], "volumes": volumes[-1]}}
    found: list[ObjectChange] = []
    for claim in ephemeral_claims(snapshot, pod, again=True):
        name = claim["metadata"]["name"]
        if (known := snapshot.find(_CLAIM, name, subject.namespace)) is not None:
            claim = known | {"spec": claim["spec"]}
            found.append(delete(_CLAIM, name, subject.namespace))
        found += provisioned(snapshot, claim)
    return found


def _edits(change: ObjectChange, subject: Subject) -> bool:
    names = (change.name, change.namespace) == (subject.name, subject.namespace)
    return names and change.info is POD and change.operation == PATCH and "status" not in change.body


def for_each(body: Raw) -> Raw:
    """The patch of one pod, for another one of the workload."""
    spec = {key: value for key, value in (body.get("spec") or {}).items() if key not in _OF_EACH}
    return {**body, "spec": spec} if "spec" in body else body


def _made_again(
    snapshot: ClusterSnapshot, subject: Subject, edits: list[ObjectChange]
) -> Iterator[list[ObjectChange]]:
    """What its controller does, each step once the one before is made: the pod ends, with its own
    claims, and is created again with the edits and new claims."""
    raw, record = subject.raw(snapshot), subject.record(snapshot)
    yield ended_pod(snapshot, record) if record is not None else []
    yield own_claims(snapshot, raw)
    yield [create(POD, _unplaced(raw))]
    yield [patch(POD, raw, for_each(edit.body)) for edit in edits]
    new = subject.raw(snapshot)
    yield claims_of_new_pod(snapshot, new)
    for claim in ephemeral_claims(snapshot, new):
        yield provisioned(snapshot, claim)


def _unplaced(raw: Raw) -> Raw:
    """The pod as it is created again."""
    spec = {key: value for key, value in raw["spec"].items() if key != "nodeName"}
    metadata = raw["metadata"]
    metadata = {**metadata, "uid": f"{metadata.get('uid') or metadata['name']}-again"}
    return {**raw, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


# Pods that are tried first


def takers_text(snapshot: ClusterSnapshot, goal: Goal) -> str:
    """`default/old is tried before it and takes n1`, if the pod or gang would start now but for
    those; empty if it would start beside them."""
    return starts_beside(snapshot, goal, starts_on(snapshot, goal))[1]


def starts_beside(snapshot: ClusterSnapshot, goal: Goal, alone: list[str]) -> tuple[list[str], str]:
    """The nodes on which the pod or gang starts, of which it alone would start on these, beside those
    that are tried before it; or who takes them."""
    pod = first_pod(snapshot, goal)
    own = pod.job if pod is not None else None
    with started_before(snapshot, goal) as others:
        nodes = starts_on(snapshot, goal) if others else alone
        if nodes or not others:
            return nodes, ""
        name = snapshot.cluster.nodes.name
        rivals = [each for each in others if each.job is None or each.job != own] or others
        takers = [each for each in rivals if name(each.row) in alone] or rivals
        return [], tried_before_text(snapshot, takers, sorted({name(each.row) for each in takers}))


def tried_before_text(snapshot: ClusterSnapshot, pods: list[PodRecord], nodes: list[str]) -> str:
    """`default/old is tried before it and takes n1`"""
    names = taker_names(snapshot, pods)
    verbs = ("is", "takes") if len(names) == 1 else ("are", "take")
    return f"{few(names, _SHOWN)} {verbs[0]} tried before it and {verbs[1]} {few(nodes, _SHOWN)}"


def taker_names(snapshot: ClusterSnapshot, pods: Iterable[PodRecord]) -> list[str]:
    """The pods, or the gangs that they are of."""
    return list(dict.fromkeys(_taker(snapshot, pod) for pod in pods))


def _taker(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    if (job := snapshot.cluster.jobs.of(pod)) is not None:
        return job_text(job)
    return pod_text(pod)
