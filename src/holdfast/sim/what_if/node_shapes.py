"""Shapes of nodes to add: like a node of the cluster, or given by amounts.

    node-7                                            like that node, devices and topology included
    cpu=8,memory=32Gi,nvidia.com/gpu=4                amounts; pods=110 unless given
    cpu=8,label:zone=a,taint:dedicated=gpu:NoSchedule  with labels and taints

`+4xSHAPE` stands for four of them.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from holdfast.api import names
from holdfast.api.errors import HoldfastError, QuantityError
from holdfast.api.name_rules import label_key, label_value
from holdfast.api.node_taints import is_lifecycle_taint
from holdfast.api.quantity import amount, parse
from holdfast.api.resources import is_scalar_resource
from holdfast.api.similar_names import did_you_mean
from holdfast.local.store.objects import Key, Raw, node_key

_COUNTED = re.compile(r"\+?(\d{1,6})x(.+)", re.DOTALL)
_EFFECTS = (names.NO_SCHEDULE, names.PREFER_NO_SCHEDULE, names.NO_EXECUTE)
_LABEL, _TAINT = "label:", "taint:"
_PODS = "110"
_MISSPELT = 0.75
_NATIVE = (names.CPU, names.MEMORY, "ephemeral-storage", names.PODS)
MOST_NODES = 100_000

_GROUP = names.RESERVATION_API.partition("/")[0]
_OF_NODE = (
    (_GROUP, "Device"),
    ("topology.node.k8s.io", "NodeResourceTopology"),
    ("storage.k8s.io", "CSINode"),
)
"""Kinds whose objects have the name of the node they are about."""
_SLICE = ("resource.k8s.io", "ResourceSlice")


class ShapeError(HoldfastError):
    """A shape that cannot be read, or a node that does not exist."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What new nodes are made from."""

    text: str
    """As it was given."""
    prefix: str
    """Names of new nodes begin like this."""
    node: Raw
    companions: list[Raw] = field(default_factory=list)
    """Objects about the node: its devices, NUMA topology, volume limits."""

    @property
    def sizes(self) -> dict[str, int]:
        """What a node has, as the scheduler counts."""
        found = (self.node.get("status") or {}).get("allocatable") or {}
        return {name: amount(name, value) for name, value in found.items()}

    def nodes(self, count: int, taken: Callable[[str], bool]) -> list[Raw]:
        """So many nodes with what belongs to each, under names that are not taken."""
        made: list[Raw] = []
        number = 0
        for _ in range(count):
            number += 1
            while taken(f"{self.prefix}-{number}"):
                number += 1
            name = f"{self.prefix}-{number}"
            made.append(_renamed(self.node, self.node["metadata"]["name"], name))
            made += [_renamed(each, self.node["metadata"]["name"], name) for each in self.companions]
        return made


def read_counted(text: str) -> tuple[int, str]:
    """`+4xnode-7` as 4 and `node-7`. Raises ShapeError."""
    match = _COUNTED.fullmatch(text.strip())
    if match is None:
        raise ShapeError(
            f"expected +COUNTxSHAPE, such as +4xnode-7 or +2xcpu=8,memory=32Gi; got {text!r}"
        )
    count = int(match[1])
    if not 0 < count <= MOST_NODES:
        raise ShapeError(f"{text!r}: the count must be from 1 to {MOST_NODES}")
    return count, match[2]


def read_shapes(text: str) -> list[str]:
    """The shapes of `SHAPE,SHAPE`: a part with `=` belongs to the shape of the part before it, unless
    that has such an amount or label already; `;` ends a shape as well. `node-7,cpu=8,memory=32Gi` are
    two shapes, and so are `cpu=8,memory=32Gi,cpu=16,memory=64Gi`."""
    shapes: list[list[str]] = []
    for group in text.split(";"):
        given: set[str] = set()
        for part in filter(None, (each.strip() for each in group.split(","))):
            key, equals, _ = part.partition("=")
            if given and equals and (key not in given or key.startswith(_TAINT)):
                shapes[-1].append(part)
            else:
                shapes.append([part])
                given = set()
            given |= {key} if equals else set()
    if not shapes:
        raise ShapeError(f"expected a shape, such as a node's name or cpu=8,memory=32Gi; got {text!r}")
    return [",".join(each) for each in shapes]


