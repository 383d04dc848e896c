"""Changing objects: the kinds of patch an API server takes, and who owns which field afterwards.

    json_patch        RFC 6902
    merge_patch       RFC 7386
    strategic_merge   a merge patch that merges lists by their keys
    apply             server-side apply; raises ApplyConflict
    track_update      who owns which field after any other change

Objects are plain dicts, never changed in place: every function gives a new one that shares with the old
what it did not touch. May import `server.schema` and `api`.
"""

from holdfast.machinery.patch.apply import apply
from holdfast.machinery.patch.fields import ApplyConflict, Cause, PatchError
from holdfast.machinery.patch.json_patch import json_patch, merge_patch
from holdfast.machinery.patch.managed_fields import (
    empty_object,
    keep_times,
    track_update,
    without_managed_fields,
)
from holdfast.machinery.patch.strategic import strategic_merge

__all__ = [
    "ApplyConflict",
    "Cause",
    "PatchError",
    "apply",
    "empty_object",
    "json_patch",
    "keep_times",
    "merge_patch",
    "strategic_merge",
    "track_update",
    "without_managed_fields",
]
