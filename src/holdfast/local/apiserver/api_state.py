"""The state that requests share: store, types, clock; and the pods of one template."""

from collections import OrderedDict
from copy import copy
from typing import NamedTuple

import msgspec

from holdfast.local.apiserver.request_bodies import Body
from holdfast.local.apiserver.responses import Encoder
from holdfast.local.clock import LocalClock
from holdfast.local.store import Draft, Identity, Key, RandomNames, Raw, Store, StoreChange
from holdfast.machinery.object_request import ObjectRequest
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.serving.limits import TEMPLATE_BYTES


class ApiState:
    """One per process. Everything that changes objects goes through `store`, and takes effect at
    once."""

    def __init__(
        self,
        store: Store,
        clock: LocalClock,
        catalogue: Catalogue | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.catalogue = catalogue if catalogue is not None else Catalogue()
        self.identity = identity if identity is not None else Identity(RandomNames(), clock.stamp)
        self.encoder = Encoder()
        self.announced: set[tuple[str, str]] = set()
        """Kinds that clients were told are not acted on."""
        self.templates: PodTemplates | None = PodTemplates(store)

    def drafting(self, draft: Draft) -> "ApiState":
        """The same cluster for a request in another thread, whose write is drafted."""
        cluster = copy(self)
        cluster.store = draft
        cluster.templates = None  # which is not for threads
        return cluster

    def stamp(self, after: float = 0.0) -> str:
        return self.clock.stamp(after)

    def namespace(self, name: str) -> Raw | None:
        return self.store.get(Key("", "Namespace", "", name))


ApiRequest = ObjectRequest[ApiState]
"""A request about objects of a type, as the verbs see it."""


_KEPT = 1024
_encode = msgspec.json.Encoder().encode
_ADMITTING = (
    ("", "ServiceAccount"),
    ("node.k8s.io", "RuntimeClass"),
    ("scheduling.k8s.io", "PriorityClass"),
)
"""Kinds that decide what admission gives a pod."""

_Template = tuple[bytes, str, str | None, str]


class _Known(NamedTuple):
    pod: Raw
    colons: int


class PodTemplates:
    """The first pod of each template, as it was stored; pods of the same template are copies of it.

    Decoding, defaulting, admission and validation depend on everything but a pod's name, so two bodies
    that differ only in the name give pods that differ in name, UID and times. What depends on a
    PriorityClass, RuntimeClass or ServiceAccount is forgotten when one changes.
    """

    def __init__(self, store: Store) -> None:
        self._known: OrderedDict[_Template, _Known] = OrderedDict()
        store.observe(self._changed)

    def key(self, call: ApiRequest, body: Body) -> _Template | None:
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

    def copy(self, key: _Template, body: Body) -> Raw | None:
        """The pod that the first request with this template created. None for a body that repeats a
        key: it is handled as a request of its own."""
        known = self._known.get(key)
        if known is None or known.colons != body.colons:
            return None
        return known.pod

    def keep(self, key: _Template, body: Body, pod: Raw) -> None:
        if body.duplicates() or (pod.get("spec") or {}).get("schedulingGates"):
            return  # of a gated pod the status has a time too
        self._known[key] = _Known(pod, body.colons)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def _changed(self, change: StoreChange) -> None:
        if change.key[:2] in _ADMITTING:
            self._known.clear()


def named(pod: Raw, name: str, uid: str, now: str) -> Raw:
    """A copy of the pod under another name."""
    metadata = {**pod["metadata"], "name": name, "uid": uid, "creationTimestamp": now}
    managers = metadata.get("managedFields")
    if managers:
        metadata["managedFields"] = [{**each, "time": now} for each in managers]
    return {**pod, "metadata": metadata}
