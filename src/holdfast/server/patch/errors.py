"""Why a patch could not be applied.

PatchError          the patch, or the object it would give, makes no sense
└── ApplyConflict   server-side apply would take fields that others own
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.api.errors import HoldfastError


class PatchError(HoldfastError):
    """The message is Kubernetes'; `code` and `reason` are those of the Status to answer with."""

    def __init__(self, message: str, code: int = 400, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason or {400: "BadRequest", 422: "Invalid", 409: "Conflict"}.get(code, "")


class Cause(NamedTuple):
    """One field somebody else owns, as a cause of the Status."""

    field: str
    message: str
    reason: str = "FieldManagerConflict"


class ApplyConflict(PatchError):
    """Fields of the applied configuration belong to other managers."""

    def __init__(self, message: str, causes: list[Cause]) -> None:
        super().__init__(message, code=409)
        self.causes = causes
