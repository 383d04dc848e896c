"""Expect documents: the expected outcome of a scenario, and the check against a run.

    apiVersion: sim.holdfast.io/v1alpha1
    kind: Expect
    at: 30s                         # when to check; by default at the end
    bound: {web-0: n1}              # or a list of acceptable nodes
    pending: {big: "0/1 nodes are available: 1 Insufficient cpu."}   # "" is any reason
    phases: {job: Succeeded}
    absent: [Pod/default/old]
    timeline: [{t: 5s, object: Pod/default/web-0, event: Bound, node: n1}]   # in this order
    never: [{object: Pod/default/big, event: Bound}]

A pod is `name` or `namespace/name`, another object `Kind/name` or `Kind/namespace/name`. `timeline` and
`never` cover everything up to that time. A misspelt name, of what could never happen, is an error:
kinds, names of events, and nodes that no document creates.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.api import names
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS, NO_KINDS, Kinds
from holdfast.api.similar_names import did_you_mean
from holdfast.local.component import ObjectWriter
from holdfast.local.store.objects import Raw, pod_key
from holdfast.local.timeline import EVENTS, TimelineEntry
from holdfast.sim.document_fields import described, hint, seconds, unknown_fields

_WHAT = "Expect"
_MAPS = ("bound", "pending", "phases")
_LINES = ("timeline", "never")
_FIELDS = ("apiVersion", "kind", "metadata", "at", *_MAPS, "absent", *_LINES)
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_ENTRY = ("t", "object", "event", "node", "reservation", "message")

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Expectation:
    at: float | None
    bound: dict[str, list[str]] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    phases: dict[str, str] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    timeline: list[Line] = field(default_factory=list)
    never: list[Line] = field(default_factory=list)


def read_expectation(
    data: Raw, found: list[InvalidObject], declared: Kinds = NO_KINDS
) -> Expectation | None:
    """`declared` are kinds that plugins read."""
    before = len(found)
    unknown_fields(data, _FIELDS, _WHAT, "", found)
    at = seconds(data["at"], _WHAT, "at", found) if data.get("at") is not None else None
    maps: dict[str, dict[str, Any]] = {}
    for part in _MAPS:
        given = _typed(data, part, dict, "a mapping of pods", found) or {}
        maps[part] = {str(pod): what for pod, what in given.items()}
    bound: dict[str, list[str]] = {}
    for pod, nodes in maps["bound"].items():
        bound[pod] = nodes if isinstance(nodes, list) else [nodes]
        if not all(isinstance(node, str) for node in bound[pod]):
            message = f"expected a node's name, got {described(nodes)}"
            found.append(InvalidObject(_WHAT, f"bound.{pod}", message))
    for pod, message in maps["pending"].items():
        if message is not None and not isinstance(message, str):
            problem = f"expected the message of its condition, got {described(message)}"
            found.append(InvalidObject(_WHAT, f"pending.{pod}", problem))
    for pod, phase in maps["phases"].items():
        if phase not in _PHASES:
            problem = f"expected {', '.join(_PHASES)}, got {described(phase)}"
            problem += did_you_mean(phase, _PHASES) if isinstance(phase, str) else ""
            found.append(InvalidObject(_WHAT, f"phases.{pod}", problem))
    absent = _typed(data, "absent", list, "a list of objects", found) or []
    for i, name in enumerate(absent):
        if problem := _reference_problem(name, declared):
            found.append(InvalidObject(_WHAT, f"absent[{i}]", problem))
    lines = {part: _read_lines(data, part, found, declared) for part in _LINES}
    if len(found) > before:
        return None
    pending = {pod: message or "" for pod, message in maps["pending"].items()}
    return Expectation(at, bound, pending, maps["phases"], absent, **lines)


def _typed(data: Raw, part: str, type_: type, expected: str, found: list[InvalidObject]) -> Any:
    value = data.get(part)
    if value is not None and not isinstance(value, type_):
        found.append(InvalidObject(_WHAT, part, f"expected {expected}, got {described(value)}"))
        return None
    return value


def _reference_problem(name: Any, declared: Kinds) -> str:
    """What is wrong with the name of an object; empty if nothing is."""
    if not isinstance(name, str) or "/" not in name:
        return f"expected an object such as Pod/default/web, got {described(name)}"
    kind, *parts = name.split("/")
    scopes = {info.namespaced for info in (*KINDS.values(), *declared.values()) if info.kind == kind}
    if not scopes:
        known = {known for _, known in (*KINDS, *declared)}
        return f"no kind {kind!r}{did_you_mean(kind, known)}"
    if all(parts) and (len(parts) == 2) in scopes and len(parts) <= 2:
        return ""
    form, whole = f"{kind}/NAME", f"{kind}/{parts[-1]}"
    if True in scopes:
        form, whole = f"{kind}/NAMESPACE/NAME", f"{kind}/{names.DEFAULT_NAMESPACE}/{parts[-1]}"
    hint = f"; did you mean {whole}?" if parts[-1] and len(parts) <= 2 else ""
    return f"expected {form}, got {name!r}{hint}"


def unknown_nodes(expected: Expectation, nodes: Collection[str]) -> Iterator[InvalidObject]:
    """Errors about nodes that no document creates."""
    named = [(f"bound.{pod}", node) for pod, given in expected.bound.items() for node in given]
    for part, lines in (("timeline", expected.timeline), ("never", expected.never)):
        named += [(f"{part}[{i}].node", line["node"]) for i, line in enumerate(lines) if "node" in line]
    for field_, node in named:
        if node and node not in nodes:
            yield InvalidObject(_WHAT, field_, f"no node {node!r}{did_you_mean(str(node), nodes)}")


def _read_lines(data: Raw, part: str, found: list[InvalidObject], declared: Kinds) -> list[Line]:
    lines: list[Line] = []
    for i, line in enumerate(_typed(data, part, list, "a list of timeline entries", found) or []):
        path = f"{part}[{i}]"
        if not isinstance(line, dict):
            message = f"expected a timeline entry, got {described(line)}"
            found.append(InvalidObject(_WHAT, path, message))
            continue
        unknown_fields(line, _ENTRY, _WHAT, path, found)
        for name in _ENTRY[1:]:
            if name in line and not isinstance(line[name], str):
                message = f"expected a string, got {described(line[name])}"
                found.append(InvalidObject(_WHAT, f"{path}.{name}", message))
        if "object" in line and (problem := _reference_problem(line["object"], declared)):
            found.append(InvalidObject(_WHAT, f"{path}.object", problem))
        event = line.get("event")
        if isinstance(event, str) and event not in EVENTS:
            problem = f"no event {event!r}{hint(event, EVENTS)}"
            found.append(InvalidObject(_WHAT, f"{path}.event", problem))
        read = dict(line)
        if "t" in read:
            read["t"] = seconds(read["t"], _WHAT, f"{path}.t", found)
        lines.append(read)
    return lines


def failures(
    expected: Expectation, objects: ObjectWriter, timeline: Sequence[TimelineEntry]
) -> list[str]:
    """Unmet expectations, each with its field."""
    return [
        *_check_bound(expected, objects),
        *_check_pending(expected, objects),
        *_check_phases(expected, objects),
        *_check_absent(expected, objects),
        *_check_lines(expected, timeline),
    ]


def _check_bound(expected: Expectation, objects: ObjectWriter) -> Iterator[str]:
    for name, nodes in expected.bound.items():
        pod = _pod(objects, name)
        if pod is None:
            yield f"bound.{name}: there is no such pod"
            continue
        node = pod["spec"].get("nodeName") or ""
        if node not in nodes:
            wanted = " or ".join(nodes)
            why = f"is on {node}" if node else f"has no node: {_message(pod) or 'no reason given'}"
            yield f"bound.{name}: expected on {wanted}, {why}"


def _check_pending(expected: Expectation, objects: ObjectWriter) -> Iterator[str]:
    for name, message in expected.pending.items():
        pod = _pod(objects, name)
        if pod is None:
            yield f"pending.{name}: there is no such pod"
        elif pod["spec"].get("nodeName"):
            yield f"pending.{name}: is on {pod['spec']['nodeName']}"
        elif message and _message(pod) != message:
            yield f"pending.{name}: expected {message!r}, got {_message(pod)!r}"


def _check_phases(expected: Expectation, objects: ObjectWriter) -> Iterator[str]:
    for name, phase in expected.phases.items():
        pod = _pod(objects, name)
        if pod is None:
            yield f"phases.{name}: there is no such pod"
        elif pod["status"].get("phase") != phase:
            yield f"phases.{name}: expected {phase}, got {pod['status'].get('phase')}"


def _check_absent(expected: Expectation, objects: ObjectWriter) -> Iterator[str]:
    present = {str(key) for key in objects.every_key()} if expected.absent else set()
    yield from (f"absent: {name} exists" for name in expected.absent if name in present)


def _check_lines(expected: Expectation, timeline: Sequence[TimelineEntry]) -> Iterator[str]:
    position = 0
    for i, line in enumerate(expected.timeline):
        matches = _matcher(line)
        found = next((j for j in range(position, len(timeline)) if matches(timeline[j])), None)
        if found is None:
            late = " in this order" if any(map(matches, timeline)) else ""
            yield f"timeline[{i}]: {_shown_entry(line)} did not happen{late}"
        else:
            position = found + 1
    for i, line in enumerate(expected.never):
        for entry in filter(_matcher(line), timeline):
            yield f"never[{i}]: {_shown_entry(line)} happened at {entry.t:g}s"


def _matcher(line: Line) -> Callable[[TimelineEntry], bool]:
    return lambda entry: all(getattr(entry, key) == value for key, value in line.items())


def _shown_entry(line: Line) -> str:
    parts = {key: f"{value:g}s" if key == "t" else value for key, value in line.items()}
    return ", ".join(f"{key} {value}" for key, value in parts.items())


def _pod(objects: ObjectWriter, name: str) -> Raw | None:
    namespace, _, short = name.rpartition("/")
    return objects.get(pod_key(namespace or names.DEFAULT_NAMESPACE, short))


def _message(pod: Raw) -> str:
    for condition in pod["status"].get("conditions") or []:
        if condition.get("type") == "PodScheduled":
            return str(condition.get("message") or "")
    return ""
