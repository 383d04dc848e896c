"""What a reservation is asked to be, and what is wrong with how that was said: flag by flag."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.duration import parse_duration
from holdfast.api.errors import MalformedText
from holdfast.api.label_selectors import Requirement
from holdfast.api.names import CPU, MEMORY, NVIDIA_GPU
from holdfast.api.quantity import parse
from holdfast.api.selector_text import parse_label_selector
from holdfast.api.timestamps import parse_time
from holdfast.cli.failing import Failure

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was said; None and empty where nothing was."""

    name: str = ""
    replicas: int | None = None
    resources: dict[str, str] = field(default_factory=dict)
    owners: list[Raw] = field(default_factory=list)
    node: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    ttl: str | None = None
    expires: str | None = None
    once: bool | None = None
    policy: str = ""
    ahead: bool = False
    namespace: str = ""
    """Of the owners, if it was given."""


def read_resources(
    cpu: str | None, memory: str | None, gpu: str | None, others: Sequence[str]
) -> dict[str, str]:
    """Amounts by name. Raises Failure."""
    given = [("--cpu", CPU, cpu), ("--memory", MEMORY, memory), ("--gpu", NVIDIA_GPU, gpu)]
    for text in others:
        name, equals, quantity = text.partition("=")
        if not equals or not name or not quantity:
            raise Failure(1, [f"--resource: expected NAME=QUANTITY, got {text!r}"])
        given.append(("--resource", name, quantity))
    found: dict[str, str] = {}
    for flag, name, value in given:
        if value is None:
            continue
        if name in found:
            raise Failure(1, [f"{flag}: {name} is given twice"])
        with _flag(flag):
            if parse(value) <= 0:
                raise Failure(1, [f"{flag}: must be more than 0, got {value!r}"])
        found[name] = value
    return found


def read_owners(selectors: Sequence[str], namespace: str) -> list[Raw]:
    """Each an alternative; the parts of one must all hold. Raises Failure."""
    owners = []
    for text in selectors:
        if not text.strip():
            raise Failure(1, ["--owner: expected labels, such as app=web,tier in (a,b)"])
        with _flag("--owner"):
            owner: Raw = {"labelSelector": label_selector(parse_label_selector(text).requirements)}
        owners.append({"object": {"namespace": namespace}, **owner} if namespace else owner)
    return owners


def label_selector(requirements: Sequence[Requirement]) -> Raw:
    labels: dict[str, str] = {}
    expressions: list[Raw] = []
    for each in requirements:
        if each.operator == "In" and len(each.values) == 1 and each.key not in labels:
            labels[each.key] = each.values[0]
            continue
        if each.operator in ("Gt", "Lt"):
            raise Failure(1, [f"--owner: {each.key}: labels of pods cannot be compared by size"])
        expression: Raw = {"key": each.key, "operator": each.operator}
        if each.values:
            expression["values"] = sorted(each.values)
        expressions.append(expression)
    selector: Raw = {"matchLabels": labels} if labels else {}
    return {**selector, "matchExpressions": expressions} if expressions else selector


def read_pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """`key=value`, several with commas. Raises Failure."""
    found = {}
    for part in (part for text in given for part in text.split(",") if part):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise Failure(1, [f"{flag}: expected KEY=VALUE, got {part!r}"])
        found[key] = value
    return found


def check_lifetime(ttl: str | None, expires: str | None) -> None:
    """Raises Failure."""
    if ttl is not None and expires is not None:
        raise Failure(1, ["--expires: cannot be given together with --ttl; keep one of them"])
    if ttl is not None:
        with _flag("--ttl"):
            if parse_duration(ttl) < 0:
                raise Failure(1, [f"--ttl: must not be negative: {ttl}"])
    if expires is not None:
        with _flag("--expires"):
            parse_time(expires)


@contextmanager
def _flag(name: str) -> Iterator[None]:
    """What is wrong with a text is said with the flag it was given by."""
    try:
        yield
    except MalformedText as error:
        raise Failure(1, [f"{name}: {error}"]) from None
