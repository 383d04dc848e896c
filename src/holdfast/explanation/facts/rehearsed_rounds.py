"""What a round of the scheduler does with the other pending pods and gangs, before it tries one of them
or until it preempts for it: the scheduler is asked, step by step, and all is taken back.

In a round, pods and gangs are tried one after the other. A pod that has no feasible node preempts at
once; gangs, and pods that their queue does not admit, do after all have been tried. Members beyond
those that a gang needs are tried after the other pods of its priority.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from holdfast.explanation.facts.pod_owners import same_workload
from holdfast.explanation.verdicts import Goal, Subject, attempt, planned_of, profile_for
from holdfast.scheduler.cluster.decisions import Preempt
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.scheduling_cycle import Statement
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.plugins.disruption_budgets import DisruptionBudgets
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_MOST_TRIED = 200


@contextmanager
def placed(snapshot: ClusterSnapshot, pods: Iterable[PodRecord]) -> Iterator[list[PodRecord]]:
    """Places the pods one after the other, those that have a feasible node, until the end of the
    block."""
    scheduler = snapshot.scheduler
    statement, refused = Statement(scheduler.cycle), set[int]()
    admission_error = snapshot.cluster.jobs.queue_limits.admission_error
    try:
        for pod in pods:
            if pod.cls.id in refused:
                continue
            is_placed = not admission_error(pod) and statement.assume(profile_for(scheduler, pod), pod)
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
    with ExitStack() as stack:
        rehearsal = _Rehearsal(snapshot, goal, stack)
        rehearsal.run()
        yield rehearsal.started


@contextmanager
def started_in_round(snapshot: ClusterSnapshot, goal: Goal) -> Iterator[list[PodRecord]]:
    """Places all others that would start in a round before something is preempted or reclaimed for the
    pod or gang, until the end of the block."""
    with ExitStack() as stack:
        rehearsal = _Rehearsal(snapshot, goal, stack, is_whole=True)
        rehearsal.run()
        rehearsal.preempt()
        yield rehearsal.started


class Eviction(NamedTuple):
    """What is preempted or reclaimed for another pod, or for the gang that it leads."""

    pod: PodRecord
    verb: str
    victims: list[PodRecord]


@contextmanager
def started_after_evictions(snapshot: ClusterSnapshot, goal: Goal) -> Iterator[list[Eviction]]:
    """Removes what is preempted and reclaimed for others in a round, and places those that start
    then and are tried before the pod or gang, until the end of the block."""
    with ExitStack() as stack:
        rehearsal = _Rehearsal(snapshot, goal, stack, is_whole=True)
        rehearsal.run()
        rehearsal.preempt(is_all=True)
        rehearsal.reclaim()
        if rehearsal.evictions:
            stack.enter_context(started_before(snapshot, goal))
        yield rehearsal.evictions


@contextmanager
def preempted(snapshot: ClusterSnapshot, job: Job) -> Iterator[list[PodRecord]]:
    """Removes the pods that the preempt action preempts for the job, and places the members that it
    nominates, until the end of the block."""
    scheduler, cluster = snapshot.scheduler, snapshot.cluster
    found = scheduler.preemption_for(job)
    statement = Statement(scheduler.cycle)
    with cluster.ledger.transaction():
        for victim in found.victims:
            cluster.ledger.remove(victim)
        for pod, node in found.places if found.victims else ():
            row = cluster.nodes.row(node)
            if row is not None:
                statement.assume_on(profile_for(scheduler, pod), pod, row)
        try:
            yield found.victims
        finally:
            statement.discard()


class _Rehearsal:
    """A round that is taken back when the stack is closed."""

    def __init__(
        self, snapshot: ClusterSnapshot, goal: Goal, stack: ExitStack, is_whole: bool = False
    ) -> None:
        self._snapshot, self._stack, self._is_whole = snapshot, stack, is_whole
        self.started: list[PodRecord] = []
        self.evictions: list[Eviction] = []
        self._refused: list[PodRecord] = []
        """Leaders of gangs that do not start, and pods that their queue does not admit."""
        self._classes: set[int] = set()
        """Of pods that have no feasible node and preempt nothing."""
        self._pod = pod = first_pod(snapshot, goal)
        jobs, queue = snapshot.cluster.jobs, snapshot.scheduler.queue
        self._job = job = jobs.of(pod) if pod is not None else None
        self._first = job.leader or pod if job is not None else pod
        self._may_be_further = isinstance(goal, Subject) and job is not None and not job.is_ready
        """Whether it may be a member that its gang does not need to start."""
        self._lanes = _Lanes(snapshot, self._others())
        if jobs.queues:
            waiting = queue.waiting(with_jobs=True)
            stack.enter_context(jobs.queues.shared_out(each for each in waiting if each.row < 0))

    def _others(self) -> list[PodRecord]:
        """The pending pods and reservations of this scheduler, and the leaders of gangs, that may be
        tried before the pod or its gang, and itself. Pods of the same workload are left out."""
        snapshot, pod, first = self._snapshot, self._pod, self._first
        if pod is None or first is None:
            return []
        scheduler, queue, jobs = snapshot.scheduler, snapshot.scheduler.queue, snapshot.cluster.jobs
        owners = same_workload(snapshot, pod)
        own = {each.name for each in jobs.partners(self._job)} if self._job is not None else set()
        is_any = self._is_whole or self._may_be_further or bool(jobs.queues)
        found = [
            each
            for each in self._leaders()
            if each is not pod
            and each.row < 0
            and (each.job is None or each.job not in own)
            and not each.gates
            and not each.deletion_pending
            and scheduler.profile_of(each.scheduler) is not None
            and planned_of(snapshot, each) is None
            and (is_any or queue.comes_before(each, first))
            and not any(owner.controller and owner.uid in owners for owner in each.cls.owners)
            and not _has_started(snapshot, each)
        ]
        return [*found, first]

    def _leaders(self) -> Iterator[PodRecord]:
        """The pods that are queued; of gangs whose leader is placed already, another member."""
        for pod in self._snapshot.scheduler.queue.waiting():
            job = self._snapshot.cluster.jobs.of(pod) if pod.row >= 0 else None
            yield pod if job is None else next((p for p in job.waiting() if p.row < 0), pod)

    def run(self) -> None:
        """The allocate action."""
        jobs = self._snapshot.cluster.jobs
        for _ in range(_MOST_TRIED):
            pod = self._lanes.pop()
            if pod is None:
                return
            job = jobs.of(pod)
            if pod is self._first or (job is not None and job is self._job):
                if self._is_whole:
                    continue
                if not self._may_be_further or self._is_next():
                    return
            if job is None:
                self._try_pod(pod)
            else:
                self._try_gang(pod, job)

    def _is_next(self) -> bool:
        """Whether the member is one of those that its gang needs, or the next one beyond them; or is
        not started at all."""
        job = self._job
        assert job is not None
        with self._assumed(job, job.is_ready and self._lanes.has_others) as those:
            return not those or any(each is self._pod for each in those)

    def _try_pod(self, pod: PodRecord) -> None:
        if pod.cls.id in self._classes:
            return
        if self._snapshot.cluster.jobs.queue_limits.admission_error(pod):
            self._refused.append(pod)
            return
        those = self._stack.enter_context(placed(self._snapshot, [pod]))
        if not those and not self._preempts(pod) and pod.pinned_node is None:
            self._classes.add(pod.cls.id)
        self.started += those

    def _preempts(self, pod: PodRecord) -> bool:
        """Places a pod without a feasible node where it preempts others, if it does."""
        scheduler, cluster = self._snapshot.scheduler, self._snapshot.cluster
        profile = profile_for(scheduler, pod)
        column = scheduler.columns.column(profile, pod.cls)
        if column.rejected is not None:
            return False
        nomination = scheduler.preemption.post_filter(profile, pod, column)
        row = cluster.nodes.row(nomination.node) if nomination.node else None
        if row is None:
            return False
        uids = [each.pod.uid for each in nomination.decisions if isinstance(each, Preempt)]
        victims = [cluster.pods[uid] for uid in uids if uid in cluster.pods]
        self._remove(pod, "preempted", [victim for victim in victims if victim.row >= 0])
        cluster.ledger.place(pod, row)
        self.started.append(pod)
        return True

    def _try_gang(self, leader: PodRecord, job: Job) -> None:
        one_by_one = job.is_ready and self._lanes.has_others
        those = self._stack.enter_context(self._assumed(job, one_by_one))
        if not those:
            self._refused.append(leader)
            return
        self.started += those
        rest = [each for each in job.waiting() if each.row < 0]
        if rest and (not job.has_enough or one_by_one):
            self._stack.callback(setattr, job, "has_enough", job.has_enough)
            job.has_enough = True
            self._lanes.enter(rest[0])

    @contextmanager
    def _assumed(self, job: Job, one_by_one: bool = False) -> Iterator[list[PodRecord]]:
        """Places as many members as the gang needs if it starts then; of one that is ready all that
        fit, or one."""
        snapshot = self._snapshot
        scheduler, partners = snapshot.scheduler, snapshot.cluster.jobs.partners(job)
        with attempt(snapshot, job) as tried:
            members = tried.placed if tried.is_ready else []
        statement, was_ready = Statement(scheduler.cycle), job.is_ready
        try:
            with scheduler.search.within(tried.rows):
                for pod in members:
                    statement.assume(profile_for(scheduler, pod), pod)
                    is_ready = job.core is None and all(each.is_ready for each in partners)
                    if one_by_one or (is_ready and not was_ready):
                        break
            if not all(each.is_ready for each in partners):
                statement.discard()
            yield [pod for _, pod in statement.assumed]
        finally:
            statement.discard()

    def _remove(self, pod: PodRecord, verb: str, victims: list[PodRecord]) -> None:
        ledger = self._snapshot.cluster.ledger
        self._stack.enter_context(ledger.transaction())
        for victim in victims:
            ledger.remove(victim)
        self.evictions.append(Eviction(pod, verb, victims))

    def preempt(self, is_all: bool = False) -> None:
        """The preempt action, for those that come before the pod or its gang, or for all."""
        snapshot, first, queue = self._snapshot, self._first, self._snapshot.scheduler.queue
        jobs = snapshot.cluster.jobs
        for leader in sorted(self._refused, key=queue.sort_key):
            if not is_all and first is not None and not queue.comes_before(leader, first):
                return
            job = jobs.of(leader)
            if job is not None:
                if not job.is_ready:
                    victims = self._stack.enter_context(preempted(snapshot, job))
                    if victims:
                        self.evictions.append(Eviction(leader, "preempted", victims))
                    self.started += self._stack.enter_context(self._assumed(job))
                continue
            if victims := snapshot.scheduler.victims_in_queue(leader):
                self._remove(leader, "preempted", victims)
                self.started += self._stack.enter_context(placed(snapshot, [leader]))

    def reclaim(self) -> None:
        """The reclaim action, for others than the pod or its gang."""
        scheduler, cluster = self._snapshot.scheduler, self._snapshot.cluster
        budgets = DisruptionBudgets(cluster)
        own = self._job.name if self._job is not None else None
        for plan in scheduler.reclaim_plans() if scheduler.reclaims else ():
            leader = plan.leader
            is_own = leader is self._pod or (own is not None and leader.job == own)
            if is_own or budgets.split(plan.victims)[0]:
                continue
            self._remove(leader, "reclaimed", plan.victims)
            statement = Statement(scheduler.cycle)
            self._stack.callback(statement.discard)
            for pod, row in plan.places:
                statement.assume_on(profile_for(scheduler, pod), pod, row)
            self.started += [pod for _, pod in statement.assumed]


class _Lanes:
    """The pending pods, and the leaders of gangs, in the order in which the allocate action tries them.
    Where queues share capacity, the one with the smallest part of its share is next, so that each must
    be placed before the next is asked for."""

    def __init__(self, snapshot: ClusterSnapshot, pods: Iterable[PodRecord]) -> None:
        self._jobs, self._sort_key = snapshot.cluster.jobs, snapshot.scheduler.queue.sort_key
        self._lanes: dict[str, list[PodRecord]] = {}
        for each in sorted(pods, key=self._sort_key):
            self._lanes.setdefault(self._name(each), []).append(each)
        self._last = ""

    def _name(self, pod: PodRecord) -> str:
        return self._jobs.queues.of(pod) if self._jobs.queues else ""

    def pop(self) -> PodRecord | None:
        heads = {name: lane[0] for name, lane in self._lanes.items() if lane}
        if not heads:
            return None
        self._last = min(heads, key=self._order(heads)) if len(heads) > 1 else next(iter(heads))
        return self._lanes[self._last].pop(0)

    def _order(self, heads: dict[str, PodRecord]) -> Callable[[str], Any]:
        def order(name: str) -> Any:
            head = heads[name]
            job = self._jobs.of(head)
            is_interrupted = job is not None and job.interrupted
            return (
                not is_interrupted,
                self._jobs.queues.order_key(name, head),
                self._sort_key(head),
            )

        return order

    @property
    def has_others(self) -> bool:
        """Whether other queues than that of the last pod have pods."""
        return any(lane for name, lane in self._lanes.items() if name != self._last)

    def enter(self, pod: PodRecord) -> None:
        """Queues the rest of a gang."""
        insort(self._lanes.setdefault(self._name(pod), []), pod, key=self._sort_key)


def _has_started(snapshot: ClusterSnapshot, pod: PodRecord) -> bool:
    """Whether the pod, with its gang, should have started by the time in question where starvation
    holds keep capacity for it."""
    cluster = snapshot.cluster
    job, of = cluster.jobs.of(pod), cluster.reservations.starvation_holds.of
    holds = [of(each) for each in (job.waiting() if job is not None else [pod])]
    asked, cluster.now = cluster.now, snapshot.now
    try:
        expected = cluster.jobs.planner.expected_start
        starts = [expected(hold) if hold is not None else None for hold in holds]
    finally:
        cluster.now = asked
    return all(start is not None and start <= asked for start in starts)
