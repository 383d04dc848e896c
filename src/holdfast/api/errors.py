"""Every error Holdfast raises on purpose.

    HoldfastError
    ├── InvalidObject        an API object, or a field of it, is not acceptable
    ├── UnknownDefinition    no CustomResourceDefinition of that name
    └── MalformedText        a piece of text does not follow its grammar (also a ValueError)
        ├── QuantityError    `1.5Gi`
        ├── DurationError    `1h30m`
        ├── TimeError        `2026-01-01T00:00:00Z`
        └── SelectorError    `app=web,tier in (a,b)`, and selectors in objects

Code that knows which object it works on turns a `MalformedText` into an `InvalidObject`, so
that what reaches the user always names the object and the field.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Root of the tree: catch this to catch everything Holdfast complains about."""


class InvalidObject(HoldfastError):
    """One complaint about one field of one object.

    `object` is the object's name as timelines show it (`Pod/default/p1`), or "" while only a
    part of an object is looked at. `field` is a path such as `spec.owners[1]`, or "" when the
    object as a whole is meant.
    """

    def __init__(self, object: str, field: str, message: str) -> None:
        super().__init__(object, field, message)
        self.object = object
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return ": ".join(part for part in (self.object, self.field, self.message) if part)

    def within(self, object: str = "", prefix: str = "") -> InvalidObject:
        """The same complaint, seen from an outer object or from further up its path."""
        if prefix and self.field and not self.field.startswith("["):
            prefix += "."
        return InvalidObject(object or self.object, prefix + self.field, self.message)


class UnknownDefinition(HoldfastError):
    """There is no CustomResourceDefinition of that name."""


class MalformedText(HoldfastError, ValueError):
    """Text that does not follow its grammar."""


class QuantityError(MalformedText):
    """Not a Kubernetes quantity."""


class DurationError(MalformedText):
    """Not a Go duration."""


class TimeError(MalformedText):
    """Not an RFC 3339 time."""


class SelectorError(MalformedText):
    """Not a label, field or node selector."""
