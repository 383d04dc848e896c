"""Pods come in many copies: what the first of a template goes through counts for all.

Reading, defaulting, admission and validation look at everything but a pod's name, so two bodies that
differ in the name alone give pods that differ in what the server gives each: name, uid, times. The
finished first one is kept, and the others are made from it. What was decided by priority classes is
forgotten when these change.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.local.apiserver.request_bodies import Body
from holdfast.local.store import Raw, Store, StoreChange
from holdfast.serving.limits import TEMPLATE_BYTES

if TYPE_CHECKING:
    from holdfast.local.apiserver.api_state import Call

_KEPT = 1024
_encode = msgspec.json.Encoder().encode
_PRIORITY_CLASS = ("scheduling.k8s.io", "PriorityClass")

Key = tuple[bytes, str, str, str]


class _Known(NamedTuple):
    pod: Raw
    colons: int


class PodTemplates:
    def __init__(self, store: Store) -> None:
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        store.observe(self._changed)

    def key(self, call: Call, body: Body) -> Key | None:
        """By which copies are known; None for what is not to be remembered."""
        value = body.value
        metadata = value.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            return None
        nameless = {**value, "metadata": {**metadata, "name": ""}}
        try:
            text = _encode(nameless)
        except RecursionError:
            return None
        if len(text) > TEMPLATE_BYTES:
            return None
        return text, call.namespace, call.options.manager, call.options.validation

    def copy(self, key: Key, body: Body) -> Raw | None:
        """The pod the first of its template became, as it was. A body that gives a key twice is none
        of its copies."""
        known = self._known.get(key)
        if known is None or known.colons != body.colons:
            return None
        return known.pod

    def keep(self, key: Key, body: Body, pod: Raw) -> None:
        if body.duplicates() or (pod.get("spec") or {}).get("schedulingGates"):
            return  # of a gated pod the status has a time too
        self._known[key] = _Known(pod, body.colons)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def _changed(self, change: StoreChange) -> None:
        if change.key[:2] == _PRIORITY_CLASS:
            self._known.clear()


def named(pod: Raw, name: str, uid: str, now: str) -> Raw:
    """A copy of the pod under another name."""
    metadata = {**pod["metadata"], "name": name, "uid": uid, "creationTimestamp": now}
    managers = metadata.get("managedFields")
    if managers:
        metadata["managedFields"] = [{**each, "time": now} for each in managers]
    return {**pod, "metadata": metadata}
