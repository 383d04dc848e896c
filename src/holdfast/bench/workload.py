"""Workload definitions: the format of files in `workloads/`, and lookup by name.

    name: SchedulingBasic
    about: one line for `--list`
    nodes: 5000                      the cluster size that the counts below are for
    variants:
    - counts: {init: 1000, measured: 10000}
    - name: 50000Pods
      counts: {init: 5000, measured: 50000}
    ops:
    - {op: createNodes, template: node}
    - {op: createPods, template: pod, count: init}
    - {op: barrier}
    - {op: createPods, template: pod, count: measured, measured: true}
    - {op: barrier}

A count is a number, or the name of a number in the variant, or `nodes`. Time is virtual: pods arrive
at `arrivalsPerSecond`, so that what churns every 200 ms does so after the same pods in every run. The
default is about what kube-scheduler reaches on these workloads, so that pods and churn mix as there.
"""

from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
import yaml

from holdfast.api.errors import HoldfastError
from holdfast.api.similar_names import did_you_mean


class BenchError(HoldfastError):
    """A workload, trace or option does not exist or is invalid."""


_DATA = files("holdfast.bench")
_TEMPLATES = ("templates.yaml", "device_templates.yaml")

TRACE = "openb"
"""The row that is read from a folder instead of a data file."""


class _Struct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class CreateNodes(_Struct, frozen=True, tag_field="op", tag="createNodes"):
    """Nodes are there from the start; label values are dealt out in turn. `along` are templates of
    what each node has one of; there `$node` is its name."""

    template: str
    count: int | str = "nodes"
    labels: dict[str, list[str]] = {}
    along: list[str] = []


class CreateOnNodes(_Struct, frozen=True, tag_field="op", tag="createOnNodes"):
    """Objects that are there from the start, dealt out to the nodes in turn. In the template `$node` is
    the name of the node, `$number` that of the object, and `$index` how many the node has already."""

    template: str
    count: int | str


class CreateNamespaces(_Struct, frozen=True, tag_field="op", tag="createNamespaces"):
    """Namespaces called prefix-0, prefix-1 and so on; or objects of another kind, by their template, in
    which `$name` is the name. `members` is how many pods there are for all of them, if they are gangs:
    each waits for its part."""

    prefix: str
    count: int | str
    template: str = "namespace"
    members: str = ""


class CreateObject(_Struct, frozen=True, tag_field="op", tag="createObject"):
    """One object of any other kind."""

    template: str
    namespace: str = "default"


class CreatePods(_Struct, frozen=True, tag_field="op", tag="createPods"):
    """Pods arrive, batch by batch. `vary` fills the template's `$words`; every combination occurs.
    `numbered` does so with word-0, word-1 and so on, as many as it says.

    With `per_node` the count is for each node, however many there are. `namespaces` is the prefix of
    namespaces that take turns. `along` are templates of what each pod has one of and what arrives
    just before it; there `$pod`, `$namespace` and `$uid` are the pod's. With `share`, so many pods
    have one of it together, and `$group` is the number of these pods, in their template too.

    With `at_once` only so many pods exist at a time: when they have nodes they are deleted, with what
    came along, and the next ones arrive.
    """

    template: str
    count: int | str
    measured: bool = False
    per_node: bool = False
    numbered: dict[str, int | str] = {}
    namespace: str = "default"
    namespaces: str = ""
    vary: dict[str, list[str]] = {}
    along: list[str] = []
    share: int = 1
    at_once: int | str = 0


class Churn(_Struct, frozen=True, tag_field="op", tag="churn"):
    """From here on, one object of each template is created periodically.

    With `recreate` it is deleted the next time, created again the time after, and so on.
    """

    templates: list[str]
    mode: Literal["create", "recreate"] = "create"
    every: str = ""
    every_pods: int = 0


class Barrier(_Struct, frozen=True, tag_field="op", tag="barrier"):
    """Continues when every pod so far has a node, or nothing can change that."""


Op = CreateNodes | CreateOnNodes | CreateNamespaces | CreateObject | CreatePods | Churn | Barrier


class Variant(_Struct, frozen=True):
    counts: dict[str, int]
    name: str = ""


class Workload(_Struct, frozen=True):
    """The content of a file. `streamed` pods are decoded as they arrive, not before."""

    name: str
    about: str
    nodes: int
    ops: list[Op]
    variants: list[Variant]
    arrivals_per_second: float = 500.0
    streamed: bool = False


class WorkloadRow(_Struct, frozen=True):
    """A workload in one of its variants, the unit that is run and reported."""

    name: str
    workload: Workload
    variant: Variant

    def count(self, what: int | str, nodes: int) -> int:
        """A count for that many nodes: it shrinks along with the nodes, and does not grow."""
        if isinstance(what, int):
            return what
        if what == "nodes":
            return nodes
        if what not in self.variant.counts:
            raise BenchError(f"workload {self.name}: unknown count {what!r}")
        full = self.variant.counts[what]
        if not full or nodes >= self.workload.nodes:
            return full
        return max(1, full * nodes // self.workload.nodes)


@cache
def rows() -> dict[str, WorkloadRow]:
    """All rows by name, in the order of the files' names."""
    found = {}
    for file in sorted(_DATA.joinpath("workloads").iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".yaml"):
            continue
        workload = read_workload(file.read_text(encoding="utf-8"), file.name)
        for variant in workload.variants:
            name = f"{workload.name}/{variant.name}" if variant.name else workload.name
            found[name] = WorkloadRow(name, workload, variant)
    return found


def read_workload(text: str, file: str) -> Workload:
    try:
        return msgspec.convert(yaml.safe_load(text), Workload)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise BenchError(f"{file}: {error}") from error


@cache
def templates() -> dict[str, dict[str, Any]]:
    """The object templates of workloads, by name."""
    found: dict[str, dict[str, Any]] = {}
    for file in _TEMPLATES:
        found |= yaml.safe_load(_DATA.joinpath(file).read_text(encoding="utf-8"))
    return found


def find(name: str) -> str:
    """The row's name as it is spelt, ignoring case and a leading "Scheduling"."""
    known = {row.lower(): row for row in (*rows(), TRACE)}
    found = known.get(name.lower()) or known.get(f"scheduling{name.lower()}")
    if found is None:
        hint = did_you_mean(name, known.values(), "`holdfast bench --list` shows all", similar=0.75)
        raise BenchError(f"unknown workload {name!r}{hint}")
    return found
