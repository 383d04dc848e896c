"""Plans: the objects and steps of a workload or trace, made concrete and decoded as by a reflector."""

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import msgspec

from holdfast.api.decode import decode, decode_pod_json
from holdfast.api.kinds import is_cluster_scoped
from holdfast.api.meta import Object
from holdfast.api.pod import Pod
from holdfast.api.times import parse_duration
from holdfast.bench.workload import (
    Barrier,
    BenchError,
    Churn,
    CreateNamespaces,
    CreateNodes,
    CreateObject,
    CreateOnNodes,
    CreatePods,
    WorkloadRow,
    templates,
)

Raw = Mapping[str, Any]

CREATED = "2026-01-01T00:00:00Z"

_UID, _NODE, _CONDITIONS, _ANNOTATIONS = "@uid@", "@node@", "@conditions@", "@annotations@"
_POD, _NAMESPACE, _GROUP = "$pod", "$namespace", "$group"
_BOUND = '[{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T00:00:01Z"}]'


class PodMaker:
    """Makes pods of one or several shapes, numbered from 0.

    `order` gives each pod's shape, else in turn; namespaces are assigned in turn. `along` are further
    objects that each pod has, or that `share` pods have together.
    """

    def __init__(
        self,
        prefix: str,
        shapes: Sequence[Raw],
        namespaces: Sequence[str] = ("default",),
        order: Sequence[int] | None = None,
        along: Sequence[Raw] = (),
        share: int = 1,
    ) -> None:
        self.prefix = prefix
        self._texts = [_pod_text(shape) for shape in shapes]
        self._annotations: list[Mapping[str, str]] = [
            shape.get("metadata", {}).get("annotations", {}) for shape in shapes
        ]
        self.namespaces = namespaces
        self._order = order
        self._along = along
        self._share = share

    def arriving(self, number: int) -> list[Object]:
        """The objects to feed for a new pod, the pod last."""
        return [*self.along(number), self.pending(number)]

    def along(self, number: int, uid: str = "") -> list[Object]:
        """The objects that arrive before a pod; `uid` is its uid if it is not the plan's."""
        if number % self._share:
            return []
        words = {
            "pod": self._name(number),
            "namespace": self._namespace(number),
            "uid": uid or uid_of(self.prefix, number),
            "group": str(number // self._share),
        }
        return [make_object(filled(template, words), "", number) for template in self._along]

    def pending(self, number: int) -> Pod:
        return decode_pod_json(self._text(number, "", "[]", None).encode())

    def raw(
        self, number: int, node: str = "", annotations: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The pod as the API server stores it: pending, or bound to a node."""
        made: dict[str, Any] = msgspec.json.decode(
            self._text(number, node, _BOUND if node else "[]", annotations)
        )
        return made

    def number_of(self, name: str) -> int:
        """The number of the pod with this name."""
        return int(name[len(self.prefix) + 1 :])

    def annotations(self, number: int) -> Mapping[str, str]:
        """The annotations of the pod's template."""
        return self._annotations[self._shape(number)]

    def _shape(self, number: int) -> int:
        return self._order[number] if self._order else number % len(self._texts)

    def _name(self, number: int) -> str:
        return f"{self.prefix}-{number:05d}"

    def _namespace(self, number: int) -> str:
        return self.namespaces[number % len(self.namespaces)]

    def _text(
        self, number: int, node: str, conditions: str, annotations: Mapping[str, str] | None
    ) -> str:
        if annotations is None:
            annotations = self.annotations(number)
        return (
            self._texts[self._shape(number)]
            .replace(_POD, self._name(number))
            .replace(_NAMESPACE, self._namespace(number))
            .replace(_GROUP, str(number // self._share))
            .replace(_UID, uid_of(self.prefix, number))
            .replace(_NODE, node)
            .replace(f'"{_CONDITIONS}"', conditions)
            .replace(f'"{_ANNOTATIONS}"', msgspec.json.encode(annotations).decode())
        )


def filled(template: Raw, words: Mapping[str, str]) -> Raw:
    """The template with these `$words` filled in; others are left."""
    text = Template(msgspec.json.encode(template).decode())
    made: Raw = msgspec.json.decode(text.safe_substitute(words))
    return made


def shapes(template: Raw, vary: Mapping[str, Sequence[str]]) -> list[Raw]:
    """The template with its `$words` filled in, once for every combination of values."""
    if not vary:
        return [template]
    combinations = itertools.product(*vary.values())
    return [filled(template, dict(zip(vary, values, strict=True))) for values in combinations]


def make_object(
    template: Raw,
    prefix: str,
    number: int,
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
) -> Object:
    """An object other than a pod; a name and a namespace in the template are kept."""
    metadata = dict(template.get("metadata", {}))
    name = metadata.setdefault("name", f"{prefix}-{number:05d}")
    metadata["uid"] = uid_of(name, number)
    metadata["creationTimestamp"] = CREATED
    metadata["resourceVersion"] = "1"
    metadata["generation"] = 1
    if template["kind"] == "Node":
        metadata["labels"] = {
            "kubernetes.io/hostname": name,
            **metadata.get("labels", {}),
            **(labels or {}),
        }
    elif not is_cluster_scoped(template["kind"]):
        metadata.setdefault("namespace", namespace)
    return decode({**template, "metadata": metadata})


def _pod_text(shape: Raw) -> str:
    metadata = {
        "name": _POD,
        "namespace": _NAMESPACE,
        "uid": _UID,
        "resourceVersion": "1",
        "creationTimestamp": CREATED,
        **shape.get("metadata", {}),
        "annotations": _ANNOTATIONS,
    }
    spec = {
        "priority": 0,
        "terminationGracePeriodSeconds": 30,
        **shape["spec"],
        "nodeName": _NODE,
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
    }
    status = {**shape.get("status", {}), "phase": "Pending", "conditions": _CONDITIONS}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    return msgspec.json.encode(pod).decode()


def uid_of(prefix: str, number: int) -> str:
    return f"{zlib.crc32(prefix.encode()):08x}-0000-4000-8000-{number:012x}"


# Steps


@dataclass(frozen=True, slots=True)
class PlannedObjects:
    """Objects that exist before the following pods."""

    objects: list[Object]


@dataclass(frozen=True, slots=True)
class Pods:
    """`at_once` is how many exist at a time; 0 if all stay."""

    maker: PodMaker
    count: int
    measured: bool
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class Churning:
    """`seconds` or `pods` between two changes; the other is 0."""

    prefix: str
    templates: Sequence[Raw]
    recreate: bool
    seconds: float
    pods: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until every pod has a node, or no pod can get one."""


Step = PlannedObjects | Pods | Churning | Wait


@dataclass(frozen=True, slots=True)
class BenchPlan:
    name: str
    steps: list[Step]
    arrivals_per_second: float
    streamed: bool = False

    @property
    def nodes(self) -> int:
        made = (obj for step in self.steps if isinstance(step, PlannedObjects) for obj in step.objects)
        return sum(obj.kind == "Node" for obj in made)

    def pods(self, measured: bool) -> int:
        return sum(s.count for s in self.steps if isinstance(s, Pods) and s.measured is measured)


def plan_of(row: WorkloadRow, nodes: int | None = None) -> BenchPlan:
    """The row with that many nodes; by default as many as the workload defines."""
    size = nodes or row.workload.nodes
    steps: list[Step] = []
    namespaces: dict[str, list[str]] = {}
    nodes_made: list[str] = []
    for position, op in enumerate(row.workload.ops):
        match op:
            case CreateNodes():
                made_nodes = _nodes(op, row.count(op.count, size), position)
                nodes_made += [obj.metadata.name for obj in made_nodes.objects if obj.kind == "Node"]
                steps.append(made_nodes)
            case CreateOnNodes():
                steps.append(_on_nodes(op, row.count(op.count, size), nodes_made))
            case CreateNamespaces():
                names = [f"{op.prefix}-{number}" for number in range(row.count(op.count, size))]
                namespaces[op.prefix] = names
                members = row.count(op.members, size) // len(names) if op.members else 0
                steps.append(PlannedObjects([_named(op.template, name, members) for name in names]))
            case CreateObject():
                prefix = f"{op.template}-{position}"
                made = make_object(templates()[op.template], prefix, 0, namespace=op.namespace)
                steps.append(PlannedObjects([made]))
            case CreatePods():
                if op.namespaces and op.namespaces not in namespaces:
                    raise BenchError(f"workload {row.name}: no namespaces begin with {op.namespaces}")
                chosen = namespaces[op.namespaces] if op.namespaces else [op.namespace]
                count = row.count(op.count, size) * (size if op.per_node else 1)
                words = {
                    word: [f"{word}-{number}" for number in range(row.count(many, size))]
                    for word, many in op.numbered.items()
                }
                maker = _maker(op, words, chosen, position)
                steps.append(Pods(maker, count, op.measured, row.count(op.at_once, size)))
            case Churn():
                churned = [templates()[name] for name in op.templates]
                seconds = parse_duration(op.every) if op.every else 0.0
                recreate = op.mode == "recreate"
                steps.append(Churning(f"churn-{position}", churned, recreate, seconds, op.every_pods))
            case Barrier():
                steps.append(Wait())
    return BenchPlan(row.name, steps, row.workload.arrivals_per_second, row.workload.streamed)


def _nodes(op: CreateNodes, count: int, position: int) -> PlannedObjects:
    template = templates()[op.template]
    along = [templates()[name] for name in op.along]
    made = []
    for number in range(count):
        labels = {key: values[number % len(values)] for key, values in op.labels.items()}
        node = make_object(template, f"node-{position}", number, labels)
        words = {"node": node.metadata.name}
        made += [node, *(make_object(filled(other, words), "", number) for other in along)]
    return PlannedObjects(made)


def _on_nodes(op: CreateOnNodes, count: int, nodes: list[str]) -> PlannedObjects:
    template, made = templates()[op.template], []
    for number in range(count):
        index, at = divmod(number, len(nodes))
        words = {"node": nodes[at], "number": str(number), "index": str(index)}
        made.append(make_object(filled(template, words), "", number))
    return PlannedObjects(made)


def _named(template: str, name: str, members: int) -> Object:
    given = filled(templates()[template], {"name": name})
    made = {**given, "metadata": {**given.get("metadata", {}), "name": name}}
    if members:
        made["spec"] = {**given.get("spec", {}), "minMember": members}
    return make_object(made, "", 0)


def _maker(
    op: CreatePods, words: dict[str, list[str]], namespaces: list[str], position: int
) -> PodMaker:
    made = shapes(templates()[op.template], {**op.vary, **words})
    along = [templates()[name] for name in op.along]
    return PodMaker(f"{op.template}-{position}", made, namespaces, along=along, share=op.share)
