"""Changing objects: the kinds of patch an API server takes, and who owns which field afterwards.

    json_patch        RFC 6902
    merge_patch       RFC 7386

Objects are plain dicts, never changed in place: every function gives a new one that shares with the old
what it did not touch. May import `server.schema` and `api`.
"""

from holdfast.server.patch.errors import ApplyConflict, Cause, PatchError
from holdfast.server.patch.json_patch import json_patch
from holdfast.server.patch.merge_patch import merge_patch

__all__ = ["ApplyConflict", "Cause", "PatchError", "json_patch", "merge_patch"]
