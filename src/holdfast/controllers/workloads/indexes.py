"""The numbers of an Indexed Job's pods, and the short way of writing many of them: `0-2,4`."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.api.label_selectors import as_integer
from holdfast.controllers.workloads.actions import Raw
from holdfast.controllers.workloads.view import annotations_of

INDEX = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Raw) -> int | None:
    return as_integer(annotations_of(pod).get(INDEX, ""))


def read(text: str, below: int) -> set[int]:
    """The numbers there may be; what is no number is passed over."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        start, end = as_integer(first), as_integer(last or first)
        if start is not None and end is not None:
            numbers.update(range(max(start, 0), min(end + 1, below)))
    return numbers


def write(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def with_index(template: Raw, name: str, index: int) -> tuple[Raw, Raw]:
    """The template whose containers are told their number, and what else the pod's spec says."""
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
    }
    spec = template.get("spec") or {}

    def told(containers: list[Raw]) -> list[Raw]:
        return [{**each, "env": [*(each.get("env") or ()), variable]} for each in containers]

    parts = {part: told(spec[part]) for part in ("containers", "initContainers") if spec.get(part)}
    return {**template, "spec": {**spec, **parts}}, {"hostname": f"{name}-{index}"}
