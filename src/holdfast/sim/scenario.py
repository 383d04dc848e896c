"""From documents to what happens when.

A document is an object, which is created at its `sim.holdfast.io/at`; a Step, which changes things
later; or an Expect, which says what should have come of it. Everything that can be wrong with them
before anything runs is found here, all of it at once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.api import names
from holdfast.api.decode import drop_nulls, object_name
from holdfast.api.documents import Document
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import Kinds
from holdfast.api.raw_objects import ObjectKind, declared_infos
from holdfast.api.validation import validate
from holdfast.backends.embedded.admission import SYSTEM_CLASSES
from holdfast.backends.embedded.agenda import STATED, STATED_FIRST
from holdfast.sim.errors import InvalidInput
from holdfast.sim.expect import Expectation, read_expectation
from holdfast.sim.happenings import Apply, Check, Create, Happening, Scenario
from holdfast.sim.owners import owners_without_pods, with_owner_uids
from holdfast.sim.reading import described
from holdfast.sim.skipped_kinds import counted, is_skipped
from holdfast.sim.start_time import start_time
from holdfast.sim.step_documents import STEP, read_step
from holdfast.sim.strict_decoding import unknown_field_errors
from holdfast.sim.timing import timing
from holdfast.sim.workloads import makes_pods
from holdfast.store.objects import Raw

EXPECT = "Expect"
_FIRST = ("Namespace", "PriorityClass", "RuntimeClass", "StorageClass")
"""Kinds that others need when they are created; of objects created at one time these come first,
wherever they stand in the files."""


def read_scenario(documents: Sequence[Document], kinds: Sequence[ObjectKind] = ()) -> Scenario:
    """`kinds` are those of objects that plugins read. Raises InvalidInput with every problem."""
    declared = declared_infos(kinds)
    problems: list[str] = []
    happenings: list[Happening] = []
    at_the_end: list[tuple[Document, Expectation]] = []
    skipped: Counter[tuple[str, str]] = Counter()
    unknown: Counter[str] = Counter()
    given: list[Raw] = []
    for position, document in enumerate(documents):
        data = document.data
        found: list[InvalidObject] = []
        if not isinstance(data, dict):
            problems.append(f"{document}: expected an object, got {described(data)}")
            continue
        if data.get("apiVersion") == names.SIM_API or data.get("kind") in (STEP, EXPECT):
            applied = data.get("apply") if data.get("kind") == STEP else None
            if isinstance(applied, dict) and _is_skipped(applied, declared):
                skipped[_group_and_kind(applied)] += 1
            else:
                _read_own(data, document, position, declared, found, happenings, at_the_end)
        elif _is_skipped(data, declared):
            skipped[_group_and_kind(data)] += 1
            given.append(data)
        else:
            raw = drop_nulls(data) if _named(data) not in declared else data
            found.extend(validate(raw, declared))
            found.extend(_misspelt(raw, found, unknown))
            if not found:
                times = timing(raw, found)
                order = (STATED_FIRST if raw["kind"] in _FIRST else STATED, position)
                happenings.append(Happening(times[names.SIM_AT], order, document, Create(raw)))
                if not times[names.SIM_AT]:
                    given.append(raw)
        problems.extend(f"{document}: {each}" for each in found)
    problems.extend(_missing_classes(happenings))
    if not documents:
        problems.append("no documents were given")
    if problems:
        raise InvalidInput(problems)
    notes = []
    if skipped:
        notes.append(f"skipped: {counted(skipped)}")
    if unknown:
        fields = ", ".join(sorted(unknown))
        notes.append(f"ignored: fields this version does not know: {fields}")
    happenings = with_owner_uids(happenings, declared)
    notes.extend(owners_without_pods(happenings, declared))
    notes.extend(_templates_without_class(happenings))
    start = start_time(given)
    return Scenario(tuple(happenings), tuple(at_the_end), start, tuple(notes), tuple(kinds))


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


def _misspelt(
    raw: Raw, known: Sequence[InvalidObject], unknown: Counter[str]
) -> Iterator[InvalidObject]:
    """Fields that do not exist. In an object a server has stored they are not misspelt but newer than
    we are: these are counted."""
    if any(each.field in ("kind", "apiVersion") for each in known):
        return
    places = {each.field for each in known}
    for error in unknown_field_errors(raw):
        if raw["metadata"].get("resourceVersion"):
            unknown[f"{raw['kind']} {error.field}"] += 1
        elif error.field not in places:
            yield error


def _read_own(
    data: Raw,
    document: Document,
    position: int,
    declared: Kinds,
    found: list[InvalidObject],
    happenings: list[Happening],
    at_the_end: list[tuple[Document, Expectation]],
) -> None:
    kind = data.get("kind")
    if data.get("apiVersion") != names.SIM_API:
        found.append(InvalidObject(str(kind), "apiVersion", f"must be {names.SIM_API}"))
    elif kind == STEP:
        step = read_step(data, found, declared)
        if step is not None:
            happenings.append(Happening(step[0], (STATED, position), document, step[1]))
    elif kind == EXPECT:
        expectation = read_expectation(data, found)
        if expectation is not None and expectation.at is not None:
            check = Check(expectation)
            happenings.append(Happening(expectation.at, (STATED, position), document, check))
        elif expectation is not None:
            at_the_end.append((document, expectation))
    else:
        message = f"no {kind} in {names.SIM_API}; known: {STEP}, {EXPECT}"
        found.append(InvalidObject("", "kind", message))


def _missing_classes(happenings: Sequence[Happening]) -> Iterator[str]:
    """Priority classes that pods name and that never come to be. A pod that has its priority was
    admitted where they are."""
    objects, known = _objects(happenings), _priority_classes(happenings)
    for happening, raw in objects:
        spec = raw.get("spec") or {} if raw["kind"] == "Pod" else {}
        name = spec.get("priorityClassName")
        if name and name not in known and spec.get("priority") is None:
            prefix = "apply." if isinstance(happening.action, Apply) else ""
            yield (
                f"{happening.origin}: {object_name(raw)}: {prefix}spec.priorityClassName: "
                f"no PriorityClass with name {name} was found"
            )


def _templates_without_class(happenings: Sequence[Happening]) -> Iterator[str]:
    """A line about workloads whose pods an API server would refuse, since their class never comes."""
    known = _priority_classes(happenings)
    found: dict[str, list[str]] = {}
    for _, raw in _objects(happenings):
        if makes_pods(raw["apiVersion"].rpartition("/")[0], raw):
            name = (raw["spec"]["template"].get("spec") or {}).get("priorityClassName")
            if name and name not in known:
                found.setdefault(name, []).append(object_name(raw))
    if found:
        texts = (f"{name} (of {', '.join(owners)})" for name, owners in sorted(found.items()))
        yield f"no pods can be made with PriorityClasses that are not here: {', '.join(texts)}"


def _objects(happenings: Sequence[Happening]) -> list[tuple[Happening, Raw]]:
    return [(h, h.action.raw) for h in happenings if isinstance(h.action, Create | Apply)]


def _priority_classes(happenings: Sequence[Happening]) -> set[str]:
    given = (raw for _, raw in _objects(happenings) if raw["kind"] == "PriorityClass")
    return {str(raw["metadata"].get("name") or "") for raw in given} | SYSTEM_CLASSES.keys()
