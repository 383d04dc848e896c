"""Completion indexes of Indexed Jobs: sets of them, and the pod of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.api.selectors import as_integer
from holdfast.local.workloads.lister import Raw, annotations_of

INDEX = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Raw) -> int | None:
    return as_integer(annotations_of(pod).get(INDEX, ""))


class Indexes:
    """A set of completion indexes, kept as intervals (`0-2,4`): a Job may have two billion."""

    def __init__(self, runs: Iterable[range] = ()) -> None:
        self._runs: list[range] = []
        for run in sorted(filter(len, runs), key=lambda each: each.start):
            last = self._runs[-1] if self._runs else range(0)
            if self._runs and run.start <= last.stop:
                self._runs[-1] = range(last.start, max(last.stop, run.stop))
            else:
                self._runs.append(run)

    @classmethod
    def read(cls, text: str, below: int) -> Indexes:
        """The numbers there may be; what is no number is passed over."""
        runs = []
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            start, end = as_integer(first), as_integer(last or first)
            if start is not None and end is not None:
                runs.append(range(max(start, 0), min(end + 1, below)))
        return cls(runs)

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def __str__(self) -> str:
        return ",".join(f"{r.start}-{r.stop - 1}" if len(r) > 1 else f"{r.start}" for r in self._runs)

    def and_also(self, numbers: Iterable[int]) -> Indexes:
        return Indexes([*self._runs, *(range(number, number + 1) for number in numbers)])

    def __contains__(self, number: int) -> bool:
        return any(number in run for run in self._runs)

    def joined(self, other: Indexes) -> Indexes:
        return Indexes([*self._runs, *other._runs])

    def common(self, other: Indexes) -> int:
        """The size of the intersection."""
        return len(self) + len(other) - len(self.joined(other))

    def others(self, below: int) -> Iterator[int]:
        """The numbers that are not among these, lowest first."""
        start = 0
        for run in self._runs:
            yield from range(start, min(run.start, below))
            start = run.stop
        yield from range(start, below)


def with_index(template: Raw, name: str, index: int) -> tuple[Raw, Raw]:
    """The template with the completion index in its containers' environment, and further fields of
    the pod spec.
    """
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
    }
    spec = template.get("spec") or {}

    def with_index_variable(containers: list[Raw]) -> list[Raw]:
        return [{**each, "env": [*(each.get("env") or ()), variable]} for each in containers]

    parts = {
        part: with_index_variable(spec[part])
        for part in ("containers", "initContainers")
        if spec.get(part)
    }
    return {**template, "spec": {**spec, **parts}}, {"hostname": f"{name}-{index}"}
