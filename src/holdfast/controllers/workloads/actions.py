"""What controllers want done, and how they say so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Raw = dict[str, Any]

BURST = 100
"""Pods made at a time (kube-controller-manager: 500). They make the controller look again."""
NORMAL, WARNING = "Normal", "Warning"


class Ref(NamedTuple):
    """Which object: by group and not by version; the namespace is empty outside namespaces."""

    group: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Create:
    """A new object, often with a `generateName` alone."""

    raw: Raw
    by: Ref
    """Who wants it, and is told how it went: `Created pod: NAME`, or why not."""
    announce: bool = True


@dataclass(frozen=True, slots=True)
class Update:
    """The whole object as it is to be, status included."""

    ref: Ref
    before: Raw
    """As it was when that was worked out."""
    after: Raw

    def applied_to(self, now: Raw) -> Raw:
        """The object as it is now, with what is to change. What others have written meanwhile stays,
        but for parts that both have written: the spec, the status, one field of the metadata."""
        if now is self.before:
            return self.after
        merged = _merged(self.before, self.after, now)
        merged["metadata"] = _merged(self.before["metadata"], self.after["metadata"], now["metadata"])
        return merged


@dataclass(frozen=True, slots=True)
class Delete:
    """As a client's DELETE: pods get their grace period, finalizers are waited for."""

    ref: Ref
    uid: str
    propagation: str = "Background"


@dataclass(frozen=True, slots=True)
class Emit:
    """An event."""

    about: Raw
    type: str
    reason: str
    message: str
    source: str


Action = Create | Update | Delete | Emit


@dataclass(slots=True)
class Outcome:
    actions: list[Action] = field(default_factory=list)
    again_at: float | None = None
    """When to look again even if nothing happens."""

    def look_again(self, at: float | None) -> None:
        if at is not None and (self.again_at is None or at < self.again_at):
            self.again_at = at

    def update(self, ref: Ref, before: Raw, after: Raw) -> None:
        if after != before:
            self.actions.append(Update(ref, before, after))


def _merged(before: Raw, after: Raw, now: Raw) -> Raw:
    ours = {name for name in {**before, **after} if before.get(name) != after.get(name)}
    kept = {name: value for name, value in now.items() if name not in ours}
    return kept | {name: value for name, value in after.items() if name in ours}