class ShapeReader:
    """Reads shapes for a cluster with these objects."""

    def __init__(
        self, get: Callable[[Key], Raw | None], scan: Callable[[str, str], Iterable[Raw]]
    ) -> None:
        self._get = get
        self._scan = scan

    def template(self, text: str) -> NodeTemplate:
        """Raises ShapeError."""
        node = self._get(node_key(text))
        if node is not None:
            return NodeTemplate(text, f"{text}-new", _pristine(node), self._companions(text))
        if "=" in text:
            return NodeTemplate(text, "new-node", _from_amounts(text))
        known = sorted(raw["metadata"]["name"] for raw in self._scan("", "Node"))
        hint = did_you_mean(text, known, "a shape of amounts is cpu=8,memory=32Gi")
        raise ShapeError(f"there is no node {text!r}{hint}")

    def _companions(self, name: str) -> list[Raw]:
        found = [self._get(Key(*kind, "", name)) for kind in _OF_NODE]
        slices = [raw for raw in self._scan(*_SLICE) if (raw.get("spec") or {}).get("nodeName") == name]
        return [_stripped(raw) for raw in (*found, *slices) if raw is not None]


def _stripped(raw: Raw) -> Raw:
    metadata = raw["metadata"]
    kept = {key: metadata[key] for key in ("name", "labels", "annotations") if metadata.get(key)}
    return {**raw, "metadata": kept}


def _pristine(node: Raw) -> Raw:
    """The node as a new one of its kind would be: ready, schedulable, and without taints of the node
    lifecycle."""
    raw, spec, status = _stripped(node), node.get("spec") or {}, node.get("status") or {}
    taints = [
        each
        for each in spec.get("taints") or ()
        if each["key"] != names.TAINT_UNSCHEDULABLE and not is_lifecycle_taint(each["key"])
    ]
    sizes = {key: status[key] for key in ("capacity", "allocatable") if status.get(key)}
    return {**raw, "spec": {"taints": taints} if taints else {}, "status": sizes}


def _renamed(raw: Raw, before: str, name: str) -> Raw:
    """The object about another node. Of a ResourceSlice the pool is the node's own."""
    metadata = dict(raw["metadata"])
    own = metadata["name"]
    metadata["name"] = name if own == before else own.replace(before, name, 1)
    if metadata["name"] == own:
        metadata["name"] = f"{own}-{name}"
    labels = metadata.get("labels") or {}
    if before in labels.values():
        metadata["labels"] = {key: name if value == before else value for key, value in labels.items()}
    made = {**raw, "metadata": metadata}
    spec = raw.get("spec") or {}
    if spec.get("nodeName") == before:
        pool = spec.get("pool") or {}
        made["spec"] = {**spec, "nodeName": name}
        if pool.get("name"):
            made["spec"]["pool"] = {**pool, "name": pool["name"].replace(before, name, 1)}
    return made


def _from_amounts(text: str) -> Raw:
    amounts: dict[str, str] = {}
    labels: dict[str, str] = {}
    taints: list[Raw] = []
    given: set[str] = set()
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or not key:
            raise ShapeError(f"{text!r}: expected RESOURCE=AMOUNT, got {part.strip()!r}")
        if key in given and not key.startswith(_TAINT):
            raise ShapeError(f"{text!r}: {key} is given twice")
        given.add(key)
        if key.startswith(_LABEL):
            labels[key.removeprefix(_LABEL)] = value
        elif key.startswith(_TAINT):
            taints.append(_taint(text, key.removeprefix(_TAINT), value))
        elif key not in _NATIVE and not is_scalar_resource(key):
            others = f"known: {', '.join(_NATIVE)}, and DOMAIN/NAME such as nvidia.com/gpu"
            hint = did_you_mean(key, _NATIVE, others, similar=_MISSPELT)
            raise ShapeError(f"{text!r}: {key} is no resource of nodes{hint}")
        else:
            amounts[key] = _amount(text, key, value)
    for key, value in labels.items():
        for problem in (*label_key(key), *label_value(value)):
            raise ShapeError(f"{text!r}: label {key}: {problem}")
    sizes = {"pods": _PODS, **amounts}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "new-node",
            "labels": {
                names.HOSTNAME_LABEL: "new-node",
                names.ARCH_LABEL: "amd64",
                names.OS_LABEL: "linux",
                **labels,
            },
        },
        "spec": {"taints": taints} if taints else {},
        "status": {"capacity": sizes, "allocatable": sizes},
    }


def _amount(text: str, resource: str, value: str) -> str:
    try:
        if parse(value) < 0:
            raise ShapeError(f"{text!r}: {resource} is less than 0")
    except QuantityError as error:
        raise ShapeError(f"{text!r}: {resource}: {error}") from None
    return value


def _taint(text: str, key: str, rest: str) -> Raw:
    value, colon, effect = rest.rpartition(":")
    if not colon or effect not in _EFFECTS:
        raise ShapeError(
            f"{text!r}: expected taint:KEY=VALUE:EFFECT, the effect of {', '.join(_EFFECTS)}"
        )
    return {"key": key, "value": value, "effect": effect}
