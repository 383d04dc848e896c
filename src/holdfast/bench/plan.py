"""What is to be fed to the scheduler, in which order: a workload or a trace made concrete."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.api.duration import parse_duration
from holdfast.api.meta import Object
from holdfast.bench.making import PodMaker, Raw, make_object, shapes
from holdfast.bench.workload import Barrier, Churn, CreateNodes, CreatePods, Row, templates


@dataclass(frozen=True, slots=True)
class Nodes:
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


Step = Nodes | Pods | Churning | Wait


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    steps: list[Step]
    arrivals_per_second: float
    streamed: bool = False

    @property
    def nodes(self) -> int:
        return sum(len(step.objects) for step in self.steps if isinstance(step, Nodes))

    def pods(self, measured: bool) -> int:
        return sum(s.count for s in self.steps if isinstance(s, Pods) and s.measured is measured)


def plan_of(row: Row, nodes: int | None = None) -> Plan:
    """The row with that many nodes; without a number, as many as the workload is defined for."""
    size = nodes or row.workload.nodes
    steps: list[Step] = []
    for position, op in enumerate(row.workload.ops):
        match op:
            case CreateNodes():
                steps.append(_nodes(op, row.count(op.count, size), position))
            case CreatePods():
                made = shapes(templates()[op.template], op.vary)
                maker = PodMaker(f"{op.template}-{position}", made, op.namespace)
                steps.append(Pods(maker, row.count(op.count, size), op.measured))
            case Churn():
                chosen = [templates()[name] for name in op.templates]
                seconds = parse_duration(op.every) if op.every else 0.0
                recreate = op.mode == "recreate"
                steps.append(Churning(f"churn-{position}", chosen, recreate, seconds, op.every_pods))
            case Barrier():
                steps.append(Wait())
    return Plan(row.name, steps, row.workload.arrivals_per_second, row.workload.streamed)


def _nodes(op: CreateNodes, count: int, position: int) -> Nodes:
    template = templates()[op.template]
    labels = [
        {key: values[number % len(values)] for key, values in op.labels.items()}
        for number in range(count)
    ]
    return Nodes(
        [make_object(template, f"node-{position}", number, labels[number]) for number in range(count)]
    )
