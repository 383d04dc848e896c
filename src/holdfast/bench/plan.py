"""What is to be fed to the scheduler, in which order: a workload or a trace made concrete."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.api.duration import parse_duration
from holdfast.api.meta import Object
from holdfast.bench.errors import BenchError
from holdfast.bench.making import PodMaker, Raw, filled, make_object, shapes
from holdfast.bench.workload import (
    Barrier,
    Churn,
    CreateNamespaces,
    CreateNodes,
    CreateObject,
    CreatePods,
    Row,
    templates,
)


@dataclass(frozen=True, slots=True)
class Objects:
    """What is there before the pods that follow."""

    objects: list[Object]


@dataclass(frozen=True, slots=True)
class Pods:
    maker: PodMaker
    count: int
    measured: bool


@dataclass(frozen=True, slots=True)
class Churning:
    """`seconds` or `pods` between one time and the next; the other is 0."""

    prefix: str
    templates: Sequence[Raw]
    recreate: bool
    seconds: float
    pods: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Until every pod has a node, or nothing can change that."""


Step = Objects | Pods | Churning | Wait


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    steps: list[Step]
    arrivals_per_second: float
    streamed: bool = False

    @property
    def nodes(self) -> int:
        made = (obj for step in self.steps if isinstance(step, Objects) for obj in step.objects)
        return sum(obj.kind == "Node" for obj in made)

    def pods(self, measured: bool) -> int:
        return sum(s.count for s in self.steps if isinstance(s, Pods) and s.measured is measured)


def plan_of(row: Row, nodes: int | None = None) -> Plan:
    """The row with that many nodes; without a number, as many as the workload is defined for."""
    size = nodes or row.workload.nodes
    steps: list[Step] = []
    namespaces: dict[str, list[str]] = {}
    for position, op in enumerate(row.workload.ops):
        match op:
            case CreateNodes():
                steps.append(_nodes(op, row.count(op.count, size), position))
            case CreateNamespaces():
                names = [f"{op.prefix}-{number}" for number in range(row.count(op.count, size))]
                namespaces[op.prefix] = names
                members = row.count(op.members, size) // len(names) if op.members else 0
                steps.append(Objects([_named(op.template, name, members) for name in names]))
            case CreateObject():
                prefix = f"{op.template}-{position}"
                made = make_object(templates()[op.template], prefix, 0, namespace=op.namespace)
                steps.append(Objects([made]))
            case CreatePods():
                if op.namespaces and op.namespaces not in namespaces:
                    raise BenchError(f"workload {row.name}: no namespaces begin with {op.namespaces}")
                chosen = namespaces[op.namespaces] if op.namespaces else [op.namespace]
                count = row.count(op.count, size) * (size if op.per_node else 1)
                words = {
                    word: [f"{word}-{number}" for number in range(row.count(many, size))]
                    for word, many in op.numbered.items()
                }
                steps.append(Pods(_maker(op, words, chosen, position), count, op.measured))
            case Churn():
                churned = [templates()[name] for name in op.templates]
                seconds = parse_duration(op.every) if op.every else 0.0
                recreate = op.mode == "recreate"
                steps.append(Churning(f"churn-{position}", churned, recreate, seconds, op.every_pods))
            case Barrier():
                steps.append(Wait())
    return Plan(row.name, steps, row.workload.arrivals_per_second, row.workload.streamed)


def _nodes(op: CreateNodes, count: int, position: int) -> Objects:
    template = templates()[op.template]
    along = [templates()[name] for name in op.along]
    made = []
    for number in range(count):
        labels = {key: values[number % len(values)] for key, values in op.labels.items()}
        node = make_object(template, f"node-{position}", number, labels)
        words = {"node": node.metadata.name}
        made += [node, *(make_object(filled(other, words), "", number) for other in along)]
    return Objects(made)


def _named(template: str, name: str, members: int) -> Object:
    given = templates()[template]
    made = {**given, "metadata": {**given.get("metadata", {}), "name": name}}
    if members:
        made["spec"] = {**given.get("spec", {}), "minMember": members}
    return make_object(made, "", 0)


def _maker(
    op: CreatePods, words: dict[str, list[str]], namespaces: list[str], position: int
) -> PodMaker:
    made = shapes(templates()[op.template], {**op.vary, **words})
    along = [templates()[name] for name in op.along]
    return PodMaker(f"{op.template}-{position}", made, namespaces, along=along)
