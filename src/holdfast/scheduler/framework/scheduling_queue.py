"""Pods waiting for their turn, for their back-off to end, or for a change that helps.

                 add                    pop
    (new) ───────────────► active ──────────────► being scheduled
      │                     ▲  ▲                      │        │
      │ gated               │  │ back-off over        │ error  │ no node
      ▼                     │  │                      ▼        ▼
    gated ──── ungated ─────┘  └──────────────── backoff ◄── unschedulable
                                                       woken, too soon after the last attempt

Timing is kube-scheduler's: an attempt that failed is followed by a back-off of 1 s, doubling to 10 s
with every further failure of its kind, no node or an error. When nothing else is waiting, a pod that
was woken is tried before its back-off is over; one whose attempt ended in an error is not.

Unschedulable pods are kept in groups of one class (and profile): they were rejected for the same
reasons and are helped by the same changes. When a group is woken its first pod goes ahead as a scout;
the next follows only if the scout found a node: what will not do for one will not do for the others. So
ten thousand pods that wait for the same thing cost as much as one.

Of a job of several pods one stands here for all of them; the others follow it. Jobs of one shape are a
group as pods of one class are.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pods import PodRecord

T = TypeVar("T")

_TRIES = 50
"""So often a pod is tried in one round while no pod finds a place."""
_FEW = 16
"""Pods that have left a group and may stay in its order."""
_NUMBERS = 1000
"""Numbers of groups that are kept without looking whether they are in use."""
Key = tuple[int, int]
"""Profile and class, or a `number` below zero."""


class Group:
    """Unschedulable pods of one class."""

    __slots__ = ("condition_message", "key", "order", "pods", "tried", "turn", "wakes_on", "watched")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.pods: dict[str, PodRecord] = {}
        self.order: list[tuple[Any, ...]] = []
        """The pods as they are to be tried; a heap, in which some may have left the group."""
        self.turn = 0
        """How often the group was woken."""
        self.tried: dict[str, int] = {}
        """In which turn a pod was last tried."""
        self.wakes_on = Change.NONE
        self.watched: frozenset[Hashable] | None = None
        """What of storage the plugins watch for the class, once that was asked."""
        self.condition_message = ""
        """The message all of them were last told; empty if they may have been told different ones."""


class SchedulingQueue:
    def __init__(
        self,
        sort_key: Callable[[PodRecord], tuple[Any, ...]],
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
    ) -> None:
        self.sort_key = sort_key
        self._initial = initial_backoff
        self._max = max_backoff
        self._active = ActivePods()
        self._backoff: list[tuple[float, int, PodRecord]] = []
        self._early: list[tuple[tuple[Any, ...], int, PodRecord]] = []
        """The pods in `_backoff` in the order in which they are tried before their time: by the second
        their back-off ends in, then as if they were active."""
        self._errors: list[tuple[float, int, PodRecord]] = []
        self._gated: dict[str, PodRecord] = {}
        self._groups: dict[Key, Group] = {}
        self._place: dict[str, tuple[str, int]] = {}
        self._group_of: dict[str, Group] = {}
        self._retry_at: dict[str, float] = {}
        self._scouts: dict[str, Key] = {}
        """Pods that go ahead of their group, by uid."""
        self._scouted: set[Key] = set()
        self._now = 0.0
        self._tokens = 0
        self.failures: Counter[tuple[str, str]] = Counter()
        """How many attempts came to nothing, by scheduler name and why: unschedulable, or error."""
        self.refused: dict[str, PodRecord] = {}
        """Pods no node would do for since somebody last took them from here, and that still wait."""
        self.refusals = 0
        """How often no node would do for a pod."""
        self._tries: dict[str, int] = {}
        """How often pods were popped in this round since one was placed."""
        self.set_aside: list[tuple[PodRecord, int]] = []
        """Those popped too often, and how often, since somebody last took them from here."""
        self.entered: Counter[str] = Counter()
        """How many pods came to each place."""
        self.numbers: dict[Hashable, int] = {}
        """Of groups whose pods have more in common than their class; see `number`."""
        self._last_number = 0
        self._most_numbers = _NUMBERS

    def add(self, pod: PodRecord) -> None:
        """The pod is to be tried as soon as its turn comes."""
        if pod.uid in self._place:
            self.remove(pod)
        self._active.add((*self.sort_key(pod), self._enter(pod, "active"), pod))

    def changed(self, pod: PodRecord, now: float) -> None:
        """The pod is new, or may fare better than before; that does not shorten a back-off."""
        self._now = now
        if pod.uid not in self._place and pod.uid not in self._retry_at:
            self.add(pod)
        elif self.place(pod.uid) != "backoff":
            self._scout_back(pod, go_on=True)
            self.wake_pod(pod, now)

    def gate(self, pod: PodRecord) -> None:
        """The pod is not to be tried until it is added again."""
        self._scout_back(pod, go_on=True)
        self.remove(pod)
        self._enter(pod, "gated")
        self._gated[pod.uid] = pod

    def gated(self) -> list[PodRecord]:
        """The pods that are not to be tried until they are added again."""
        return list(self._gated.values())

    def follow(self, pod: PodRecord) -> None:
        """The pod waits for the turn of its job, for which another member stands here."""
        self._scout_back(pod, go_on=True)
        self.remove(pod)
        self._enter(pod, "following")

    def reject(
        self, pod: PodRecord, key: Key, wakes_on: int, now: float, go_on: bool = False
    ) -> Collection[PodRecord]:
        """No node will do for the pod until something changes; nor, if it was a scout, for those it
        went ahead of, which are returned. With `go_on` that may be different for others."""
        self._now = now
        self.failures[pod.scheduler, "unschedulable"] += 1
        self.refused[pod.uid] = pod
        self.refusals += 1
        pod.attempts += 1
        pod.errors = 0
        self._back_off(pod, pod.attempts, now)
        self._enter(pod, "unschedulable")
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        group.wakes_on |= wakes_on
        group.watched = None
        pod.wakes_on = wakes_on
        group.condition_message = ""
        group.pods[pod.uid] = pod
        group.tried[pod.uid] = group.turn
        heapq.heappush(group.order, (*self.sort_key(pod), self._place[pod.uid][1], pod))
        self._group_of[pod.uid] = group
        was_scout = pod.uid in self._scouts
        self._scout_back(pod, go_on)
        return list(group.pods.values()) if was_scout and not go_on else ()

    def retry_later(self, pod: PodRecord, now: float, is_error: bool = True) -> None:
        """The attempt ended in an error that has nothing to do with nodes; or, without `is_error`, the
        pod lost its place again before it was bound."""
        self._now = now
        self._scout_back(pod, go_on=True)
        self.failures[pod.scheduler, "error" if is_error else "unschedulable"] += 1
        if is_error:
            pod.errors += 1
            self._back_off(pod, pod.errors, now)
        else:
            pod.attempts += 1
            pod.errors = 0
            self._back_off(pod, pod.attempts, now)
        self._push(self._errors, self._retry_at[pod.uid], pod)

    def is_scout(self, pod: PodRecord) -> bool:
        return pod.uid in self._scouts

    def placed(self, pod: PodRecord, now: float) -> None:
        """A node was found for the pod."""
        self._now = now
        self._tries.clear()
        if self._scouts:
            self._scout_back(pod, go_on=True)

    def wake(self, group: Group, now: float) -> None:
        """The pods of a group are to be tried again, one after the other as long as that helps."""
        self._now = now
        group.turn += 1
        if group.key not in self._scouted:
            self._send_scout(group)

    def _send_scout(self, group: Group) -> None:
        again = []
        while group.order:
            entry = heapq.heappop(group.order)
            pod: PodRecord = entry[-1]
            if self._place.get(pod.uid) != ("unschedulable", entry[-2]):
                continue
            if group.tried.get(pod.uid) == group.turn:
                again.append(entry)
                continue
            self._scouts[pod.uid] = group.key
            self._scouted.add(group.key)
            self.wake_pod(pod, self._now)
            break
        for entry in again:
            heapq.heappush(group.order, entry)

    def _scout_back(self, pod: PodRecord, go_on: bool) -> None:
        key = self._scouts.pop(pod.uid, None)
        if key is None:
            return
        self._scouted.discard(key)
        group = self._groups.get(key)
        if go_on and group is not None:
            self._send_scout(group)

    def wake_pod(self, pod: PodRecord, now: float) -> None:
        """The pod is to be tried again, once its back-off is over."""
        due = self._retry_at.get(pod.uid, 0.0)
        if due > now:
            self.remove(pod)
            self._push(self._backoff, due, pod)
            order = (int(due), *self.sort_key(pod))
            heapq.heappush(self._early, (order, self._place[pod.uid][1], pod))
        else:
            self.add(pod)

    def pop(self, now: float) -> PodRecord | None:
        """The next pod to try, which then belongs to the caller."""
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
        self._backoff.clear()  # what is left there was tried early
        return None

    def _may_be_tried(self, pod: PodRecord, now: float) -> bool:
        """Else it was tried too often in this round, and is set aside as after an error."""
        times = self._tries[pod.uid] = self._tries.get(pod.uid, 0) + 1
        if times <= _TRIES:
            return True
        self.set_aside.append((pod, times - 1))
        self.retry_later(pod, now)
        return False

    def new_round(self) -> None:
        self._tries.clear()

    def tried(self) -> list[str]:
        """The uids of pods tried in this round since one was placed, the most often tried first."""
        return sorted(self._tries, key=lambda uid: -self._tries[uid])

    def take(self, pod: PodRecord) -> None:
        """The pod is to be tried now, as if its turn had come."""
        self._scout_back(pod, go_on=True)
        self.remove(pod)

    def remove(self, pod: PodRecord) -> None:
        """The pod is in no queue any more."""
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
        """Leaves in the order of a group only the pods that are in it: the others may never get to its
        top."""
        group.order = [
            entry
            for entry in group.order
            if self._place.get(entry[-1].uid) == ("unschedulable", entry[-2])
        ]
        heapq.heapify(group.order)

    def forget(self, pod: PodRecord) -> None:
        """The pod wants a node no more."""
        if self._scouts:
            self._scout_back(pod, go_on=True)
        self.remove(pod)
        if self._retry_at:
            self._retry_at.pop(pod.uid, None)
        if self.refused:
            self.refused.pop(pod.uid, None)

    def untried(self) -> list[PodRecord]:
        """The pods whose turn is still to come, or to come again by itself, in order."""
        entries = [(entry[-2], entry[-1]) for entry in self._active.entries()]
        entries += [(token, pod) for heap in (self._errors, self._backoff) for _, token, pod in heap]
        places = {("active", token) for token, _ in entries} | {("backoff", t) for t, _ in entries}
        found = {pod.uid: pod for _, pod in entries if self._place.get(pod.uid) in places}
        return sorted(found.values(), key=self.sort_key)

    def unschedulable(self) -> list[PodRecord]:
        """The pods that wait for a change, in order."""
        return sorted(self.in_no_order(), key=self.sort_key)

    def in_no_order(self) -> list[PodRecord]:
        """The same, but for that."""
        return [pod for group in self._groups.values() for pod in group.pods.values()]

    def kind(self, pod: PodRecord) -> Key | None:
        """What it has in common with others that were rejected for the same reasons."""
        group = self._group_of.get(pod.uid)
        return group.key if group is not None else None

    def number(self, shape: Hashable) -> int:
        """The number of a group for its key, where its pods have more in common than their class: below
        zero, and the same for the same shape as long as there is such a group."""
        number = self.numbers.get(shape)
        if number is None:
            if len(self.numbers) >= self._most_numbers:
                self._forget_numbers()
            self._last_number -= 1
            number = self.numbers[shape] = self._last_number
        return number

    def _forget_numbers(self) -> None:
        """Of groups that are gone."""
        in_use = {key[1] for key in (*self._groups, *self._scouted)}
        self.numbers = {shape: number for shape, number in self.numbers.items() if number in in_use}
        self._most_numbers = max(_NUMBERS, 2 * len(self.numbers))

    def waiting(self, with_jobs: bool = False, popped: Iterable[PodRecord] = ()) -> list[PodRecord]:
        """The pods that wait, gated ones left out, in no order; those that were popped too. With
        `with_jobs`, all members of the jobs some stand for."""
        entries = [entry[-1] for entry in self._active.entries()]
        entries += [pod for heap in (self._errors, self._backoff) for _, _, pod in heap]
        entries = [pod for pod in entries if self.place(pod.uid) in ("active", "backoff")]
        entries += [pod for group in self._groups.values() for pod in group.pods.values()]
        found = {pod.uid: pod for pod in (*entries, *popped)}
        if with_jobs:
            for pod in list(found.values()):
                if pod.job is not None:
                    found |= {member.uid: member for member in pod.job.waiting()}
        return list(found.values())

    def comes_before(self, one: PodRecord, other: PodRecord) -> bool:
        """Whether one is tried before the other."""
        return self.sort_key(one) < self.sort_key(other)

    def groups(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def has(self, group: Group) -> bool:
        """Whether there are still pods in it."""
        return self._groups.get(group.key) is group

    def next_due(self) -> float | None:
        """When the next back-off ends."""
        heads = [heap[0][0] for heap in (self._live(self._errors), self._live(self._backoff)) if heap]
        return min(heads, default=None)

    def place(self, uid: str) -> str | None:
        """Where the pod is: active, backoff, unschedulable, gated, following, or nowhere."""
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

    def back_off(self, failures: int) -> float:
        """How long a pod waits after so many failures in a row."""
        return min(self._initial * 2.0 ** min(failures - 1, 30), self._max)

    def _back_off(self, pod: PodRecord, failures: int, now: float) -> None:
        self.remove(pod)
        self._retry_at[pod.uid] = now + self.back_off(failures)

    def _end_backoffs(self, now: float) -> None:
        for heap in (self._errors, self._backoff):
            while self._live(heap) and heap[0][0] <= now:
                self.add(heap[0][2])

    def _live(self, heap: list[tuple[T, int, PodRecord]]) -> list[tuple[T, int, PodRecord]]:
        """The heap, less entries at its top that no longer count."""
        while heap and self._place.get(heap[0][2].uid) != ("backoff", heap[0][1]):
            heapq.heappop(heap)
        return heap


class ActivePods:
    """Entries in order. Pods come in bursts and are popped in turn, so new entries are sorted in
    together when one is next asked for; sorting what is mostly sorted is cheap."""

    __slots__ = ("_entries", "_head", "_new")

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self._head = 0
        self._new: list[Any] = []

    def add(self, entry: Any) -> None:
        self._new.append(entry)

    def entries(self) -> list[Any]:
        """All of them, in no order."""
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
