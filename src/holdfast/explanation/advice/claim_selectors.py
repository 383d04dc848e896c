"""Selectors that no device matches and constraints between devices, of the requests of a pod's
ResourceClaims: other values, or the claim without them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress

from holdfast.api.errors import QuantityError
from holdfast.api.quantity import parse
from holdfast.api.similar_names import nearest
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.missing_claims import DEVICE_CLASS
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.facts.device_values import is_matched, operands
from holdfast.explanation.repairs.changed_claims import ChangedClaims, claims_of_pod, each_request
from holdfast.explanation.repairs.repair import CONFIGURE, RESIZE, Repair, repair
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.machinery.schema.device_selectors import DeviceValues
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.claims_request import RequestPart
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_TRIED = 6
_NODES = 20
_LONGEST = 60
_CONSTRAINTS = ("matchAttribute", "distinctAttribute")


# Constraints


def fewer_constraints(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """The claims without one of their constraints; then without all of them."""
    claims = claims_of_pod(snapshot, subject, pod)
    found: dict[tuple[str, str], None] = {}

    def note(devices: Raw) -> None:
        for each in devices.get("constraints") or ():
            found.update(dict.fromkeys((kind, each[kind]) for kind in _CONSTRAINTS if each.get(kind)))

    ChangedClaims(snapshot, claims, note)
    sets = [[each] for each in found]
    if len(found) > 1:
        sets.append(list(found))
    for chosen in sets:

        def edit(devices: Raw, chosen: list[tuple[str, str]] = chosen) -> None:
            if "constraints" in devices:
                devices["constraints"] = [
                    each
                    for each in devices["constraints"]
                    if not any(each.get(kind) == name for kind, name in chosen)
                ]

        changed = ChangedClaims(snapshot, claims, edit)
        which = " and ".join(f"{kind}: {name}" for kind, name in chosen)
        text = f"remove the constraint {which}{changed.where}"
        if changed.objects:
            yield repair(text, "ReplaceClaim", changed.objects, RESIZE)


# Selectors


def consider_selectors_of_nodes(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, nodes: list[str], advisor: Advisor
) -> None:
    """Selectors that no device of one of the nodes matches: the last resort where other nodes have
    devices that do."""
    catalogue = snapshot.cluster.claims.catalogue
    for row in (row_of(snapshot, name) for name in nodes[:_NODES]):
        entries = catalogue.visible(row).entries
        shapes = [catalogue.table.shapes.value(each.shape) for each in entries]
        for each in _other_selectors(snapshot, subject, pod, row, shapes):
            if advisor.propose(each):
                return


def other_selectors(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """For selectors that no device of the cluster matches: a value that devices have, otherwise the
    request without the selector."""
    table = snapshot.cluster.claims.catalogue.table
    shapes = [each for each in table.shapes.values if each is not None]
    yield from _other_selectors(snapshot, subject, pod, row, shapes)


def _other_selectors(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    row: int,
    shapes: list[DeviceValues],
) -> Iterator[Repair]:
    """`shapes` are the devices that count."""
    request = snapshot.cluster.claims.of_class(pod.cls).on(row).request
    for part in request.parts if request is not None else ():
        expressions = (*part.class_selectors, *part.selectors)
        if any(all(is_matched(each, device) for each in expressions) for device in shapes):
            continue
        for at, expression in enumerate(expressions):
            if any(is_matched(expression, device) for device in shapes):
                continue
            is_of_class = at < len(part.class_selectors)
            place: _Selector = (
                _ClassSelector(snapshot, part.class_name)
                if is_of_class
                else _RequestSelector(snapshot, subject, pod, part)
            )
            yield from place.repairs(expression, shapes)


class _Selector(ABC):
    """An expression at its place: in requests of claims, or in a class."""

    @abstractmethod
    def changed(self, expression: str, other: str | None, text: str, cost: int) -> Iterator[Repair]:
        """The object with another expression; without it if that is None."""

    def repairs(self, expression: str, shapes: list[DeviceValues]) -> Iterator[Repair]:
        """A value that devices have in place of each literal."""
        for operand in operands(expression):
            if not operand.literal:
                continue
            wanted = operand.literal.strip("\"'")
            values = {each for device in shapes if (each := operand.value(device)) is not None}
            for value in _closest(wanted, values):
                quote = operand.literal[0] if operand.literal[0] in "\"'" else ""
                end = operand.start + len(operand.literal)
                other = f"{expression[: operand.start]}{quote}{value}{quote}{expression[end:]}"
                if any(is_matched(other, device) for device in shapes):
                    text = f"select {operand.name} {value} instead of {wanted}"
                    yield from self.changed(expression, other, text, CONFIGURE)
        shown = expression if len(expression) <= _LONGEST else f"{expression[:_LONGEST]}…"
        yield from self.changed(expression, None, f"remove the selector {shown}", RESIZE)


class _RequestSelector(_Selector):
    def __init__(
        self, snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, part: RequestPart
    ) -> None:
        self._snapshot = snapshot
        self._claims = claims_of_pod(snapshot, subject, pod)
        self._part = part

    def changed(self, expression: str, other: str | None, text: str, cost: int) -> Iterator[Repair]:
        def edit(name: str, exact: Raw) -> None:
            if name == self._part.request_name and exact.get("selectors"):
                exact["selectors"] = _replaced(exact["selectors"], expression, other)

        changed = ChangedClaims(self._snapshot, self._claims, each_request(edit))
        if changed.objects:
            text = f"{text} for request {self._part.full_name}{changed.where}"
            yield repair(text, "ReplaceClaim", changed.objects, cost)


class _ClassSelector(_Selector):
    def __init__(self, snapshot: ClusterSnapshot, name: str) -> None:
        self._class = snapshot.find(DEVICE_CLASS, name)

    def changed(self, expression: str, other: str | None, text: str, cost: int) -> Iterator[Repair]:
        if self._class is None:
            return
        selectors = _replaced(self._class["spec"]["selectors"], expression, other)
        objects = [patch(DEVICE_CLASS, self._class, {"spec": {"selectors": selectors}})]
        text = f"{text} in DeviceClass {self._class['metadata']['name']}"
        yield repair(text, "ChangeDeviceClass", objects, cost)


def _replaced(selectors: list[Raw], expression: str, other: str | None) -> list[Raw]:
    return [
        each if _expression(each) != expression else {"cel": {**each["cel"], "expression": other}}
        for each in selectors
        if other is not None or _expression(each) != expression
    ]


def _expression(selector: Raw) -> str:
    return str((selector.get("cel") or {}).get("expression") or "")


def _closest(wanted: str, values: set[str]) -> list[str]:
    """The values that are tried: by size if all have one, otherwise those of similar names first."""
    with suppress(QuantityError):
        return sorted(values, key=lambda each: abs(parse(each) - parse(wanted)))[:_TRIED]
    similar = nearest(wanted, values)
    return [*similar, *sorted(values.difference(similar))][:_TRIED]
