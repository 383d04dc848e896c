"""Defaults of pods, their containers and volumes that depend on other fields: requests from limits,
sums of the pod level, pull policies, host ports."""

from __future__ import annotations

from typing import Any

from holdfast.api.quantity import parse
from holdfast.api.resources import is_hugepages, is_pod_level
from holdfast.machinery.schema.scalars import canonical

Part = dict[str, Any]


def default_pod(pod: Part) -> Part:
    """Defaults of a pod but not of a template: requests from limits, and host ports."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    changed: Part = {}
    host_network = spec.get("hostNetwork") is True
    for field in ("containers", "initContainers"):
        containers = spec.get(field)
        if containers:
            filled = [_of_a_pod(container, host_network) for container in containers]
            if any(new is not old for new, old in zip(filled, containers, strict=True)):
                changed[field] = filled
    if "enableServiceLinks" not in spec:
        changed["enableServiceLinks"] = True
    if isinstance(spec.get("resources"), dict):
        changed["resources"] = _pod_level({**spec, **changed})
    return {**pod, "spec": {**spec, **changed}} if changed else pod


def default_pod_spec(spec: Part) -> Part:
    """serviceAccount is the deprecated name of serviceAccountName."""
    name, old_name = spec.get("serviceAccountName"), spec.get("serviceAccount")
    if name == old_name:
        return spec
    account = name or old_name
    return {**spec, "serviceAccountName": account, "serviceAccount": account}


def _of_a_pod(container: Part, host_network: bool) -> Part:
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        requests = resources.get("requests") or {}
        if any(name not in requests for name in limits):
            resources = {**resources, "requests": {**limits, **requests}}
            container = {**container, "resources": resources}
    if host_network and container.get("ports"):
        ports = [
            port if port.get("hostPort") else {**port, "hostPort": port.get("containerPort", 0)}
            for port in container["ports"]
        ]
        container = {**container, "ports": ports}
    return container


def _pod_level(spec: Part) -> Part:
    """Pod-level resources: requests default to the sum of the containers' requests, else to the
    limits."""
    resources: Part = spec["resources"]
    limits = dict(resources.get("limits") or {})
    requests = dict(resources.get("requests") or {})
    if limits or requests:
        for name, quantity in _sum_of_containers(spec, "limits").items():
            if is_hugepages(name):
                limits.setdefault(name, quantity)
    if limits:
        for name, quantity in _sum_of_containers(spec, "requests").items():
            if is_pod_level(name) and not is_hugepages(name):
                requests.setdefault(name, quantity)
        for name, quantity in limits.items():
            if is_pod_level(name):
                requests.setdefault(name, quantity)
    filled = dict(resources)
    if limits:
        filled["limits"] = limits
    if requests:
        filled["requests"] = requests
    return filled


def _sum_of_containers(spec: Part, field: str) -> dict[str, str]:
    """The sum of the containers, or the largest init container if that is more."""
    running: dict[str, int] = {}
    largest: dict[str, int] = {}
    spelling: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        for name, nano in _amounts(container, field, spelling).items():
            if sidecar:
                running[name] = running.get(name, 0) + nano
            largest[name] = max(largest.get(name, 0), running.get(name, 0) + nano * (not sidecar))
    for container in spec.get("containers") or ():
        for name, nano in _amounts(container, field, spelling).items():
            running[name] = running.get(name, 0) + nano
    totals = {name: max(running.get(name, 0), largest.get(name, 0)) for name in running | largest}
    return {name: _spelt(nano, spelling[name]) for name, nano in totals.items()}


def _amounts(container: Part, field: str, spelling: dict[str, str]) -> dict[str, int]:
    found = (container.get("resources") or {}).get(field) or {}
    for name, quantity in found.items():
        spelling.setdefault(name, quantity)
    return {name: parse(quantity) for name, quantity in found.items()}


def _spelt(nano: int, like: str) -> str:
    """A sum, in the kind of suffix its first part had."""
    if like.endswith("i") and nano % 10**9 == 0 and (nano // 10**9) % 1024 == 0:
        return canonical(f"{nano // 10**9 // 1024}Ki")
    return canonical(f"{nano}n")


def default_container(container: Part) -> Part:
    missing: Part = {}
    if "imagePullPolicy" not in container:
        missing["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    if "terminationMessagePath" not in container:
        missing["terminationMessagePath"] = "/dev/termination-log"
    if "terminationMessagePolicy" not in container:
        missing["terminationMessagePolicy"] = "File"
    return {**container, **missing} if missing else container


def default_image_volume(source: Part) -> Part:
    if "pullPolicy" in source:
        return source
    return {**source, "pullPolicy": _pull_policy(source.get("reference", ""))}


def _pull_policy(image: str) -> str:
    """The tag `latest`, or none at all, means always."""
    name, at, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if not image or (at and not tag):
        return "IfNotPresent"
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def default_volume(volume: Part) -> Part:
    """A volume without a source is an emptyDir."""
    if any(name != "name" for name in volume):
        return volume
    return {**volume, "emptyDir": {}}


def default_requirements(resources: Part) -> Part:
    """Amounts finer than a thousandth are rounded up to one."""
    for field in ("limits", "requests"):
        amounts = resources.get(field)
        if amounts and any(quantity[-1] in "nu" for quantity in amounts.values()):
            rounded = {name: _milli(quantity) for name, quantity in amounts.items()}
            resources = {**resources, field: rounded}
    return resources


def _milli(quantity: str) -> str:
    if quantity[-1] not in "nu":
        return quantity
    return canonical(f"{-(-parse(quantity) // 10**6)}m")
