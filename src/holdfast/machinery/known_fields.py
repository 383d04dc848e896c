"""Which fields an object may have: the check against misspelt and misplaced ones.

Typed views skip what they do not know, so a `nodeNmae` would be silence. Schemas are derived
from the types, plus the names of fields that exist in Kubernetes but mean nothing to a
scheduler. A part whose fields we do not list in full is open: anything goes in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec

from holdfast.api import meta, pod, reservation
from holdfast.api import storage as volumes
from holdfast.machinery.error_list import ErrorList

Schema = Mapping[str, "Schema | None"]
"""Field name to the schema of what is in it; None is an open part or a plain value."""

_ALSO: dict[type[Any], str] = {
    meta.ObjectMeta: "selfLink managedFields",
    pod.ResourceRequirements: "claims",
    pod.Container: """args command env envFrom imagePullPolicy lifecycle livenessProbe
        readinessProbe resizePolicy restartPolicyRules securityContext startupProbe stdin
        stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts
        workingDir""",
    pod.PodSpec: """automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks
        ephemeralContainers hostAliases hostIPC hostPID hostUsers hostname hostnameOverride
        imagePullSecrets os readinessGates runtimeClassName securityContext
        serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain
        workloadRef schedulingGroup""",
    volumes.Volume: """azureFile cephfs cinder configMap downwardAPI emptyDir fc flexVolume
        flocker gitRepo glusterfs hostPath image nfs photonPersistentDisk portworxVolume projected
        quobyte scaleIO secret storageos vsphereVolume""",
}
_OPEN = frozenset(
    {
        volumes.AWSElasticBlockStore,
        volumes.AzureDisk,
        volumes.CSIVolume,
        volumes.GCEPersistentDisk,
        volumes.ISCSIVolume,
        volumes.PersistentVolumeClaimTemplate,
        volumes.RBDVolume,
        pod.PodStatus,
        reservation.ReservationStatus,
    }
)


def find_unknown(
    findings: ErrorList,
    raw: Any,
    schema: Schema,
    path: str = "",
    *,
    misplaced_only: bool = False,
    mistakes_only: bool = False,
) -> None:
    """Report fields the schema does not have, with the name or place that was probably meant.

    With `misplaced_only`, names that are known nowhere in the schema are let pass: an API
    server is older or newer than we are, but a known name in a wrong place is a mistake. With
    `mistakes_only`, so are names that are nearly a known one.
    """
    whole = schema

    def visit(raw: Any, schema: Schema, path: str) -> None:
        if isinstance(raw, list):
            for i, item in enumerate(raw):
                visit(item, schema, f"{path}[{i}]")
        if not isinstance(raw, Mapping):
            return
        for key, value in raw.items():
            where = f"{path}.{key}" if path else str(key)
            if key in schema:
                inner = schema[key]
                if inner is not None:
                    visit(value, inner, where)
                continue
            below = (name for name, inner in schema.items() if inner is not None and key in inner)
            child = next(below, None)
            home = _homes(whole).get(key) if child is None else f"{path}.{child}".lstrip(".")
            if home is not None:
                findings.add(where, f"unknown field here; it belongs to {home}")
            elif not misplaced_only:
                close = get_close_matches(str(key), schema, n=1)
                if mistakes_only and not close:
                    continue
                hint = f"; did you mean {close[0]}?" if close else _known(schema)
                findings.add(where, f"unknown field{hint}")

    visit(raw, schema, path)


def _known(schema: Schema) -> str:
    return f"; known: {', '.join(schema)}" if len(schema) <= 12 else ""


def _homes(schema: Schema) -> dict[str, str]:
    """Where each field name lives, the place nearest to the top winning."""
    homes: dict[str, str] = {}
    for key, parent in sorted(_places(schema, ""), key=lambda place: place[1].count(".")):
        homes.setdefault(key, parent or "the top level")
    return homes


def _places(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for key, inner in schema.items():
        yield key, path
        if inner is not None:
            yield from _places(inner, f"{path}.{key}" if path else key)


@cache
def schema_of(type: type[Any]) -> Schema:
    """The schema of a struct type and of the structs inside it."""
    info = msgspec.inspect.type_info(type)
    assert isinstance(info, msgspec.inspect.StructType)
    fields: dict[str, Schema | None] = {f.encode_name: _inner(f.type) for f in info.fields}
    fields.update(dict.fromkeys(_ALSO.get(type, "").split()))
    return fields


def _inner(type: msgspec.inspect.Type) -> Schema | None:
    if isinstance(type, msgspec.inspect.UnionType):
        return next((s for s in map(_inner, type.types) if s is not None), None)
    if isinstance(type, msgspec.inspect.ListType):
        return _inner(type.item_type)
    if isinstance(type, msgspec.inspect.StructType) and type.cls not in _OPEN:
        return schema_of(type.cls)
    return None


@cache
def reservation_schema() -> Schema:
    """A reservation whose template is spelt out as the pod template it is.

    Manifests written for Koordinator often have the template's namespace at its top level,
    following that project's manual; they are to work unchanged.
    """
    template: Schema = {
        "metadata": schema_of(meta.ObjectMeta),
        "spec": schema_of(pod.PodSpec),
        "namespace": None,
    }
    whole = dict(schema_of(reservation.Reservation))
    whole["spec"] = {**schema_of(reservation.ReservationSpec), "template": template}
    return whole
