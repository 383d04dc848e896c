"""The scheduling queue: active, back-off, unschedulable and gated pods.

                 add                    pop
    (new) ───────────────► active ──────────────► being scheduled
      │                     ▲  ▲                      │        │
      │ gated               │  │ back-off over        │ error  │ no node
      ▼                     │  │                      ▼        ▼
    gated ──── ungated ─────┘  └──────────────── backoff ◄── unschedulable
                                                       woken up before its back-off is over

Back-off times are kube-scheduler's: 1 s after a failed attempt, doubling up to 10 s with every further
failure of the same kind (unschedulable, or error). When no pod is active, a pod that was woken up is
tried before its back-off is over; a pod whose attempt ended in an error is not. The rest of a job whose
start was interrupted does not wait either: others would take the capacity that was freed for it.

Unschedulable pods of one class and profile, or of one shape (`pod_shapes`), form a group: they were
rejected for the same reasons and the same changes help them. When a group is woken up its first pod is
tried as a scout, and the next one only if the scout found a node: a node that is infeasible for one is
infeasible for all. So ten thousand pods that wait for the same change cost as much as one. Pods with a
nominated node are tried first: the rest of the group has to leave that node to them.

Of a job of several pods only the leader is queued; the other members follow it. Leaders of jobs of one
shape form a group, as pods of one class do.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import JobName, PodRecord

T = TypeVar("T")

_TRIES = 50
"""The number of attempts at a pod in one round while no pod is placed."""
_FEW = 16
"""How many stale entries the order of a group may have before they are dropped."""
_NUMBERS = 1000
"""How many group numbers are kept before unused ones are dropped."""
Key = tuple[int, int]
"""Profile index and class id, or instead of the class a `number` below zero."""


class Group:
    """Unschedulable pods of one class or shape."""

    __slots__ = (
        "condition_message",
        "key",
        "order",
        "pods",
        "shapes_version",
        "tried",
        "wakes_on",
        "wakeups",
        "watched",
    )

    def __init__(self, key: Key) -> None:
        self.key = key
        self.pods: dict[str, PodRecord] = {}
        self.order: list[tuple[Any, ...]] = []
        """The pods in the order in which they are tried; a heap, with stale entries of pods that left
        the group."""
        self.wakeups = 0
        """How often the group was woken up."""
        self.tried: dict[str, int] = {}
        """The value of `wakeups` when a pod was last tried, by uid."""
        self.wakes_on = Change.NONE
        self.watched: frozenset[Hashable] | None = None
        """The storage objects that plugins watch for the class; None until asked."""
        self.condition_message = ""
        """The last condition message of all pods of the group; empty if messages may differ."""
        self.shapes_version: Hashable = None
        """`PodShapes.version` when all pods of the group were last known to be of one shape."""


class SchedulingQueue:
    """The queue of pending pods. A pod is in one place at a time: see `place`."""

    def __init__(
        self,
        sort_key: Callable[[PodRecord], tuple[Any, ...]],
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        waiting_members: Callable[[JobName], list[PodRecord]] = lambda job: [],
        ignores_backoff: Callable[[PodRecord], bool] = lambda pod: False,
    ) -> None:
        """`waiting_members` returns the pending members of a job; `ignores_backoff` says whether a pod
        that is woken up is tried before its back-off is over."""
        self.sort_key = sort_key
        self._initial = initial_backoff
        self._max = max_backoff
        self._waiting_members = waiting_members
        self._ignores_backoff = ignores_backoff
        self._active = ActivePods()
        self._backoff: list[tuple[float, int, PodRecord]] = []
        self._early: list[tuple[tuple[Any, ...], int, PodRecord]] = []
        """The pods in `_backoff` in the order in which they are tried early: by the second in which
        their back-off ends, then by sort key."""
        self._errors: list[tuple[float, int, PodRecord]] = []
        self._gated: dict[str, PodRecord] = {}
        self._groups: dict[Key, Group] = {}
        self._place: dict[str, tuple[str, int]] = {}
        self._group_of: dict[str, Group] = {}
        self._retry_at: dict[str, float] = {}
        self._not_early: dict[str, tuple[str, int]] = {}
        """The places of pods that are not tried before their back-off is over."""
        self._scouts: dict[str, Key] = {}
        """The keys of the groups that scouts belong to, by the scout's uid."""
        self._scouted: set[Key] = set()
        self._now = 0.0
        self._tokens = 0
        self.failures: Counter[tuple[str, str]] = Counter()
        """The number of failed attempts by scheduler name and result: unschedulable or error."""
        self.refused: dict[str, PodRecord] = {}
        """Pending pods that were unschedulable since a reader last emptied this, by uid."""
        self.refusals = 0
        """How often an attempt found a pod unschedulable."""
        self._tries: dict[str, int] = {}
        """How often each pod was popped in this round since a pod was placed."""
        self.set_aside: list[tuple[PodRecord, int]] = []
        """Pods that were tried too often, and how often, since a reader last emptied this."""
        self.entered: Counter[str] = Counter()
        """How many pods entered each place."""
        self.numbers: dict[Hashable, int] = {}
        """The numbers of group shapes; see `number`."""
        self._last_number = 0
        self._most_numbers = _NUMBERS

    def add(self, pod: PodRecord) -> None:
        """Makes the pod active."""
        if pod.uid in self._place:
            self.remove(pod)
        self._active.add((*self.sort_key(pod), self._enter(pod, "active"), pod))

    def changed(self, pod: PodRecord, now: float) -> None:
        """Queues a pod that is new, or that changed so that it may be schedulable now. A back-off is
        not cut short."""
        self._now = now
        if pod.uid not in self._place and pod.uid not in self._retry_at:
            self.add(pod)
        elif self.place(pod.uid) != "backoff":
            self._scout_done(pod, next_scout=True)
            self.wake_pod(pod, now)

    def gate(self, pod: PodRecord) -> None:
        """Keeps the pod out of the active queue until it is added again."""
        self._scout_done(pod, next_scout=True)
        self.remove(pod)
        self._enter(pod, "gated")
        self._gated[pod.uid] = pod

    def gated(self) -> list[PodRecord]:
        """The gated pods."""
        return list(self._gated.values())

    def follow(self, pod: PodRecord) -> None:
        """The pod waits for the leader of its job, which is queued for it."""
        self._scout_done(pod, next_scout=True)
        self.remove(pod)
        self._enter(pod, "following")

    def reject(
        self, pod: PodRecord, key: Key, wakes_on: int, now: float, next_scout: bool = False
    ) -> Collection[PodRecord]:
        """Puts the pod among the unschedulable ones until a change in `wakes_on`. If it was a scout
        the rest of its group is not tried and is returned; with `next_scout` the reasons may not hold
        for the rest, and the next pod is tried."""
        self._now = now
        self.failures[pod.scheduler, "unschedulable"] += 1
        self.refused[pod.uid] = pod
        self.refusals += 1
        pod.attempts += 1
        pod.errors = 0
        self._back_off(pod, pod.attempts, now)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        group.wakes_on |= wakes_on
        group.watched = None
        pod.wakes_on = wakes_on
        group.condition_message = ""
        self._join(group, pod)
        scouted = self._scouts.get(pod.uid)
        was_scout = scouted == key
        # A pod that is not of its group any more was no scout for the rest of it.
        self._scout_done(pod, next_scout or not was_scout)
        return list(group.pods.values()) if was_scout and not next_scout else ()

    def retry_later(self, pod: PodRecord, now: float, is_error: bool = True) -> None:
        """Puts the pod in back-off, to be tried again without waiting for a change: after an error, or
        without `is_error` because it lost its place before it was bound."""
        self._now = now
        self._scout_done(pod, next_scout=True)
        self.failures[pod.scheduler, "error" if is_error else "unschedulable"] += 1
        if is_error:
            pod.errors += 1
            self._back_off(pod, pod.errors, now)
        else:
            pod.attempts += 1
            pod.errors = 0
            self._back_off(pod, pod.attempts, now)
        self._push(self._errors, self._retry_at[pod.uid], pod)
        self._not_early[pod.uid] = self._place[pod.uid]

    def is_scout(self, pod: PodRecord) -> bool:
        return pod.uid in self._scouts

    def placed(self, pod: PodRecord, now: float) -> None:
        """The pod was placed on a node: if it was a scout, the next of its group is tried."""
        self._now = now
        self._tries.clear()
        if self._scouts:
            self._scout_done(pod, next_scout=True)

    def wake(self, group: Group, now: float) -> None:
        """Wakes up a group: its pods are tried again one after the other, as long as they are
        placed."""
        self._now = now
        group.wakeups += 1
        if group.key not in self._scouted:
            self._send_scout(group)

    def _send_scout(self, group: Group) -> None:
        again = []
        while group.order:
            entry = heapq.heappop(group.order)
            pod: PodRecord = entry[-1]
            if self._place.get(pod.uid) != ("unschedulable", entry[-2]):
                continue
            if group.tried.get(pod.uid) == group.wakeups:
                again.append(entry)
                continue
            self._scouts[pod.uid] = group.key
            self._scouted.add(group.key)
            self.wake_pod(pod, self._now)
            break
        for entry in again:
            heapq.heappush(group.order, entry)

    def _scout_done(self, pod: PodRecord, next_scout: bool) -> None:
        key = self._scouts.pop(pod.uid, None)
        if key is None:
            return
        self._scouted.discard(key)
        group = self._groups.get(key)
        if next_scout and group is not None:
            self._send_scout(group)

    def wake_pod(self, pod: PodRecord, now: float) -> None:
        """Makes the pod active once its back-off is over."""
        due = self._retry_at.get(pod.uid, 0.0)
        if due > now and not self._ignores_backoff(pod):
            self.remove(pod)
            self._push(self._backoff, due, pod)
            order = (int(due), *self.sort_key(pod))
            heapq.heappush(self._early, (order, self._place[pod.uid][1], pod))
        else:
            self.add(pod)

    def pop(self, now: float) -> PodRecord | None:
        """Removes and returns the next pod to try; None if there is none."""
        if self._errors or self._backoff:
            self._end_backoffs(now)
        while (entry := self._active.pop()) is not None:
            pod: PodRecord = entry[-1]
            place = self._place.get(pod.uid)
            if place is not None and place[1] == entry[-2]:
                del self._place[pod.uid]
                if pod.uid not in self._tries:
                    self._tries[pod.uid] = 1
                    return pod
                if self._may_be_tried(pod, now):
                    return pod
        while self._live(self._early):
            pod = heapq.heappop(self._early)[2]
            del self._place[pod.uid]
            if self._may_be_tried(pod, now):
                return pod
        self._backoff.clear()  # its entries are all stale: the pods were tried early
        return None

    def _may_be_tried(self, pod: PodRecord, now: float) -> bool:
        """Whether the pod may be tried again in this round; if not, it is put in back-off."""
        times = self._tries[pod.uid] = self._tries.get(pod.uid, 0) + 1
        if times <= _TRIES:
            return True
        self.set_aside.append((pod, times - 1))
        self.retry_later(pod, now)
        return False

    def new_round(self) -> None:
        self._tries.clear()

    def tried(self) -> list[str]:
        """The uids of pods tried in this round since a pod was placed, the most often tried first."""
        return sorted(self._tries, key=lambda uid: -self._tries[uid])

    def pop_pod(self, pod: PodRecord) -> bool:
        """As `pop`, for this pod. False if it is not active, in a back-off that may be cut short, or
        unschedulable: then it stays where it is."""
        place = self._place.get(pod.uid)
        if place is None or place[0] not in ("active", "backoff", "unschedulable"):
            return False
        if place == self._not_early.get(pod.uid):
            return False
        self.take(pod)
        return True

    def regroup(self, pod: PodRecord, key: Key) -> Group:
        """Moves an unschedulable pod to the group with this key, and returns the group. It was rejected
        for the same reasons as those there, or is the first."""
        before = self._group_of[pod.uid]
        self.remove(pod)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        group.wakes_on |= before.wakes_on
        group.condition_message = ""
        self._join(group, pod)
        return group

    def _join(self, group: Group, pod: PodRecord) -> None:
        self._enter(pod, "unschedulable")
        group.pods[pod.uid] = pod
        group.tried[pod.uid] = group.wakeups
        entry = (not pod.nominated, *self.sort_key(pod), self._place[pod.uid][1], pod)
        heapq.heappush(group.order, entry)
        self._group_of[pod.uid] = group

    def take(self, pod: PodRecord) -> None:
        """Removes the pod so that the caller can try it now, as if it had been popped."""
        self._scout_done(pod, next_scout=True)
        self.remove(pod)

    def remove(self, pod: PodRecord) -> None:
        """Removes the pod from wherever it is; its back-off is kept."""
        place = self._place.pop(pod.uid, None)
        if place is None:
            return
        if place[0] == "gated":
            del self._gated[pod.uid]
        elif place[0] == "unschedulable":
            group = self._group_of.pop(pod.uid)
            del group.pods[pod.uid]
            group.tried.pop(pod.uid, None)
            if not group.pods:
                del self._groups[group.key]
            elif len(group.order) > 2 * len(group.pods) + _FEW:
                self._forget_gone(group)

    def _forget_gone(self, group: Group) -> None:
        """Drops stale entries from the order of a group: they may never get to its top."""
        group.order = [
            entry
            for entry in group.order
            if self._place.get(entry[-1].uid) == ("unschedulable", entry[-2])
        ]
        heapq.heapify(group.order)

    def forget(self, pod: PodRecord) -> None:
        """Removes a pod that is no longer pending, and its back-off."""
        if self._scouts:
            self._scout_done(pod, next_scout=True)
        self.remove(pod)
        if self._retry_at:
            self._retry_at.pop(pod.uid, None)
            self._not_early.pop(pod.uid, None)
        if self.refused:
            self.refused.pop(pod.uid, None)

    def untried(self) -> list[PodRecord]:
        """The active pods and those in back-off, in order."""
        entries = [(entry[-2], entry[-1]) for entry in self._active.entries()]
        entries += [(token, pod) for heap in (self._errors, self._backoff) for _, token, pod in heap]
        places = {("active", token) for token, _ in entries} | {("backoff", t) for t, _ in entries}
        found = {pod.uid: pod for _, pod in entries if self._place.get(pod.uid) in places}
        return sorted(found.values(), key=self.sort_key)

    def some_untried(self, most: int) -> list[PodRecord]:
        """Up to so many of the active pods and of those in back-off, in no order; cheap even if tens of
        thousands wait."""
        entries = [*self._active.entries()[:most], *self._errors[:most], *self._backoff[:most]]
        found = {entry[-1].uid: entry[-1] for entry in entries}
        pods = [pod for uid, pod in found.items() if self.place(uid) in ("active", "backoff")]
        return pods[:most]

    def unschedulable(self) -> list[PodRecord]:
        """The unschedulable pods, in order."""
        return sorted(self.in_no_order(), key=self.sort_key)

    def in_no_order(self) -> list[PodRecord]:
        """The unschedulable pods, in no order."""
        return [pod for group in self._groups.values() for pod in group.pods.values()]

    def group_key(self, pod: PodRecord) -> Key | None:
        """The key of the pod's group; None if it is not unschedulable."""
        group = self._group_of.get(pod.uid)
        return group.key if group is not None else None

    def number(self, shape: Hashable) -> int:
        """A number below zero that takes the place of the class in the key of a group whose pods share
        this shape. It stays the same as long as there is such a group."""
        number = self.numbers.get(shape)
        if number is None:
            if len(self.numbers) >= self._most_numbers:
                self._forget_numbers()
            self._last_number -= 1
            number = self.numbers[shape] = self._last_number
        return number

    def _forget_numbers(self) -> None:
        """Drops the numbers of groups that are gone."""
        in_use = {key[1] for key in (*self._groups, *self._scouted)}
        self.numbers = {shape: number for shape, number in self.numbers.items() if number in in_use}
        self._most_numbers = max(_NUMBERS, 2 * len(self.numbers))

    def waiting(self, with_jobs: bool = False, popped: Iterable[PodRecord] = ()) -> list[PodRecord]:
        """All queued pods but gated ones, and those in `popped`, in no order. With `with_jobs` also the
        pending members that leaders are queued for."""
        entries = [entry[-1] for entry in self._active.entries()]
        entries += [pod for heap in (self._errors, self._backoff) for _, _, pod in heap]
        entries = [pod for pod in entries if self.place(pod.uid) in ("active", "backoff")]
        entries += [pod for group in self._groups.values() for pod in group.pods.values()]
        found = {pod.uid: pod for pod in (*entries, *popped)}
        if with_jobs:
            for pod in list(found.values()):
                if pod.job is not None:
                    found |= {member.uid: member for member in self._waiting_members(pod.job)}
        return list(found.values())

    def comes_before(self, one: PodRecord, other: PodRecord) -> bool:
        """Whether one is tried before the other."""
        return self.sort_key(one) < self.sort_key(other)

    def groups(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def has(self, group: Group) -> bool:
        """Whether the group still has pods."""
        return self._groups.get(group.key) is group

    def next_due(self) -> float | None:
        """When the next back-off ends."""
        heads = [heap[0][0] for heap in (self._live(self._errors), self._live(self._backoff)) if heap]
        return min(heads, default=None)

    def end_backoffs(self) -> bool:
        """Makes all pods in back-off active; whether there are any."""
        some = self.next_due() is not None
        self._end_backoffs(math.inf)
        return some

    def place(self, uid: str) -> str | None:
        """Where the pod is: active, backoff, unschedulable, gated, following, or None."""
        place = self._place.get(uid)
        return place[0] if place else None

    def __len__(self) -> int:
        return len(self._place)

    def counts(self) -> dict[str, int]:
        counts = dict.fromkeys(("active", "backoff", "unschedulable", "gated"), 0)
        for place, _ in self._place.values():
            counts["unschedulable" if place == "following" else place] += 1
        return counts

    def _enter(self, pod: PodRecord, place: str) -> int:
        self._tokens += 1
        self.entered[place] += 1
        self._place[pod.uid] = (place, self._tokens)
        return self._tokens

    def _push(self, heap: list[tuple[float, int, PodRecord]], due: float, pod: PodRecord) -> None:
        heapq.heappush(heap, (due, self._enter(pod, "backoff"), pod))

    def set_attempts(self, pod: PodRecord, attempts: int, retry_at: float) -> None:
        """As if so many attempts at the unschedulable pod had failed, and its back-off ended then."""
        pod.attempts = attempts
        self._retry_at[pod.uid] = retry_at

    def back_off(self, failures: int) -> float:
        """The back-off in seconds after this many failures in a row."""
        return min(self._initial * 2.0 ** min(failures - 1, 30), self._max)

    def _back_off(self, pod: PodRecord, failures: int, now: float) -> None:
        self.remove(pod)
        self._retry_at[pod.uid] = now + self.back_off(failures)

    def _end_backoffs(self, now: float) -> None:
        for heap in (self._errors, self._backoff):
            while self._live(heap) and heap[0][0] <= now:
                self.add(heap[0][2])

    def _live(self, heap: list[tuple[T, int, PodRecord]]) -> list[tuple[T, int, PodRecord]]:
        """The heap, after dropping stale entries at its top."""
        while heap and self._place.get(heap[0][2].uid) != ("backoff", heap[0][1]):
            heapq.heappop(heap)
        return heap


class ActivePods:
    """A sorted list of entries. Pods are added in bursts and popped one after the other, so new entries
    are sorted in together at the next pop; sorting a list that is mostly sorted is cheap."""

    __slots__ = ("_entries", "_head", "_new")

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self._head = 0
        self._new: list[Any] = []

    def add(self, entry: Any) -> None:
        self._new.append(entry)

    def entries(self) -> list[Any]:
        """All entries, in no order."""
        return [*self._entries[self._head :], *self._new]

    def pop(self) -> Any:
        """The first entry, or None."""
        if self._new:
            del self._entries[: self._head]
            self._head = 0
            self._entries += self._new
            self._new = []
            self._entries.sort()
        if self._head == len(self._entries):
            self._entries.clear()
            self._head = 0
            return None
        entry = self._entries[self._head]
        self._entries[self._head] = None
        self._head += 1
        return entry
