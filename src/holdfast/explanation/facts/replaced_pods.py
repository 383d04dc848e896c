"""Pods that are replaced because their spec changes: others that were pending before are tried first,
and what was held for a starving pod is free for them before the new pod exists."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from holdfast.explanation.facts.pod_owners import same_workload
from holdfast.explanation.facts.rehearsed_rounds import started
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ObjectChange, applied, delete, is_replaced, patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot


def released_holds(snapshot: ClusterSnapshot, edits: Iterable[ObjectChange]) -> Iterator[ObjectChange]:
    """The deletion of the starvation holds of pods that these edits replace: the scheduler deletes the
    holds of pods that are gone, and all of a gang that then has too few pods."""
    jobs, found = snapshot.cluster.jobs, dict[str, PodRecord]()
    gone = {pod.uid: pod for pod in _replaced_by(snapshot, edits)}
    for pod in gone.values():
        job = jobs.of(pod)
        left = [each for each in job.waiting() if each.uid not in gone] if job is not None else []
        is_lacking = job is not None and not job.is_ready and bool(job.lacks(left))
        found |= {each.uid: each for each in (pod, *(left if is_lacking else ()))}
    for pod in found.values():
        yield from _deletion_of_hold(snapshot, pod)


def hold_deletion(snapshot: ClusterSnapshot, raw: Raw) -> Iterator[ObjectChange]:
    """The deletion of the starvation hold of a pod, if it has one."""
    pod = snapshot.cluster.pod(raw["metadata"].get("namespace") or "", raw["metadata"]["name"])
    if pod is not None:
        yield from _deletion_of_hold(snapshot, pod)


def _deletion_of_hold(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[ObjectChange]:
    hold = snapshot.cluster.reservations.starvation_holds.of(pod)
    if hold is not None:
        yield delete(RESERVATION, hold.name)._replace(follows=True)


def _replaced_by(snapshot: ClusterSnapshot, edits: Iterable[ObjectChange]) -> Iterator[PodRecord]:
    for each in edits:
        pod = snapshot.cluster.pod(each.namespace, each.name) if each.info is POD else None
        raw = snapshot.find(POD, each.name, each.namespace)
        if pod is not None and raw is not None and is_replaced(raw, each):
            yield pod


@contextmanager
def replaced(snapshot: ClusterSnapshot, changes: Iterable[ObjectChange]) -> Iterator[list[Subject]]:
    """Makes the changes until the end of the block. If pods are replaced that have starvation holds,
    others have what was held, as far as they start with it: they are yielded."""
    changes = list(changes)
    released = list(released_holds(snapshot, changes))
    takers = _takers(snapshot, changes, released) if released else {}
    with applied(snapshot, changes), applied(snapshot, _bindings(snapshot, takers)):
        yield list(takers)


def _takers(
    snapshot: ClusterSnapshot, changes: list[ObjectChange], released: list[ObjectChange]
) -> dict[Subject, str]:
    """The pods and reservations that start once the pods are gone and nothing is held for them, with
    their nodes."""
    gone = _gone(snapshot, changes)
    key = "takers", tuple(sorted(gone))
    if key not in snapshot.memo:
        with applied(snapshot, released), started(snapshot, without=gone) as found:
            name = snapshot.cluster.nodes.name
            takers = {Subject.of(pod): name(pod.row) for pod in found}
        snapshot.memo[key] = takers
    known: dict[Subject, str] = snapshot.memo[key]
    return known


def _gone(snapshot: ClusterSnapshot, changes: list[ObjectChange]) -> set[str]:
    """The uids of the pods that are replaced, and of the other pods of workloads whose template
    changes."""
    found = {pod.uid for pod in _replaced_by(snapshot, changes)}
    by_controllers = _replaced_by(snapshot, (each for each in changes if each.follows))
    owners = {uid for pod in by_controllers for uid in same_workload(snapshot, pod)}
    others = snapshot.cluster.pods.values() if owners else ()
    found |= {pod.uid for pod in others if any(each.uid in owners for each in pod.cls.owners)}
    return found


def _bindings(snapshot: ClusterSnapshot, takers: dict[Subject, str]) -> Iterator[ObjectChange]:
    for subject, node in takers.items():
        raw = snapshot.find(subject.info, subject.name, subject.namespace)
        placed = {"status": {"phase": "Available", "nodeName": node}}
        body = placed if subject.info is RESERVATION else {"spec": {"nodeName": node}}
        if raw is not None:
            yield patch(subject.info, raw, body, follows=True)
