"""When jobs that wait will have waited too long.

That may be days away, and most are served long before: they are forgotten as soon as they make up half
of what is kept here. A job whose pods are made anew in the meantime goes on waiting.
"""

import heapq
from collections.abc import Iterator

from holdfast.core.pods import Phase, PodRecord

_FEW = 1000


class Countdown:
    def __init__(self) -> None:
        self._due: list[tuple[float, int, object]] = []
        self._jobs: dict[object, tuple[float, PodRecord]] = {}
        """By key, when a job is due and the pod of it that was last tried."""
        self._pushed = 0
        self._tidy_at = _FEW

    def __len__(self) -> int:
        return len(self._due)

    def put(self, key: object, due: float, pod: PodRecord) -> None:
        """The job is due then, whatever was said of it before; the pod stands for it."""
        if self._when(key) != due:
            self._pushed += 1
            heapq.heappush(self._due, (due, self._pushed, key))
        self._jobs[key] = due, pod
        if len(self._due) > self._tidy_at:
            self._tidy()

    def next(self) -> float | None:
        """When the first of those that wait is due."""
        while self._due and not self._counts(self._due[0]):
            self._pop()
        return self._due[0][0] if self._due else None

    def over(self, now: float) -> Iterator[tuple[object, PodRecord]]:
        """The jobs that wait still and are due by now, with the pods that stand for them; once."""
        while (due := self.next()) is not None and due <= now:
            key = self._due[0][2]
            pod = self._jobs[key][1]
            self._pop()
            yield key, pod

    def _when(self, key: object) -> float | None:
        return self._jobs[key][0] if key in self._jobs else None

    def _counts(self, entry: tuple[float, int, object]) -> bool:
        due, _, key = entry
        return self._when(key) == due and waits(self._jobs[key][1])

    def _pop(self) -> None:
        due, _, key = heapq.heappop(self._due)
        if self._when(key) == due:
            del self._jobs[key]

    def _tidy(self) -> None:
        self._due = [entry for entry in self._due if self._counts(entry)]
        heapq.heapify(self._due)
        self._jobs = {key: self._jobs[key] for _, _, key in self._due}
        self._tidy_at = max(_FEW, 2 * len(self._due))


def waits(pod: PodRecord) -> bool:
    """Whether the pod wants a place, and has none yet."""
    return pod.phase is Phase.PENDING and not pod.leaving and not pod.gone
