"""Reads a scenario: from documents to actions at points in time.

A document is an object, which is created at its `sim.holdfast.io/at`; a Step, which changes objects
later; or an Expect, which states the outcome. All errors that can be found before the run are reported
at once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from holdfast.api import names
from holdfast.api.annotations import limit_to_allocatable
from holdfast.api.decode import object_name
from holdfast.api.documents import Document
from holdfast.api.errors import InvalidObject
from holdfast.api.jobs import missing_parent
from holdfast.api.kinds import NO_KINDS, Kinds
from holdfast.api.plurals import number_of
from holdfast.api.raw_objects import ObjectKind, declared_infos
from holdfast.local.clock import STATED, STATED_FIRST
from holdfast.local.component import key_of
from holdfast.local.node_objects import copies
from holdfast.local.store.objects import Key, Raw
from holdfast.machinery.strategies.admission import SYSTEM_CLASSES
from holdfast.scheduler.jobs.estimates import estimate_problem
from holdfast.sim.clock import start_time, timing
from holdfast.sim.document_fields import described
from holdfast.sim.expect import Expectation, read_expectation, unknown_nodes
from holdfast.sim.misspelt_names import misspelt_names
from holdfast.sim.scenario_actions import (
    STEP,
    Apply,
    Create,
    ExpectationCheck,
    Scenario,
    ScenarioAction,
    read_step,
)
from holdfast.sim.scenario_objects import ScenarioObject, made_uid, owner_key
from holdfast.sim.skipped_kinds import counted, is_skipped
from holdfast.snapshot.dump_workloads import makes_pods
from holdfast.snapshot.manifests import InvalidInput
from holdfast.snapshot.snapshot_header import SNAPSHOT, is_header, read_header

_OWNERS = (
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("batch.volcano.sh", "Job"),
)
"""Kinds that have pods in a cluster."""


EXPECT = "Expect"
_FIRST = ("Namespace", "PriorityClass", "RuntimeClass", "StorageClass")
"""Kinds that others need when they are created; of objects created at one time these come first,
wherever they stand in the files. So do nodes that exist from the start: a scheduler knows the nodes of
its cluster before the pods on them, and ties go to the node that it knew first."""


def read_scenario(documents: Sequence[Document], kinds: Sequence[ObjectKind] = ()) -> Scenario:
    """`kinds` are those of objects that plugins read. Raises InvalidInput with all errors."""
    declared = declared_infos(kinds)
    problems: list[str] = []
    actions: list[ScenarioAction] = []
    at_the_end: list[tuple[Document, Expectation]] = []
    skipped: Counter[tuple[str, str]] = Counter()
    unknown: Counter[str] = Counter()
    given: list[Raw] = []
    notes: list[str] = []
    for position, document in enumerate(_counted_nodes(documents)):
        data = document.data
        found: list[InvalidObject] = []
        if not isinstance(data, dict):
            problems.append(f"{document}: expected an object, got {described(data)}")
            continue
        if data.get("apiVersion") == names.SIM_API or data.get("kind") in (STEP, EXPECT):
            applied = data.get("apply") if data.get("kind") == STEP else None
            if is_header(data):
                given.append(data)
            if isinstance(applied, dict) and _is_skipped(applied, declared):
                skipped[_group_and_kind(applied)] += 1
            else:
                _read_own(data, document, position, declared, found, actions, at_the_end, notes)
        elif data.get("kind") == _CONFIGURATION and "kubescheduler" in str(data.get("apiVersion")):
            problems.append(f"{document}: kind: a {_CONFIGURATION} is given with --config")
        elif _is_skipped(data, declared):
            skipped[_group_and_kind(data)] += 1
            given.append(data)
        else:
            read = ScenarioObject(data, declared)
            raw = read.raw
            found.extend(read.errors)
            unknown.update(f"{raw['kind']} {field}" for field in read.newer)
            if not found:
                times = timing(raw, found)
                is_node = raw["kind"] == "Node" and not times[names.SIM_AT]
                order = (STATED_FIRST if is_node or raw["kind"] in _FIRST else STATED, position)
                origin = replace(document, data=None)  # which would outlive its use
                actions.append(ScenarioAction(times[names.SIM_AT], order, origin, Create(raw)))
                if not times[names.SIM_AT]:
                    given.append(raw)
        problems.extend(f"{document}: {each}" for each in found)
    problems.extend(_missing_classes(actions))
    problems.extend(_missing_nodes(actions, at_the_end))
    if not documents:
        problems.append("no documents were given")
    if problems:
        raise InvalidInput(problems)
    if skipped:
        notes.append(f"skipped: {counted(skipped)}")
    if unknown:
        fields = ", ".join(sorted(unknown))
        notes.append(f"ignored: fields this version does not know: {fields}")
    actions = with_owner_uids(actions, declared)
    notes.extend(owners_without_pods(actions, declared))
    notes.extend(_templates_without_class(actions))
    notes.extend(_pods_without_node(actions))
    notes.extend(_ignored_estimates(actions))
    notes.extend(_queues_without_parent(actions))
    notes.extend(_malformed_ratios(actions))
    notes.extend(_misspelt_names(actions))
    start = start_time(given)
    return Scenario(tuple(actions), tuple(at_the_end), start, tuple(notes), tuple(kinds))


def _is_skipped(data: Raw, declared: Kinds) -> bool:
    return is_skipped(*_named(data), declared)


def _named(data: Raw) -> tuple[str, str]:
    """Its apiVersion and kind, as they are."""
    api_version, kind = data.get("apiVersion"), data.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str):
        return api_version, kind
    return "", ""


def _group_and_kind(data: Raw) -> tuple[str, str]:
    return data["apiVersion"].rpartition("/")[0], data["kind"]


def _read_own(
    data: Raw,
    document: Document,
    position: int,
    declared: Kinds,
    found: list[InvalidObject],
    actions: list[ScenarioAction],
    at_the_end: list[tuple[Document, Expectation]],
    notes: list[str],
) -> None:
    kind = data.get("kind")
    if data.get("apiVersion") != names.SIM_API:
        found.append(InvalidObject(str(kind), "apiVersion", f"must be {names.SIM_API}"))
    elif kind == STEP:
        step = read_step(data, found, declared)
        if step is not None:
            actions.append(ScenarioAction(step[0], (STATED, position), document, step[1]))
    elif kind == SNAPSHOT:
        try:
            notes.extend(f"warning: {each}" for each in read_header(data).not_permitted)
        except InvalidObject as error:
            found.append(error)
    elif kind == EXPECT:
        expectation = read_expectation(data, found, declared)
        if expectation is not None and expectation.at is not None:
            check = ExpectationCheck(expectation)
            actions.append(ScenarioAction(expectation.at, (STATED, position), document, check))
        elif expectation is not None:
            at_the_end.append((document, expectation))
    else:
        message = f"no {kind} in {names.SIM_API}; known: {STEP}, {EXPECT}, {SNAPSHOT}"
        found.append(InvalidObject("", "kind", message))


def _missing_classes(actions: Sequence[ScenarioAction]) -> Iterator[str]:
    """Priority classes that pods name and that are never created. Pods with a priority were admitted
    elsewhere.
    """
    objects, known = _objects(actions), _priority_classes(actions)
    for planned, raw in objects:
        spec = raw.get("spec") or {} if raw["kind"] == "Pod" else {}
        name = spec.get("priorityClassName")
        if name and name not in known and spec.get("priority") is None:
            prefix = "apply." if isinstance(planned.action, Apply) else ""
            yield (
                f"{planned.origin}: {object_name(raw)}: {prefix}spec.priorityClassName: "
                f"no PriorityClass with name {name} was found"
            )


def _missing_nodes(
    actions: Sequence[ScenarioAction], at_the_end: Sequence[tuple[Document, Expectation]]
) -> Iterator[str]:
    """Nodes that expectations name and that are never created."""
    nodes = {_name(raw) for _, raw in _objects(actions) if raw["kind"] == "Node"}
    checks = [
        (each.origin, each.action.expectation)
        for each in actions
        if isinstance(each.action, ExpectationCheck)
    ]
    for document, expectation in (*checks, *at_the_end):
        yield from (f"{document}: {each}" for each in unknown_nodes(expectation, nodes))


def _templates_without_class(actions: Sequence[ScenarioAction]) -> Iterator[str]:
    """A note about workloads whose pods an API server would reject because their class is never
    created.
    """
    known = _priority_classes(actions)
    found: dict[str, list[str]] = {}
    for _, raw in _objects(actions):
        if makes_pods(raw["apiVersion"].rpartition("/")[0], raw):
            spec = (
                raw["spec"]
                if "template" in raw["spec"]
                else raw["spec"]["jobTemplate"].get("spec") or {}
            )
            name = ((spec.get("template") or {}).get("spec") or {}).get("priorityClassName")
            if name and name not in known:
                found.setdefault(name, []).append(object_name(raw))
    if found:
        texts = (f"{name} (of {', '.join(owners)})" for name, owners in sorted(found.items()))
        yield f"no pods can be created with PriorityClasses that do not exist: {', '.join(texts)}"


def _ignored_estimates(actions: Sequence[ScenarioAction]) -> Iterator[str]:
    """A warning about run-time estimates of pods and of pod templates that do not count."""
    found = []
    for _, raw in _objects(actions):
        for path, metadata in _pod_metadata(raw):
            annotations = metadata.get("annotations") or {}
            if annotations and (problem := estimate_problem(annotations)):
                found.append(f"{object_name(raw)}: {path}{problem}")
    if found:
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        yield f"warning: run-time estimates are ignored: {'; '.join(found[:_SHOWN])}{more}"


def _queues_without_parent(actions: Sequence[ScenarioAction]) -> Iterator[str]:
    """A warning about queues below one that is never created."""
    queues = {_name(raw): raw for _, raw in _objects(actions) if raw["kind"] == "Queue"}
    for name, raw in queues.items():
        if problem := missing_parent(name, (raw.get("spec") or {}).get("parent") or "", queues):
            yield f"warning: {object_name(raw)}: spec.parent: {problem}"


def _malformed_ratios(actions: Sequence[ScenarioAction]) -> Iterator[str]:
    """A warning about nodes whose ratio of limits is malformed, so that no pod fits them. A cluster
    stores such a node, so this is no error."""
    for _, raw in _objects(actions):
        annotations = (raw["metadata"].get("annotations") or {}) if raw["kind"] == "Node" else {}
        try:
            limit_to_allocatable(annotations.get(names.LIMIT_TO_ALLOCATABLE) or "{}")
        except InvalidObject as error:
            yield f"warning: {error.within(object_name(raw))}"


def _misspelt_names(actions: Sequence[ScenarioAction]) -> Iterator[str]:
    """A warning about labels and annotations that nothing reads because of a letter or two."""
    found = []
    for planned, raw in _objects(actions):
        parts = [*_pod_metadata(raw)] if raw["kind"] != "Pod" else []
        for path, metadata in (("", raw["metadata"]), *parts):
            found += [
                f"{planned.origin}: {object_name(raw)}: {path}{each}"
                for each in misspelt_names(metadata)
            ]
    yield from (f"warning: {each}" for each in found[:_SHOWN])
    if more := len(found[_SHOWN:]):
        yield f"warning: and {number_of(more, 'more misspelt name')}"


def _pod_metadata(raw: Raw) -> Iterator[tuple[str, Raw]]:
    """The metadata of a pod, or of the pods of a workload, with where its owner has it."""
    if raw["kind"] == "Pod":
        yield "", raw["metadata"]
    elif makes_pods(raw["apiVersion"].rpartition("/")[0], raw):
        spec, path = raw["spec"], "spec.template."
        if "template" not in spec:
            spec, path = spec["jobTemplate"].get("spec") or {}, f"spec.jobTemplate.{path}"
        yield path, (spec.get("template") or {}).get("metadata") or {}


_CONFIGURATION = "KubeSchedulerConfiguration"
_SHOWN = 3
_NODES_SHOWN = 3


def _pods_without_node(actions: Sequence[ScenarioAction]) -> Iterator[str]:
    """A warning about pods on nodes that are never created, as in a dump without nodes."""
    objects = [raw for _, raw in _objects(actions)]
    known = {_name(raw) for raw in objects if raw["kind"] == "Node"}
    found = Counter(
        node
        for raw in objects
        if raw["kind"] == "Pod"
        and (node := (raw.get("spec") or {}).get("nodeName"))
        and node not in known
        and (raw.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    )
    if found:
        nodes = [*found]
        named = ", ".join(nodes[:_NODES_SHOWN]) + (", …" if len(nodes) > _NODES_SHOWN else "")
        count = found.total()
        pods = number_of(count, "pod is on a node", "pods are on nodes")
        how = "kubectl get nodes,pods,… -A -o yaml dumps nodes too"
        yield f"warning: {pods} not in the input: {named}; {how}"


def _counted_nodes(documents: Sequence[Document]) -> Iterator[Document]:
    """A Node with a count stands for several, as in files for `up --node-file`."""
    for document in documents:
        data = document.data
        metadata = (
            data.get("metadata") if isinstance(data, dict) and data.get("kind") == "Node" else None
        )
        nodes = None
        if isinstance(metadata, dict) and metadata.get("name"):
            annotations = metadata.get("annotations")
            if isinstance(annotations, dict) and names.SIM_COUNT in annotations:
                nodes = copies(data)
        yield from (replace(document, data=node) for node in nodes) if nodes is not None else [document]


def _objects(actions: Sequence[ScenarioAction]) -> list[tuple[ScenarioAction, Raw]]:
    return [(h, h.action.raw) for h in actions if isinstance(h.action, Create | Apply)]


def _priority_classes(actions: Sequence[ScenarioAction]) -> set[str]:
    given = (raw for _, raw in _objects(actions) if raw["kind"] == "PriorityClass")
    return {str(raw["metadata"].get("name") or "") for raw in given} | SYSTEM_CLASSES.keys()


def with_owner_uids(
    actions: Sequence[ScenarioAction], declared: Kinds = NO_KINDS
) -> list[ScenarioAction]:
    """The actions with missing uids of owners and owner references filled in.

    A reference without a uid, or to an owner without one, is matched by name. If both have one and they
    differ, the reference is to another object of that name.
    """
    created = [h.action.raw for h in actions if isinstance(h.action, Create | Apply)]
    uids = {
        key_of(raw, declared): str(raw["metadata"].get("uid") or "") for raw in created if _name(raw)
    }
    lacking = {key for key, uid in uids.items() if not uid}
    given: dict[Key, str] = {}
    for planned in actions:
        for key, reference in _references(planned):
            if key in lacking:
                known = given.get(key, "")
                given[key] = known or reference.get("uid") or ""
    for key, uid in given.items():
        uids[key] = uid or made_uid(key)
    return [_completed(planned, uids, declared) for planned in actions]


def owners_without_pods(actions: Sequence[ScenarioAction], declared: Kinds = NO_KINDS) -> Iterator[str]:
    """A note about owners that no controller creates pods for and no pod refers to."""
    referred = {key for planned in actions for key, _ in _references(planned)}
    found: Counter[tuple[str, str]] = Counter()
    for planned in actions:
        if isinstance(planned.action, Create | Apply):
            raw = planned.action.raw
            key = key_of(raw, declared)
            if key[:2] in _OWNERS and not makes_pods(key.group, raw) and key not in referred:
                found[key[:2]] += 1
    if found:
        yield f"no pods are created for: {counted(found)}"


def _references(planned: ScenarioAction) -> Iterator[tuple[Key, dict[str, Any]]]:
    if not isinstance(planned.action, Create | Apply):
        return
    metadata = planned.action.raw["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        yield owner_key(metadata, reference), reference


def _completed(planned: ScenarioAction, uids: dict[Key, str], declared: Kinds) -> ScenarioAction:
    action = planned.action
    if not isinstance(action, Create | Apply):
        return planned
    metadata: Raw = action.raw["metadata"]
    changes: Raw = {}
    uid = uids[key_of(action.raw, declared)] if _name(action.raw) else ""
    if uid and not metadata.get("uid"):
        changes["uid"] = uid
    references = [
        reference if reference.get("uid") else {**reference, "uid": uids.get(key) or made_uid(key)}
        for key, reference in _references(planned)
    ]
    if references != (metadata.get("ownerReferences") or []):
        changes["ownerReferences"] = references
    if not changes:
        return planned
    raw = {**action.raw, "metadata": {**metadata, **changes}}
    return replace(planned, action=replace(action, raw=raw))


def _name(raw: Raw) -> str:
    return str(raw["metadata"].get("name") or "")
