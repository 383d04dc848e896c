"""Objects that are not decoded: raw dicts, their keys and conditions; kinds that only plugins read.

A plugin names such a kind by an `ObjectKind`: a custom resource, or a kind of Kubernetes' own that
Holdfast does not read (ConfigMap, LimitRange). The objects are not decoded: only the plugin knows what
their fields mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS, KindInfo, Kinds
from holdfast.api.meta import Object, ObjectMeta
from holdfast.api.names import DEFAULT_NAMESPACE

Raw = dict[str, Any]
"""An object as JSON has it. It is never changed in place."""


class Key(NamedTuple):
    """Has the group without the version, since an object is the same in all versions. The namespace
    is empty for cluster-scoped objects.
    """

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        parts = (self.kind, self.namespace, self.name) if self.namespace else (self.kind, self.name)
        return "/".join(parts)


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_REFUSED = {
    ("", "Secret"): "plugins cannot read Secrets",
    (
        "",
        "Pod",
    ): "use handle.pods and handle.count_pods, which include assumed pods",
    ("", "Node"): "use handle.nodes",
    ("", "Event"): "Events are not cluster state",
    ("events.k8s.io", "Event"): "Events are not cluster state",
    ("coordination.k8s.io", "Lease"): "Leases change every few seconds",
}


class ObjectKind(msgspec.Struct, frozen=True):
    """A kind of objects that a plugin reads: `ObjectKind("example.com", "v1", "Widget", "widgets")`.

    The group of Kubernetes' own core kinds is empty. Raises ValueError for what cannot be a kind, and
    for kinds that are not given to plugins."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    def __post_init__(self) -> None:
        for field in ("group", "version", "kind", "plural"):
            if not isinstance(getattr(self, field), str):
                raise ValueError(f"ObjectKind: {field} must be a string: {getattr(self, field)!r}")
        if self.group and not _DOMAIN.fullmatch(self.group):
            raise ValueError(f"ObjectKind: invalid group {self.group!r}; such as example.com")
        if not _LABEL.fullmatch(self.version):
            raise ValueError(f"ObjectKind: invalid version {self.version!r}; such as v1")
        if not _KIND.fullmatch(self.kind):
            raise ValueError(f"ObjectKind: invalid kind {self.kind!r}; such as Widget")
        if not _LABEL.fullmatch(self.plural):
            raise ValueError(f"ObjectKind: invalid plural {self.plural!r}; such as widgets")
        if not isinstance(self.namespaced, bool):
            raise ValueError(f"ObjectKind: namespaced must be True or False: {self.namespaced!r}")
        why = _REFUSED.get((self.group, self.kind))
        if why is not None:
            raise ValueError(f"ObjectKind: {self.kind} cannot be declared: {why}")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.kind} of {self.api_version}"

    def info(self) -> KindInfo:
        return KindInfo(
            api_version=self.api_version,
            kind=self.kind,
            plural=self.plural,
            type=RawObject,
            namespaced=self.namespaced,
        )


def declared_infos(kinds: Iterable[ObjectKind]) -> Kinds:
    """The kinds that Holdfast does not read itself."""
    infos = (kind.info() for kind in kinds)
    return {
        (info.api_version, info.kind): info
        for info in infos
        if (info.api_version, info.kind) not in KINDS
    }


class RawObject(Object):
    """An object as the API server has it, less its `managedFields`; `raw` is never changed in place."""

    raw: dict[str, Any] = msgspec.field(default_factory=dict)


def raw_object(info: KindInfo, raw: Any) -> RawObject:
    """The object, which may leave out its apiVersion and kind. Raises InvalidObject if it has no valid
    metadata."""
    if not isinstance(raw, Mapping):
        raise InvalidObject(f"{info.kind}/?", "", "expected an object")
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping):
        raise InvalidObject(f"{info.kind}/?", "metadata", "expected a map")
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    namespace = f"{kept.get('namespace') or DEFAULT_NAMESPACE}/" if info.namespaced else ""
    meta = convert(kept, ObjectMeta, f"{info.kind}/{namespace}{kept.get('name') or ''}", "metadata")
    named = {**raw, "apiVersion": info.api_version, "kind": info.kind, "metadata": kept}
    return RawObject(api_version=info.api_version, kind=info.kind, metadata=meta, raw=named)


def with_condition(conditions: list[Raw], condition: Raw, now: str) -> list[Raw]:
    """The conditions with this one set. The transition time changes only with the status, not with
    the reason or message alone.
    """
    result = list(conditions)
    for i, known in enumerate(result):
        if known.get("type") == condition["type"]:
            since = known.get("lastTransitionTime") or now
            same = known.get("status") == condition["status"]
            result[i] = {**condition, "lastTransitionTime": since if same else now}
            return result
    return [*result, {**condition, "lastTransitionTime": now}]
