"""The allocate action: schedules pending pods in the order of the scheduling queue until none is left.

Where jobs belong to queues that share capacity, the queue with the smallest part of its deserved share
is served first, and queues that have all of it last. A queue that cannot be served holds up no other.
"""

import heapq
import math
from collections import deque
from typing import Any

from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.records import Phase, PodRecord


class Allocate(Action):
    """Schedules pending pods."""

    name = "allocate"

    def run(self, round_: Round) -> None:
        if round_.cluster.jobs.queues:
            _QueueLanes(round_).run()
            return
        queue, cycle, profiles, now = round_.queue, round_.cycle, round_.profiles, round_.now
        is_bounded = round_.enough is not None or round_.pods_left < math.inf
        while round_.pods_left > 0 and (pod := queue.pop(now)) is not None:
            if pod.job is not None:
                round_.tried(round_.gangs.schedule(pod, now))
                continue
            if pod.queue:
                schedule_one(round_, pod)
            else:
                cycle.schedule(profiles[pod.scheduler], pod, now)
            if is_bounded:
                round_.tried(1)


def schedule_one(round_: Round, pod: PodRecord) -> None:
    """Schedules a pod that is not in a gang, if its queue admits it."""
    profile = round_.profiles[pod.scheduler]
    refusal = round_.cluster.jobs.queue_limits.admission_error(pod)
    if refusal:
        round_.failures.handle_not_admitted(profile, pod, refusal, round_.now)
        round_.not_admitted.append(pod)
    else:
        round_.cycle.schedule(profile, pod, round_.now)


class _QueueLanes:
    """Serves several queues in one round, one pod or job at a time."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self._queues = round_.cluster.jobs.queues
        self._lanes: dict[str, deque[PodRecord]] = {}
        self._order: list[tuple[Any, str]] = []
        self._started = False

    def run(self) -> None:
        round_ = self._round
        self._fill()
        if not self._lanes:
            return
        if len(self._lanes) > 1:
            self._queues.share_out(round_.queue.waiting(with_jobs=True, popped=self._popped()))
        self._order = [(self._order_key(name), name) for name in self._lanes]
        heapq.heapify(self._order)
        self._started = True
        while round_.pods_left > 0 and (pod := self._next()) is not None:
            if pod.job is not None:
                own = self._queues.of(pod)
                others = any(name != own for _, name in self._order)
                round_.tried(round_.gangs.schedule(pod, round_.now, one_by_one=others))
            else:
                schedule_one(round_, pod)
                round_.tried(1)
            self._fill()
        for pod in self._popped():
            if pod.phase is Phase.PENDING:
                round_.queue.add(pod)

    def _popped(self) -> list[PodRecord]:
        return [pod for lane in self._lanes.values() for pod in lane]

    def _fill(self) -> None:
        """Pops all active pods and sorts them into the lanes of their queues."""
        while (pod := self._round.queue.pop(self._round.now)) is not None:
            name = self._queues.of(pod)
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = deque()
            if not self._started:
                lane.append(pod)
                continue
            self._enter(lane, pod)
            if len(lane) == 1:
                heapq.heappush(self._order, (self._order_key(name), name))

    def _enter(self, lane: deque[PodRecord], pod: PodRecord) -> None:
        """Inserts a pod that was queued during the action: the rest of a job that became ready."""
        key, at = self._round.queue.sort_key(pod), len(lane)
        while at and self._round.queue.sort_key(lane[at - 1]) > key:
            at -= 1
        lane.insert(at, pod)

    def _order_key(self, name: str) -> Any:
        """The order of queues: interrupted jobs first, then by share, then by the first pod."""
        head = self._lanes[name][0]
        job = self._round.cluster.jobs.of(head)
        is_interrupted = job is not None and job.interrupted
        return (
            not is_interrupted,
            self._queues.order_key(name, head),
            self._round.queue.sort_key(head),
        )

    def _next(self) -> PodRecord | None:
        while self._order:
            order_key, name = heapq.heappop(self._order)
            lane = self._lanes.get(name)
            if not lane:
                continue
            now = self._order_key(name)
            if now > order_key and self._order and now > self._order[0][0]:
                heapq.heappush(self._order, (now, name))
                continue
            pod = lane.popleft()
            if lane:
                heapq.heappush(self._order, (self._order_key(name), name))
            if pod.phase is Phase.PENDING:  # not if it was placed together with a partner job
                return pod
        return None
