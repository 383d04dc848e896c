"""What a round of the scheduler does with the other pending pods and gangs before it tries one of them:
placed on the snapshot, and taken back.

Where queues share capacity or gangs are pending, the round is played on a copy; see `played_rounds`.
Otherwise pods are tried one after the other, in the order of the scheduling queue: each is placed where
it fits, or preempts.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby

from holdfast.explanation.facts.played_rounds import (
    PlayedPlacement,
    PlayedRemoval,
    PlayedStep,
    is_played,
    steps_before,
    steps_of_all,
    steps_of_others,
)
from holdfast.explanation.facts.pod_owners import same_workload
from holdfast.explanation.verdicts import Goal, Subject, planned_of, profile_for
from holdfast.scheduler.cluster.decisions import Preempt
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.scheduling_cycle import Statement
from holdfast.snapshot.cluster_changes import ObjectChange, applied, delete
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot

_MOST_TRIED = 200


@contextmanager
def placed(
    snapshot: ClusterSnapshot, pods: Iterable[PodRecord], backfilled: bool = False
) -> Iterator[list[PodRecord]]:
    """Places the pods one after the other, those that have a feasible node, until the end of the
    block; with `backfilled`, then also those that the backfill action places."""
    scheduler = snapshot.scheduler
    statement, refused, left = Statement(scheduler.cycle), set[int](), list[PodRecord]()
    admission_error = snapshot.cluster.jobs.queue_limits.admission_error
    try:
        for pod in pods:
            is_tried = pod.cls.id not in refused and not admission_error(pod)
            if is_tried and statement.assume(profile_for(scheduler, pod), pod):
                continue
            left.append(pod)
            if pod.pinned_node is None:
                refused.add(pod.cls.id)
        refused.clear()
        for pod in left if backfilled else ():
            row = -1 if pod.cls.id in refused or admission_error(pod) else scheduler.backfill_row(pod)
            is_placed = row >= 0 and statement.assume_on(profile_for(scheduler, pod), pod, row)
            if not is_placed and pod.pinned_node is None:
                refused.add(pod.cls.id)
        yield [pod for _, pod in statement.assumed]
    finally:
        statement.discard()


def first_pod(snapshot: ClusterSnapshot, goal: Goal) -> PodRecord | None:
    """The pod; of a gang, the member that is queued for all."""
    if isinstance(goal, Subject):
        return goal.record(snapshot)
    job = snapshot.cluster.jobs.known.get(goal.job)
    return next(iter(job.waiting()), None) if job is not None else None


@contextmanager
def started_before(snapshot: ClusterSnapshot, goal: Goal) -> Iterator[list[PodRecord]]:
    """Places those that are tried before the pod or gang, if they would start, until the end of the
    block. Before a member that its gang does not need, these are also members of the gang."""

    def start(stack: ExitStack) -> list[PodRecord]:
        if is_played(snapshot):
            return _made(snapshot, steps_before(snapshot, goal), stack)
        return list(rehearsed(snapshot, _others(snapshot, goal, is_whole=False), stack))

    with _holds_released(snapshot, start) as found:
        yield found


@contextmanager
def started_in_round(snapshot: ClusterSnapshot, goal: Goal) -> Iterator[list[PodRecord]]:
    """Places all others that would start in a round, also those that are tried after the pod or gang,
    until the end of the block."""

    def start(stack: ExitStack) -> list[PodRecord]:
        if is_played(snapshot):
            return _made(snapshot, steps_of_others(snapshot, goal), stack)
        return list(rehearsed(snapshot, _others(snapshot, goal, is_whole=True), stack))

    with _holds_released(snapshot, start) as found:
        yield found


@contextmanager
def started(snapshot: ClusterSnapshot, without: Container[str]) -> Iterator[list[PodRecord]]:
    """Places all that would start in a round but the pods with these uids, until the end of the
    block."""

    def start(stack: ExitStack) -> list[PodRecord]:
        if is_played(snapshot):
            return _made(snapshot, steps_of_all(snapshot, without), stack)
        pods = [pod for pod in _pending(snapshot) if pod.uid not in without]
        return list(rehearsed(snapshot, pods, stack))

    with _holds_released(snapshot, start) as found:
        yield found


def ended_holds(snapshot: ClusterSnapshot, started: Iterable[PodRecord]) -> list[ObjectChange]:
    """The end of the starvation holds of pods that start."""
    of = snapshot.cluster.reservations.starvation_holds.of
    holds = [hold for pod in started if (hold := of(pod)) is not None]
    return [delete(RESERVATION, hold.name)._replace(follows=True) for hold in holds]


@contextmanager
def _holds_released(
    snapshot: ClusterSnapshot, start: Callable[[ExitStack], list[PodRecord]]
) -> Iterator[list[PodRecord]]:
    """Those that start, until the end of the block, without their starvation holds, which end then:
    what these keep on other nodes is free for those that follow."""
    with ExitStack() as stack:
        found = start(stack)
        released = ended_holds(snapshot, found)
        if released:
            stack.close()
            stack.enter_context(applied(snapshot, released))
            found = start(stack)
        yield found


@contextmanager
def placed_among_others(
    snapshot: ClusterSnapshot, own: list[PodRecord]
) -> Iterator[tuple[list[PodRecord], list[PodRecord]]]:
    """Places these pods of one workload, which are in the order of the scheduling queue, and others
    that are tried before some of them, until the end of the block; yields the others and those of the
    own that were placed. Others come between them that were created meanwhile; of several queues, the
    one with the smallest part of its share is next each time."""
    queues, first, last = snapshot.cluster.jobs.queues, Subject.of(own[0]), Subject.of(own[-1])
    waiting = (pod for pod in snapshot.scheduler.queue.waiting(with_jobs=True) if pod.row < 0)
    is_one_queue = len({queues.of(pod) for pod in (*own, *waiting)} & queues.known.keys()) < 2
    uids, comes_before = {pod.uid for pod in own}, snapshot.scheduler.queue.comes_before
    rivals = _others(snapshot, last, is_whole=False) if own[1:] else []
    rivals = [pod for pod in rivals if pod.uid not in uids]
    is_first = all(comes_before(pod, own[0]) for pod in rivals)
    if is_one_queue and is_first:
        with started_before(snapshot, first) as found, placed(snapshot, own, backfilled=True) as those:
            yield found, those
        return
    if is_one_queue and not is_played(snapshot):
        with _placed_in_order(snapshot, own, rivals) as started:
            yield started
        return
    steps = [each for each in steps_of_all(snapshot) if not _preempts_for(each, uids)]
    with ExitStack() as stack:
        made = _made(snapshot, steps, stack)
        found = [pod for pod in made if pod.uid in uids]
        before = _may_come_before(snapshot, found) if found else []
        if not before:
            yield [pod for pod in made if pod.uid not in uids], found
            return
    with ExitStack() as stack:
        others = _made(snapshot, before, stack)
        yield others, stack.enter_context(placed(snapshot, own, backfilled=True))


@contextmanager
def _placed_in_order(
    snapshot: ClusterSnapshot, own: list[PodRecord], others: list[PodRecord]
) -> Iterator[tuple[list[PodRecord], list[PodRecord]]]:
    """Places these pods and others one after the other, until the end of the block."""
    pods = sorted((*own, *others[:_MOST_TRIED]), key=snapshot.scheduler.queue.sort_key)
    uids = {pod.uid for pod in own}

    def start(stack: ExitStack) -> list[PodRecord]:
        found = list[PodRecord]()
        for is_own, those in groupby(pods, lambda pod: pod.uid in uids):
            if is_own:
                stack.enter_context(placed(snapshot, those))
            else:
                found += rehearsed(snapshot, list(those), stack)
        return found

    with _holds_released(snapshot, start) as found:
        left = [pod for pod in own if pod.row < 0]
        with placed(snapshot, left, backfilled=True):
            yield found, [pod for pod in own if pod.row >= 0]


def _may_come_before(snapshot: ClusterSnapshot, own: list[PodRecord]) -> list[PlayedStep]:
    """The placements of pods of other queues that come before the last of these pods, which are placed.
    Empty if all those have a node: one that has none might get it, if fewer of these pods were on some
    node by the time it is tried, so what it would take is not sure to be left for these."""
    cluster, queues = snapshot.cluster, snapshot.cluster.jobs.queues
    uids, last, found, left_out = {pod.uid for pod in own}, own[-1], list[PlayedStep](), False
    pending = [pod for pod in snapshot.scheduler.queue.waiting(with_jobs=True) if pod.row < 0]
    queue = queues.of(last)

    def comes_before(pod: PodRecord) -> bool:
        name = queues.of(pod)
        return name != queue and queues.order_key(name, pod) < queues.order_key(queue, last)

    with cluster.ledger.transaction(), queues.shared_out([*pending, last]):
        cluster.ledger.remove(last)
        if not any(map(comes_before, pending)):
            return []
        for step in steps_of_all(snapshot, uids):
            pod = cluster.pods.get(step.uid)
            row = cluster.nodes.row(step.node) if isinstance(step, PlayedPlacement) else None
            if pod is None or row is None or queues.of(pod) == queue:
                continue
            if pod.row < 0:
                if not comes_before(pod):
                    continue
                left_out = True
                cluster.ledger.place(pod, row)
            found.append(step)
    return found if left_out else []


def _preempts_for(step: PlayedStep, uids: set[str]) -> bool:
    """Whether something is preempted for one of these pods, or it is nominated for that."""
    if isinstance(step, PlayedRemoval):
        return step.by in uids
    return step.is_nominated and step.uid in uids


def _made(snapshot: ClusterSnapshot, steps: list[PlayedStep], stack: ExitStack) -> list[PodRecord]:
    """Makes the steps in the snapshot; returns the pods that have a node then. A pod that is placed may
    be removed later: what follows a removal is taken back before it."""
    scheduler, cluster = snapshot.scheduler, snapshot.cluster
    known, reservations, found = cluster.pods, cluster.reservations.known, dict[str, PodRecord]()
    statement: Statement | None = None
    for step in steps:
        reservation = reservations.get(step.uid)
        pod = known.get(step.uid) or (reservation.pod if reservation is not None else None)
        if pod is None:
            continue
        if not isinstance(step, PlayedPlacement):
            if pod.row >= 0:
                statement = None
                stack.enter_context(cluster.ledger.transaction())
                cluster.ledger.remove(pod)
            continue
        row = cluster.nodes.row(step.node)
        if row is None or pod.row >= 0:
            continue
        if step.is_nominated:
            statement = None
            stack.enter_context(cluster.ledger.transaction())
            cluster.ledger.place(pod, row)
        else:
            if statement is None:
                statement = Statement(scheduler.cycle)
                stack.callback(statement.discard)
            profile = profile_for(scheduler, pod)
            column = scheduler.columns.column(profile, pod.cls)
            scheduler.search.nominate_reservation(profile, pod, column, row)
            statement.assume_on(profile, pod, row)
        if pod.row >= 0:
            found[pod.uid] = pod
    return [pod for pod in found.values() if pod.row >= 0]


def rehearsed(
    snapshot: ClusterSnapshot,
    pods: list[PodRecord],
    stack: ExitStack,
    victims: list[PodRecord] | None = None,
) -> Iterator[PodRecord]:
    """Places the pods one after the other until the stack is closed, where they fit or preempt others,
    which are added to the victims; yields those that have a node then."""
    refused = set[int]()
    for pod in pods[:_MOST_TRIED]:
        if pod.cls.id in refused:
            continue
        those = stack.enter_context(placed(snapshot, [pod]))
        if those or _preempts(snapshot, pod, stack, [] if victims is None else victims):
            yield pod
        elif pod.pinned_node is None:
            refused.add(pod.cls.id)


def _others(snapshot: ClusterSnapshot, goal: Goal, is_whole: bool) -> list[PodRecord]:
    """The pending pods and reservations that are tried before the pod, or all others. Pods of the same
    workload are left out."""
    pod = first_pod(snapshot, goal)
    if pod is None:
        return []
    queue, owners = snapshot.scheduler.queue, same_workload(snapshot, pod)
    return [
        each
        for each in _pending(snapshot)
        if each is not pod
        and (is_whole or queue.comes_before(each, pod))
        and not any(owner.controller and owner.uid in owners for owner in each.cls.owners)
    ]


def _pending(snapshot: ClusterSnapshot) -> list[PodRecord]:
    """The pods and reservations that a round tries, in its order."""
    scheduler, queue = snapshot.scheduler, snapshot.scheduler.queue
    found = [
        each
        for each in queue.waiting()
        if each.row < 0
        and not each.gates
        and not each.deletion_pending
        and scheduler.profile_of(each.scheduler) is not None
        and planned_of(snapshot, each) is None
        and not _has_started(snapshot, each)
    ]
    return sorted(found, key=queue.sort_key)


def _preempts(
    snapshot: ClusterSnapshot, pod: PodRecord, stack: ExitStack, victims: list[PodRecord]
) -> bool:
    """Places a pod without a feasible node where it preempts others, if it does."""
    scheduler, cluster = snapshot.scheduler, snapshot.cluster
    profile = profile_for(scheduler, pod)
    column = scheduler.columns.column(profile, pod.cls)
    if column.rejected is not None:
        return False
    nomination = scheduler.preemption.post_filter(profile, pod, column)
    row = cluster.nodes.row(nomination.node) if nomination.node else None
    if row is None:
        return False
    stack.enter_context(cluster.ledger.transaction())
    for decision in nomination.decisions:
        victim = cluster.pods.get(decision.pod.uid) if isinstance(decision, Preempt) else None
        if victim is not None and victim.row >= 0:
            victims.append(victim)
            cluster.ledger.remove(victim)
    cluster.ledger.place(pod, row)
    return True


def _has_started(snapshot: ClusterSnapshot, pod: PodRecord) -> bool:
    """Whether the pod should have started by the time in question where a starvation hold keeps
    capacity for it."""
    cluster = snapshot.cluster
    hold = cluster.reservations.starvation_holds.of(pod)
    if hold is None:
        return False
    asked, cluster.now = cluster.now, snapshot.now
    try:
        start = cluster.jobs.planner.expected_start(hold)
    finally:
        cluster.now = asked
    return start is not None and start <= asked
