"""ResourceClaims, templates and DeviceClasses that a pod or reservation names and that do not exist:
the nearest name, or the object to create; and attributes of devices that selectors misspell. Proposed
only if the object would then be scheduled."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import RESOURCE_API
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.claim_details import MISSING_KEY, RESOURCE_SLICE, device_fields
from holdfast.explanation.facts.created_claims import CLAIM_TEMPLATE, generated_claims
from holdfast.explanation.facts.other_pods import siblings
from holdfast.explanation.repairs.changed_claims import ChangedClaims, claims_of_pod
from holdfast.explanation.repairs.repair import RESIZE, WAIT, Repair, repair, spec_changes
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts, Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ObjectChange, create, patch
from holdfast.snapshot.cluster_snapshot import POD, RESOURCE_CLAIM, ClusterSnapshot

DEVICE_CLASS = KINDS[RESOURCE_API, "DeviceClass"]
_NO_CLASS = re.compile(r"device class (\S+) does not exist")
_NO_CLAIM = re.compile(r'could not find ResourceClaim "([^/"]+)/([^"]+)"')
_NO_TEMPLATE = re.compile(r'could not find ResourceClaimTemplate "([^/"]+)/([^"]+)"')
_NOT_CREATED = "ResourceClaim not created yet"
_CLASSES = 5
"""How many device classes are tried."""


class _Situation(NamedTuple):
    snapshot: ClusterSnapshot
    subject: Subject
    pod: PodRecord
    advisor: Advisor

    def names(self, info: KindInfo, namespace: str = "") -> list[str]:
        found = (each["metadata"] for each in self.snapshot.all(info))
        return sorted(each["name"] for each in found if (each.get("namespace") or "") == namespace)


def consider_missing_claims(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, message: str, advisor: Advisor
) -> list[str]:
    """Facts about the objects that a rejection says are missing; proposes what would help."""
    about = _Situation(snapshot, subject, pod, advisor)
    facts: list[str] = []
    for name in _NO_CLASS.findall(message):
        facts += _no_class(about, name)
    for namespace, name in _NO_CLAIM.findall(message):
        facts += _no_claim(about, namespace, name)
    templates = [(namespace, name) for namespace, name in _NO_TEMPLATE.findall(message)]
    if _NOT_CREATED in message:
        entries = pod.cls.pod.spec.resource_claims
        templates += [
            (pod.namespace, name) for e in entries if (name := e.resource_claim_template_name or "")
        ]
    for namespace, name in dict.fromkeys(templates):
        facts += _no_template(about, namespace, name)
    return facts


# DeviceClasses


def _no_class(about: _Situation, name: str) -> Iterator[str]:
    known = about.names(DEVICE_CLASS)
    others = did_you_mean(name, known) or (f"; there are: {few(known)}" if known else ", nor any other")
    yield f"there is no DeviceClass {name}{others}"
    for near in nearest(name, known):
        any(map(about.advisor.propose, _other_class(about, name, near)))
    made = {"apiVersion": RESOURCE_API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}}
    text = f"create the DeviceClass {name} (without selectors it has all devices)"
    about.advisor.propose(repair(text, "CreateDeviceClass", [create(DEVICE_CLASS, made)], RESIZE))


def _other_class(about: _Situation, name: str, near: str) -> list[Repair]:
    """The claims, and templates, with another class."""
    claims = claims_of_pod(about.snapshot, about.subject, about.pod)
    changed = ChangedClaims(about.snapshot, claims, lambda devices: _rename(devices, name, near))
    text = f"request the DeviceClass {near}{changed.where}"
    return [repair(text, "ReplaceClaim", changed.objects)] if changed.objects else []


def _rename(value: object, name: str, near: str) -> None:
    """Replaces the class in all requests and alternatives."""
    if isinstance(value, dict):
        if value.get("deviceClassName") == name:
            value["deviceClassName"] = near
        for each in value.values():
            _rename(each, name, near)
    elif isinstance(value, list):
        for each in value:
            _rename(each, name, near)


# Attributes of devices


def consider_attributes(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, placing: NodeVerdicts, advisor: Advisor
) -> None:
    """Selectors that read an attribute which a device does not have, with the nearest that it has."""
    texts = {text for each in placing.rejections.values() for text in each.texts}
    claims = claims_of_pod(snapshot, subject, pod)
    for missing in filter(None, map(MISSING_KEY.search, sorted(texts))):
        key = missing["key"]
        for near in nearest(key, device_fields(snapshot, missing["device"])):
            changed = ChangedClaims(snapshot, claims, partial(_reselect, key=key, near=near))
            if changed.objects:
                text = f"read {near} instead of {key} in the selectors of {changed.what}"
                advisor.propose(repair(text, "ReplaceClaim", changed.objects))


def _reselect(value: object, key: str, near: str) -> None:
    """Replaces a name in all expressions of selectors."""
    if isinstance(value, dict):
        if isinstance(expression := value.get("expression"), str):
            value["expression"] = re.sub(rf"\b{key}\b", near, expression)
        for each in value.values():
            _reselect(each, key, near)
    elif isinstance(value, list):
        for each in value:
            _reselect(each, key, near)


# Slices


def awaited_slices(snapshot: ClusterSnapshot, row: int) -> Iterator[Repair]:
    """Waiting for the rest of the slices of a pool that its driver updates."""
    pools = snapshot.cluster.claims.catalogue.visible(row).pools
    for driver, name in [each.id for each in pools if each.incomplete]:
        found = [
            raw
            for raw in snapshot.all(RESOURCE_SLICE)
            if raw["spec"].get("driver") == driver and raw["spec"]["pool"].get("name") == name
        ]
        newest = max(int(raw["spec"]["pool"].get("generation") or 0) for raw in found)
        found = [raw for raw in found if int(raw["spec"]["pool"].get("generation") or 0) == newest]
        body = {"spec": {"pool": {"resourceSliceCount": len(found)}}}
        wanted = found[0]["spec"]["pool"].get("resourceSliceCount")
        there = f"{len(found)} of {wanted} ResourceSlices are there"
        text = f"wait until driver {driver} has published the rest of pool {name} ({there})"
        objects = [patch(RESOURCE_SLICE, raw, body, follows=True) for raw in found]
        yield repair(text, "WaitForSlices", objects, WAIT)


# Claims and templates


def _no_claim(about: _Situation, namespace: str, name: str) -> Iterator[str]:
    known = about.names(RESOURCE_CLAIM, namespace)
    generated = about.names(CLAIM_TEMPLATE, namespace)
    hint = did_you_mean(name, known)
    if not hint and name in generated:
        hint = "; a ResourceClaimTemplate has this name"
    yield f"there is no ResourceClaim {namespace}/{name}{hint}"
    for near in nearest(name, known):
        edit = _renamed("resourceClaimName", name, near)
        text = f"set resourceClaimName: {near} instead of {name}"
        objects = spec_changes(about.snapshot, about.subject, edit)
        about.advisor.propose(repair(text, "UseClaim", objects))

    def made(spec: Raw) -> list[ObjectChange]:
        metadata = {"name": name, "namespace": namespace, "uid": f"claim-{name}"}
        return [create(RESOURCE_CLAIM, _object("ResourceClaim", metadata, spec))]

    _propose_creation(about, f"ResourceClaim {namespace}/{name}", made, is_unlike=not hint)


def _no_template(about: _Situation, namespace: str, name: str) -> Iterator[str]:
    known = about.names(CLAIM_TEMPLATE, namespace)
    if name in known:
        yield (
            f"the claim from ResourceClaimTemplate {namespace}/{name} does not exist yet: the resource "
            "claim controller of Kubernetes creates it"
        )
        return
    hint = did_you_mean(name, known)
    if not hint and name in about.names(RESOURCE_CLAIM, namespace):
        hint = "; a ResourceClaim has this name"
    yield f"there is no ResourceClaimTemplate {namespace}/{name}{hint}"
    for near in nearest(name, known):
        edit = _renamed("resourceClaimTemplateName", name, near)
        objects = spec_changes(about.snapshot, about.subject, edit)
        template = about.snapshot.find(CLAIM_TEMPLATE, near, namespace) or {}
        spec = ((template.get("spec") or {}).get("spec")) or {}
        text = f"set resourceClaimTemplateName: {near} instead of {name}"
        edited = {(each.name, each.namespace) for each in objects if each.info is POD}
        edited |= {(each.name, each.namespace) for each in siblings(about.snapshot, about.subject)}
        made_claims = _generated(about, namespace, name, spec, edited)
        about.advisor.propose(repair(text, "UseClaim", [*objects, *made_claims]))

    def made(spec: Raw) -> list[ObjectChange]:
        metadata = {"name": name, "namespace": namespace, "uid": f"template-{name}"}
        template = _object("ResourceClaimTemplate", metadata, {"spec": spec})
        return [create(CLAIM_TEMPLATE, template), *_generated(about, namespace, name, spec)]

    _propose_creation(about, f"ResourceClaimTemplate {namespace}/{name}", made, is_unlike=not hint)


def _propose_creation(
    about: _Situation, what: str, made: Callable[[Raw], list[ObjectChange]], is_unlike: bool
) -> None:
    """Creating the object for one device, of the first class with which all pods would be scheduled;
    without devices if no class lets any be scheduled, unless another object has a similar name."""
    for each in about.names(DEVICE_CLASS)[:_CLASSES]:
        exactly = {"deviceClassName": each, "allocationMode": "ExactCount", "count": 1}
        spec = {"devices": {"requests": [{"name": "device", "exactly": exactly}]}}
        text = f"create the {what} (tried with 1 device of DeviceClass {each})"
        if about.advisor.propose(repair(text, "CreateClaim", made(spec), RESIZE)):
            return
    if is_unlike and not any("CreateClaim" in kinds for kinds in about.advisor.actions):
        text = f"create the {what} (tried without devices)"
        about.advisor.propose(repair(text, "CreateClaim", made({"devices": {}}), RESIZE))


def _object(kind: str, metadata: Raw, spec: Raw) -> Raw:
    return {"apiVersion": RESOURCE_API, "kind": kind, "metadata": metadata, "spec": spec}


def _renamed(field: str, name: str, near: str) -> Callable[[Raw], Raw]:
    def edit(spec: Raw) -> Raw:
        entries = spec.get("resourceClaims") or []
        return {
            "resourceClaims": [
                {**each, field: near} if each.get(field) == name else each for each in entries
            ]
        }

    return edit


def _generated(
    about: _Situation,
    namespace: str,
    template: str,
    spec: Raw,
    only: set[tuple[str, str]] | None = None,
) -> list[ObjectChange]:
    """The claims that the controller creates from a template for all pods that wait for it; for those
    of a reservation it creates none."""
    found: list[ObjectChange] = []
    for raw in about.snapshot.all(POD):
        metadata = raw["metadata"]
        key = metadata["name"], metadata.get("namespace") or ""
        is_kept = "deletionTimestamp" not in metadata and (only is None or key in only)
        if key[1] == namespace and is_kept:
            found += generated_claims(raw, {template: spec})
    return found
