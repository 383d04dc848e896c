"""From a CustomResourceDefinition to the types it serves."""

from __future__ import annotations

import re
from typing import Any

from holdfast.machinery.schema.custom import cel as rules
from holdfast.machinery.schema.types import PrinterColumn, ResourceType, ScalePaths, Subresource

MAX_COLUMNS = 100
"""Printer columns a version may have. Of a definition kept from before, those beyond are not shown."""
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGES = {"": 2, "beta": 1, "alpha": 0}


def crd_types(raw: dict[str, Any]) -> tuple[ResourceType, ...]:
    """One type per served version, the preferred version first. The CRD must have been validated."""
    spec = raw["spec"]
    served = [version for version in spec["versions"] if version.get("served")]
    served.sort(key=lambda version: version_rank(version["name"]), reverse=True)
    return tuple(_type(raw["metadata"]["name"], spec, version) for version in served)


def crd_warnings(raw: dict[str, Any]) -> list[str]:
    """What to tell whoever creates or changes the definition."""
    found: list[str] = []
    for i, version in enumerate((raw.get("spec") or {}).get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        path = f"spec.versions[{i}].schema.openAPIV3Schema"
        for where, rule in rules.unevaluated_rules(schema, path):
            why = (
                "" if rules.available() else " without CEL (pip install 'holdfast[cel]' to enforce it)"
            )
            found.append(f"{where}: this rule is not evaluated here{why}: {rule}")
    return found


def version_rank(name: str) -> tuple[int, int, int, int, tuple[int, ...]]:
    """Sorts versions as Kubernetes does: v2, v1, v1beta2, v1alpha1, then other names from a to z."""
    match = _VERSION.fullmatch(name)
    if match is None:
        return (0, 0, 0, 0, tuple(-ord(char) for char in name))
    stage = match[2] or ""
    return (1, _STAGES[stage], int(match[1]), int(match[3] or 0), ())


def _type(name: str, spec: dict[str, Any], version: dict[str, Any]) -> ResourceType:
    names = spec["names"]
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    found: list[Subresource] = []
    if scale is not None:
        found.append(Subresource("scale", "Scale", group="autoscaling", version="v1"))
    if subresources.get("status") is not None:
        found.append(Subresource("status", names["kind"]))
    return ResourceType(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec["scope"] == "Namespaced",
        subresources=tuple(found),
        columns=tuple(
            _column(column) for column in (version.get("additionalPrinterColumns") or ())[:MAX_COLUMNS]
        ),
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        crd=name,
        scale=_scale(scale) if scale is not None else None,
        deprecation=_deprecation(spec, version),
        storage=bool(version.get("storage")),
        selectable_fields=tuple(
            field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
        ),
    )


def _column(raw: dict[str, Any]) -> PrinterColumn:
    return PrinterColumn(
        name=raw["name"],
        type=raw["type"],
        json_path=raw["jsonPath"],
        format=raw.get("format", ""),
        description=raw.get("description", ""),
        priority=raw.get("priority", 0),
    )


def _scale(raw: dict[str, Any]) -> ScalePaths:
    return ScalePaths(
        replicas=raw["specReplicasPath"].lstrip("."),
        status_replicas=raw["statusReplicasPath"].lstrip("."),
        selector=raw.get("labelSelectorPath", "").lstrip("."),
    )


def _deprecation(spec: dict[str, Any], version: dict[str, Any]) -> str:
    if not version.get("deprecated"):
        return ""
    said = version.get("deprecationWarning")
    if said is not None:
        return str(said)
    return f"{spec['group']}/{version['name']} {spec['names']['kind']} is deprecated"
