"""The actions of a scenario: create, apply, delete, patch, restart, check an expectation."""

from dataclasses import dataclass

from holdfast.api.documents import Document
from holdfast.api.raw_objects import ObjectKind
from holdfast.local.store.objects import Key, Raw
from holdfast.sim.clock import START
from holdfast.sim.expect import Expectation


@dataclass(frozen=True, slots=True)
class Target:
    """The object a Step names. Its group may be open if the kind alone is ambiguous."""

    kind: str
    namespace: str
    name: str
    groups: tuple[str, ...]

    def candidates(self) -> list[Key]:
        return [Key(group, self.kind, self.namespace, self.name) for group in self.groups]

    def __str__(self) -> str:
        return str(self.candidates()[0])


@dataclass(frozen=True, slots=True)
class Create:
    raw: Raw


@dataclass(frozen=True, slots=True)
class Apply:
    raw: Raw


@dataclass(frozen=True, slots=True)
class Delete:
    target: Target


@dataclass(frozen=True, slots=True)
class Patch:
    target: Target
    merge: Raw


@dataclass(frozen=True, slots=True)
class Restart:
    pass


@dataclass(frozen=True, slots=True)
class ExpectationCheck:
    expectation: Expectation


Action = Create | Apply | Delete | Patch | Restart | ExpectationCheck


@dataclass(frozen=True, slots=True)
class ScenarioAction:
    """An action and its time. `order` is the documents' order, except that dependencies come first."""

    t: float
    order: tuple[int, int]
    origin: Document
    action: Action


@dataclass(frozen=True, slots=True)
class Scenario:
    actions: tuple[ScenarioAction, ...]
    at_the_end: tuple[tuple[Document, Expectation], ...]
    start: float = START
    """When virtual time starts, in seconds since the epoch."""
    notes: tuple[str, ...] = ()
    """Notes about input that is ignored, a line each."""
    kinds: tuple[ObjectKind, ...] = ()
    """The kinds of objects that only plugins read."""
