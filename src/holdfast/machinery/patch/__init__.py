"""Changes to objects: the kinds of patch an API server takes, and field ownership afterwards.

    json_patch                     JSON patch (RFC 6902) and merge patch (RFC 7386)
    strategic                      strategic merge patch: lists are merged by their keys
    apply                          server-side apply; raises `ApplyConflict`
    managed_fields                 field managers (`metadata.managedFields`): ownership, conflicts
    fields                         sets of field paths
    compare                        fields that a change touches; merging by shape

Objects are plain dicts, never changed in place: every function returns a new one that shares the
untouched parts with the old. May import `machinery.schema` and `api`.
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
