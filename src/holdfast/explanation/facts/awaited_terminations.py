"""Pods that are terminating, and others that wait for their capacity: pods that are nominated to the
node, or that have a preemption hold there. What becomes of a pod once these have started."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.explanation.facts.expected_ends import deletion_deadline, ended_pod
from holdfast.explanation.facts.own_starts import Start, start_of
from holdfast.explanation.facts.rehearsed_rounds import first_pod, started_in_round
from holdfast.explanation.phrases import in_time, pods_text
from holdfast.explanation.verdicts import Goal, at_time
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.snapshot.cluster_changes import ObjectChange, applied, delete, patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot


class AwaitedTermination(NamedTuple):
    """Pods that terminate on a node, and those that their capacity is kept for."""

    node: str
    victims: list[PodRecord]
    preemptors: list[PodRecord]
    holds: list[ReservationInfo]
    """The preemption holds of these, as far as they have any."""
    time: float
    """When the last grace period ends."""

    def text(self, now: float) -> str:
        """`n1: default/low is terminating (grace period ends in 30s), and what it frees is kept for
        default/high (priority 100)`"""
        is_one = len(self.victims) == 1
        are, it_frees = ("is", "it frees") if is_one else ("are", "they free")
        when = f"grace period ends {in_time(self.time, now)}"
        highest = max(each.cls.priority for each in self.preemptors)
        return (
            f"{self.node}: {pods_text(self.victims)} {are} terminating ({when}), and what {it_frees} "
            f"is kept for {pods_text(self.preemptors)} (priority {highest})"
        )

    def start_text(self, now: float) -> str:
        """`default/low has ended (in 30s) and default/high has started`"""
        has = ["has" if len(each) == 1 else "have" for each in (self.victims, self.preemptors)]
        return (
            f"{pods_text(self.victims)} {has[0]} ended ({in_time(self.time, now)}) and "
            f"{pods_text(self.preemptors)} {has[1]} started"
        )


def awaited_terminations(snapshot: ClusterSnapshot, goal: Goal) -> list[AwaitedTermination]:
    """By node, those first whose grace periods end first; not for the pod or gang itself. Pods that
    should have ended already are left out, since it is not known when they will."""
    cluster, own = snapshot.cluster, first_pod(snapshot, goal)
    found = []
    for name, row in cluster.nodes.names():
        preemptors, holds = _preemptors_on(snapshot, row, own)
        ends = _terminating(snapshot, row) if preemptors else {}
        if ends:
            victims = [cluster.pods[uid] for uid in ends]
            found.append(AwaitedTermination(name, victims, preemptors, holds, max(ends.values())))
    return sorted(found, key=lambda each: (each.time, each.node))


def _preemptors_on(
    snapshot: ClusterSnapshot, row: int, own: PodRecord | None
) -> tuple[list[PodRecord], list[ReservationInfo]]:
    cluster = snapshot.cluster
    nominated = cluster.nominator.get(cluster.nodes.name(row)) or {}
    pods = {each.uid: each for each in nominated.values() if each.row < 0}
    holds = []
    for entry in cluster.ledger.reservations.on(row):
        pod = cluster.pods.get(entry.reservation.preemptor)
        if pod is not None and pod.row < 0:
            pods[pod.uid] = pod
            holds.append(entry.reservation)
    others = [each for each in pods.values() if own is None or not is_same(each, own)]
    uids = {each.uid for each in others}
    return others, [each for each in holds if each.preemptor in uids]


def is_same(pod: PodRecord, other: PodRecord) -> bool:
    """Whether both are one pod, or of one job."""
    return pod is other or (pod.job is not None and pod.job == other.job)


def _terminating(snapshot: ClusterSnapshot, row: int) -> dict[str, float]:
    """By uid, when the grace periods of the pods on a row end."""
    found: dict[str, float] = {}
    for pod in snapshot.cluster.ledger.pods.get(row, {}).values():
        if pod.cls.terminating and pod.reservation is None:
            deadline = deletion_deadline(snapshot.find(POD, pod.name, pod.namespace))
            if deadline is not None and deadline > snapshot.now:
                found[pod.uid] = deadline
    return found


@contextmanager
def preemptors_started(snapshot: ClusterSnapshot, awaited: list[AwaitedTermination]) -> Iterator[None]:
    """The pods have ended, and those that hold their capacity run there, until the end of the block.
    What nominated pods without a hold do is for a round to say."""
    ends = [
        change for each in awaited for victim in each.victims for change in ended_pod(snapshot, victim)
    ]
    time = max((each.time for each in awaited), default=None)
    with applied(snapshot, ends), at_time(snapshot, time):
        starts = [change for each in awaited for change in _starts(snapshot, each)]
        with applied(snapshot, starts):
            yield


def _starts(snapshot: ClusterSnapshot, awaited: AwaitedTermination) -> Iterator[ObjectChange]:
    """The bindings of pods whose holds have their capacity now; the holds end with them."""
    cluster = snapshot.cluster
    for known in awaited.holds:
        hold = cluster.reservations.known.get(known.uid)
        pod = cluster.pods.get(known.preemptor)
        if (
            hold is None
            or pod is None
            or (hold.waiting and not cluster.reservations.has_capacity(hold))
        ):
            continue
        raw = snapshot.find(POD, pod.name, pod.namespace)
        if raw is not None:
            yield delete(RESERVATION, hold.name)._replace(follows=True)
            yield patch(POD, raw, {"spec": {"nodeName": awaited.node}}, follows=True)


def start_after_terminations(
    snapshot: ClusterSnapshot, goal: Goal, awaited: list[AwaitedTermination]
) -> Start:
    """How the pod or gang starts then, with what is left or by evicting others."""
    with preemptors_started(snapshot, awaited):
        found = start_of(snapshot, goal)
        if found.nodes:
            return found
        with started_in_round(snapshot, goal):
            return start_of(snapshot, goal)
