"""What is changed in the hypothetical cluster: manifests, replicas, nodes added, drained and removed.

Everything of one question takes effect at one moment; only the evictions of a drain follow one another,
as far as disruption budgets let them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.api.decode import object_name
from holdfast.api.documents import Document
from holdfast.api.errors import HoldfastError, InvalidObject, SelectorError
from holdfast.api.jobs import missing_parent
from holdfast.api.kinds import is_cluster_scoped
from holdfast.api.names import DEFAULT_NAMESPACE, SIM_API, VOLCANO_API
from holdfast.api.plurals import number_of
from holdfast.api.selectors import parse_label_selector
from holdfast.api.similar_names import did_you_mean
from holdfast.local.component import key_of
from holdfast.local.store.objects import Key, Raw, node_key
from holdfast.sim.scenario_actions import Apply, Delete, Target
from holdfast.sim.scenario_objects import ScenarioObject
from holdfast.sim.skipped_kinds import counted, is_skipped
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster
from holdfast.sim.what_if.node_shapes import ShapeError, ShapeReader, read_counted
from holdfast.snapshot.manifests import InvalidInput

_JOBS = VOLCANO_API.partition("/")[0]
_FIRST = ("Namespace", "PriorityClass", "RuntimeClass", "StorageClass")
"""Kinds that others need when they are created."""
_LAST = (
    *("Pod", "PodGroup", "Reservation", "ReservationSchedule", "ReplicationController"),
    *("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob"),
)
"""Kinds that are scheduled, or make what is."""
_LIMITS = ("LimitRange", "ResourceQuota")
_SCALED = {
    "deployment": ("apps", "Deployment", "replicas"),
    "statefulset": ("apps", "StatefulSet", "replicas"),
    "replicaset": ("apps", "ReplicaSet", "replicas"),
    "job": ("batch", "Job", "parallelism"),
}
_SHORT = {"deploy": "deployment", "sts": "statefulset", "rs": "replicaset"}
_SCALE = re.compile(r"([a-zA-Z]+)(?:\.[a-z0-9.]+)?/(?:([^/=]+)/)?([^/=]+)=(\d{1,9})")
_IS_SELECTOR = re.compile(r"[=!, ]")


class ChangeError(HoldfastError):
    """A change that cannot be made; the message names the option."""


class ScaledWorkload(NamedTuple):
    key: Key
    field: str
    replicas: int

    def __str__(self) -> str:
        return f"{self.key} scaled to {self.replicas}"


BeforePods = Callable[[Sequence[tuple[Key, Raw]]], None]
"""Is called with the objects that are scheduled, or make pods, before they are applied."""


@dataclass(slots=True)
class WhatIfChanges:
    """As they are given on the command line."""

    manifests: Sequence[Document] = ()
    scales: Sequence[str] = ()
    nodes: Sequence[str] = ()
    drains: Sequence[str] = ()
    removals: Sequence[str] = ()
    namespace: str = DEFAULT_NAMESPACE
    """Of objects that name none."""

    def __bool__(self) -> bool:
        return bool(self.manifests or self.scales or self.nodes or self.drains or self.removals)


@dataclass(slots=True)
class AppliedChanges:
    """What was done to the cluster."""

    texts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    objects: dict[Key, Document] = field(default_factory=dict)
    """The objects of manifests, and where each stands."""
    added: list[str] = field(default_factory=list)
    """New nodes."""
    drained: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def apply_changes(
    cluster: HypotheticalCluster, changes: WhatIfChanges, before_pods: BeforePods | None = None
) -> AppliedChanges:
    """Changes the cluster, except that drained nodes are only cordoned. Raises ChangeError,
    InvalidInput."""
    applied = AppliedChanges()
    drained = _nodes_of(cluster, changes.drains, "--drain")
    removed = _nodes_of(cluster, changes.removals, "--remove")
    drained = [name for name in drained if name not in removed]
    scaled = [_scaled(cluster, text, changes.namespace) for text in changes.scales]
    for text in changes.nodes:
        add_nodes(cluster, text, applied)
    for name in removed:
        cluster.take(Delete(Target("Node", "", name, ("",))))
    for name in drained:
        _cordon(cluster, name)
    for each in scaled:
        raw = cluster.objects.get(each.key)
        assert raw is not None
        # Nothing else may change, or pods would be replaced by those of a new template.
        cluster.objects.update(each.key, {**raw, "spec": {**raw["spec"], each.field: each.replicas}})
        applied.texts.append(str(each))
        completions = raw["spec"].get("completions")
        if each.field == "parallelism" and completions is not None and completions < each.replicas:
            applied.notes.append(
                f"{each.key} makes no more than {number_of(completions, 'pod')}, its completions"
            )
    _apply_manifests(cluster, changes, applied, before_pods)
    applied.drained, applied.removed = drained, removed
    if drained:
        applied.texts.append(f"{_counted_nodes(drained)} drained")
    if removed:
        applied.texts.append(f"{_counted_nodes(removed)} removed")
    return applied


def add_nodes(cluster: HypotheticalCluster, text: str, applied: AppliedChanges) -> None:
    """`+4xSHAPE`. Raises ChangeError."""
    reader = ShapeReader(cluster.objects.get, cluster.objects.scan)
    try:
        count, shape = read_counted(text)
        template = reader.template(shape)
    except ShapeError as error:
        raise ChangeError(f"--nodes: {error}") from None
    for raw in template.nodes(count, lambda name: node_key(name) in cluster.objects):
        cluster.take(Apply(raw))
        if raw["kind"] == "Node":
            applied.added.append(raw["metadata"]["name"])
    applied.texts.append(f"{number_of(count, 'node')} added: {shape}")


# Nodes


def _nodes_of(cluster: HypotheticalCluster, given: Iterable[str], option: str) -> list[str]:
    """The names of nodes, in order and once, from names and label selectors."""
    found: dict[str, None] = {}
    for text in given:
        if node_key(text) in cluster.objects:
            found[text] = None
            continue
        nodes = cluster.objects.scan("", "Node")
        if not _IS_SELECTOR.search(text):
            hint = did_you_mean(text, (raw["metadata"]["name"] for raw in nodes))
            raise ChangeError(f"{option}: there is no node {text!r}{hint}")
        try:
            selector = parse_label_selector(text)
        except SelectorError as error:
            raise ChangeError(f"{option}: {error}") from None
        names = [
            raw["metadata"]["name"]
            for raw in nodes
            if selector.matches(raw["metadata"].get("labels") or {})
        ]
        if not names:
            raise ChangeError(f"{option}: no node has the labels {text!r}")
        found.update(dict.fromkeys(names))
    return [*found]


def _cordon(cluster: HypotheticalCluster, name: str) -> None:
    node = cluster.objects.get(node_key(name))
    assert node is not None
    spec = node.get("spec") or {}
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    taints = [each for each in spec.get("taints") or () if each["key"] != taint["key"]]
    cluster.objects.update(
        node_key(name), {**node, "spec": {**spec, "unschedulable": True, "taints": [*taints, taint]}}
    )


def _counted_nodes(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return f"node{'s' if len(names) > 1 else ''} {', '.join(names)}"
    return f"{len(names)} nodes"


# Workloads


def _scaled(cluster: HypotheticalCluster, text: str, namespace: str) -> ScaledWorkload:
    match = _SCALE.fullmatch(text.strip())
    kind = match[1].lower() if match is not None else ""
    kind = _SHORT.get(kind, kind)
    known = _SCALED.get(kind) or _SCALED.get(kind.removesuffix("s"))
    if match is None or known is None:
        raise ChangeError(
            f"--scale: expected KIND/NAME=REPLICAS, such as deployment/web=10, the kind one of "
            f"{', '.join(_SCALED)}; got {text!r}"
        )
    group, name, field_ = known
    key = Key(group, name, match[2] or namespace, match[3])
    if cluster.objects.get(key) is None:
        names = [
            raw["metadata"]["name"]
            for raw in cluster.objects.scan(group, name)
            if raw["metadata"]["namespace"] == key.namespace
        ]
        hint = did_you_mean(key.name, names, "-n names another namespace")
        raise ChangeError(f"--scale: there is no {key}{hint}")
    return ScaledWorkload(key, field_, int(match[4]))


# Manifests


def _apply_manifests(
    cluster: HypotheticalCluster,
    changes: WhatIfChanges,
    applied: AppliedChanges,
    before_pods: BeforePods | None,
) -> None:
    problems: list[str] = []
    skipped: Counter[tuple[str, str]] = Counter()
    objects: list[tuple[Document, Raw]] = []
    declared = cluster.objects.declared
    for document in changes.manifests:
        data = document.data
        if not isinstance(data, dict):
            problems.append(f"{document}: expected an object")
        elif data.get("apiVersion") == SIM_API:
            problems.append(f"{document}: kind: {data.get('kind')} is for `holdfast simulate`")
        elif is_skipped(data.get("apiVersion"), data.get("kind"), declared):
            skipped[data["apiVersion"].rpartition("/")[0], data["kind"]] += 1
        else:
            read = ScenarioObject(data, declared)
            problems += [f"{document}: {error}" for error in read.errors]
            if not read.errors:
                objects.append((document, _with_namespace(read.raw, changes.namespace)))
    if problems:
        raise InvalidInput(problems)
    named = [(document, _named(cluster, raw)) for document, raw in objects]
    named.sort(key=lambda item: (item[1]["kind"] not in _FIRST, item[1]["kind"] in _LAST))
    scheduled = [(key_of(raw, declared), raw) for _, raw in named if raw["kind"] in _LAST]
    kinds: Counter[tuple[str, str]] = Counter()
    for place, (document, raw) in enumerate(named):
        if before_pods is not None and place == len(named) - len(scheduled):
            before_pods(scheduled)
        key = key_of(raw, declared)
        try:
            cluster.take(Apply(_with_live_replicas(cluster, key, raw)))
        except InvalidObject as error:
            raise InvalidInput([f"{document}: {error}"]) from None
        applied.objects[key] = document
        kinds[key[:2]] += 1
    if kinds:
        applied.texts.append(f"applied: {counted(kinds)}")
    if ("batch", "CronJob") in kinds:
        applied.notes.append(
            "no Job of a CronJob is started, since no time passes; `holdfast check` asks about that Job"
        )
    applied.notes += _queues_without_parent(cluster, [raw for _, raw in named])
    if skipped:
        applied.notes.append(f"skipped: {counted(skipped)}")
        applied.notes += note_of_limits(kind for _, kind in skipped)


def _queues_without_parent(cluster: HypotheticalCluster, applied: list[Raw]) -> Iterator[str]:
    known = {raw["metadata"]["name"] for raw in cluster.objects.scan(_JOBS, "Queue")}
    for raw in (each for each in applied if each["kind"] == "Queue"):
        parent = (raw.get("spec") or {}).get("parent") or ""
        if problem := missing_parent(raw["metadata"]["name"], parent, known):
            yield f"{object_name(raw)}: spec.parent: {problem}"


def note_of_limits(kinds: Iterable[str]) -> list[str]:
    """That these kinds are not considered, if there are some."""
    found = sorted({kind for kind in kinds if kind in _LIMITS})
    return [f"{' and '.join(f'{each}s' for each in found)} are not considered"] if found else []


def _with_namespace(raw: Raw, namespace: str) -> Raw:
    metadata = raw["metadata"]
    if metadata.get("namespace") or is_cluster_scoped(raw["kind"]):
        return raw
    return {**raw, "metadata": {**metadata, "namespace": namespace}}


def _named(cluster: HypotheticalCluster, raw: Raw) -> Raw:
    """With a name, if it has but a `generateName`."""
    metadata = raw["metadata"]
    while not metadata.get("name"):
        name = cluster.objects.identity.name(metadata["generateName"])
        named = {**raw, "metadata": {**metadata, "name": name}}
        if key_of(named, cluster.objects.declared) not in cluster.objects:
            return named
    return raw


def _with_live_replicas(cluster: HypotheticalCluster, key: Key, raw: Raw) -> Raw:
    """A manifest that states no number leaves it as it is, as `kubectl apply` does: an autoscaler may
    have set it."""
    live = cluster.objects.get(key)
    spec, known = raw.get("spec"), [each[2] for each in _SCALED.values() if each[:2] == key[:2]]
    if live is None or spec is None or not known:
        return raw
    (field_,) = known
    number = (live.get("spec") or {}).get(field_)
    if number is None or spec.get(field_) is not None:
        return raw
    return {**raw, "spec": {**spec, field_: number}}
