"""Metadata, spec and status, which every builder writes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Generic, Self, TypeVar, cast

from holdfast.api.decode import decode
from holdfast.api.meta import Object

CREATED = "2026-01-01T00:00:00Z"

T = TypeVar("T", bound=Object)
Raw = dict[str, Any]


class Builder(Generic[T]):
    """Metadata, which everything has."""

    api_version = ""
    kind = ""

    def __init__(self, name: str) -> None:
        self._raw: Raw = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED},
        }

    def raw(self) -> Raw:
        return deepcopy(self._raw)

    def obj(self) -> T:
        return cast("T", decode(self.raw()))

    def namespace(self, namespace: str) -> Self:
        return self._meta("namespace", namespace)

    def uid(self, uid: str) -> Self:
        return self._meta("uid", uid)

    def created(self, time: str) -> Self:
        return self._meta("creationTimestamp", time)

    def deleted(self, time: str = CREATED) -> Self:
        return self._meta("deletionTimestamp", time)

    def resource_version(self, version: str | int) -> Self:
        return self._meta("resourceVersion", str(version))

    def label(self, key: str, value: str = "") -> Self:
        self._metadata.setdefault("labels", {})[key] = value
        return self

    def labels(self, labels: dict[str, str]) -> Self:
        self._metadata.setdefault("labels", {}).update(labels)
        return self

    def annotation(self, key: str, value: str) -> Self:
        self._metadata.setdefault("annotations", {})[key] = value
        return self

    def owned_by(
        self,
        kind: str,
        name: str,
        *,
        api_version: str = "apps/v1",
        uid: str = "",
        controller: bool = True,
    ) -> Self:
        self._metadata.setdefault("ownerReferences", []).append(
            {
                "apiVersion": api_version,
                "kind": kind,
                "name": name,
                "uid": uid or f"uid-{name}",
                "controller": controller,
            }
        )
        return self

    @property
    def _metadata(self) -> Raw:
        return cast("Raw", self._raw["metadata"])

    @property
    def raw_metadata(self) -> Raw:
        """The metadata as written so far, likewise."""
        return self._metadata

    @property
    def raw_spec(self) -> Raw:
        """The spec as written so far, for what no method writes."""
        return self._spec

    @property
    def _spec(self) -> Raw:
        return cast("Raw", self._raw.setdefault("spec", {}))

    @property
    def _status(self) -> Raw:
        return cast("Raw", self._raw.setdefault("status", {}))

    def _meta(self, key: str, value: Any) -> Self:
        self._metadata[key] = value
        return self

    def _set(self, key: str, value: Any) -> Self:
        self._spec[key] = value
        return self

    def _append(self, key: str, value: Any) -> Self:
        self._spec.setdefault(key, []).append(value)
        return self

    def spec(self, **fields: Any) -> Self:
        """Any field by its camelCase name, for what has no method of its own."""
        self._spec.update(fields)
        return self

    def status(self, **fields: Any) -> Self:
        self._status.update(fields)
        return self

    def condition(self, type: str, status: str, reason: str = "", message: str = "") -> Self:
        self._status.setdefault("conditions", []).append(
            {"type": type, "status": status, "reason": reason, "message": message}
        )
        return self
