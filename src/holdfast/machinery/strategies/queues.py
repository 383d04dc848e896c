"""Queues: as Volcano's admission does, the API server refuses a queue below one that does not exist.
Objects of a scenario or snapshot come in any order, and are not refused."""

from holdfast.api.jobs import ROOT_QUEUE
from holdfast.api.names import VOLCANO_API
from holdfast.api.raw_objects import Key, Raw
from holdfast.api.similar_names import did_you_mean
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.status import forbidden
from holdfast.machinery.strategies.strategy import (
    Strategy,
    all_but_status,
    keep_all_but_status,
    keep_status,
)

_GROUP, _KIND = VOLCANO_API.partition("/")[0], "Queue"


def _new(request: WriteRequest, raw: Raw) -> Raw:
    _check_parent(request, raw)
    return {name: value for name, value in raw.items() if name != "status"}


def _changed(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    if _parent(after) != _parent(before):
        _check_parent(request, after)
    return keep_status(request, before, after)


def _parent(raw: Raw) -> str:
    return str((raw.get("spec") or {}).get("parent") or "")


def _check_parent(request: WriteRequest, raw: Raw) -> None:
    """Raises StatusError 403. That a queue is below itself is an error of validation."""
    parent = _parent(raw)
    if request.restores or parent in ("", ROOT_QUEUE, request.name):
        return
    if request.store.get(Key(_GROUP, _KIND, "", parent)) is None:
        known = [each["metadata"]["name"] for each in request.store.scan(_GROUP, _KIND)]
        hint = did_you_mean(parent, set(known) - {request.name})
        why = f'{request.resource} "{parent}" not found{hint}'
        why = f"failed to get parent queue of queue {request.name}: {why}"
        raise forbidden(request.resource, request.name, why)


QUEUE = Strategy(
    generation_of=all_but_status,
    unconditional_update=False,
    new=_new,
    changed=_changed,
    status_changed=keep_all_but_status,
)
