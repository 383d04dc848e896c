"""The endpoints of Services: EndpointSlices, and the Endpoints object of older clients.

A Service with a selector has an endpoint for each selected pod that has an address and has not ended.
Slices have at most 100 endpoints and differ in their ports, which may be named differently in each pod.

A changed pod is compared with the endpoint it has, and only the slice it is in is written; all pods are
looked at once when a Service is new or changed. Services are found by one label of their selector.
Changes of pods are written at most twice a second for each Service, as kube-controller-manager does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.api import names
from holdfast.local.clock import ComponentTimers, LocalClock
from holdfast.local.component import ENDED, ObjectWriter, Steps
from holdfast.local.store.objects import POD, Key, Raw, StoreChange, node_key, pod_key

SERVICE = ("", "Service")
SLICE = ("discovery.k8s.io", "EndpointSlice")
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
TRIGGERED = "endpoints.kubernetes.io/last-change-trigger-time"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
LEGACY_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
LEGACY_MANAGER = "endpoint-controller"
MOST_IN_SLICE = 100
MOST_ADDRESSES = 1000
"""Addresses in an Endpoints object."""
BATCH = 0.5
_PODS_AT_A_TIME = 500

_Ports = tuple[tuple[str, str, int, str], ...]
"""Name, protocol, number and application protocol of each."""


@dataclass(slots=True)
class _Slice:
    ports: _Ports
    endpoints: dict[str, Raw] = field(default_factory=dict)
    """By the name of the pod."""


@dataclass(slots=True)
class _Service:
    """A Service with a selector, and its slices as they were last written."""

    slices: dict[str, _Slice] = field(default_factory=dict)
    slice_of: dict[str, str] = field(default_factory=dict)
    """The slice of each pod."""
    changed_pods: set[str] = field(default_factory=set)
    written_at: float = float("-inf")
    is_new: bool = True
    """Whether the slices in the store are still to be read, and all pods to be compared."""


class EndpointsController:
    def __init__(self, objects: ObjectWriter, clock: LocalClock, timers: ComponentTimers) -> None:
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._services: dict[Key, _Service] = {}
        self._by_label: dict[tuple[str, str, str], dict[Key, dict[str, str]]] = {}
        """Services with their selectors, by namespace and one label of the selector."""
        self._slices: dict[Key, set[str]] = {}
        """The names of all slices of our making, by Service."""
        self._stale: dict[Key, None] = {}
        self._gone: dict[Key, None] = {}
        self._waiting: set[Key] = set()
        """Services that have a timer for their next write."""
        self._writing = False

    # Changes

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        kind = key[:2]
        if kind == POD:
            if self._by_label:
                self._pod_changed(key, before, after)
        elif kind == SERVICE:
            self._service_changed(key, before, after)
        elif kind == SLICE:
            self._slice_changed(key, before, after)

    def _pod_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        for raw in (before, after):
            if raw is not None:
                for service in self._selecting(key.namespace, raw["metadata"].get("labels") or {}):
                    self._services[service].changed_pods.add(key.name)
                    self._stale[service] = None

    def _selecting(self, namespace: str, labels: dict[str, str]) -> list[Key]:
        return [
            service
            for label in labels.items()
            for service, selector in self._by_label.get((namespace, *label), {}).items()
            if selector.items() <= labels.items()
        ]

    def _service_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        was, now = _selector(before), _selector(after)
        if was:
            label = (key.namespace, *min(was.items()))
            known = self._by_label.get(label, {})
            known.pop(key, None)
            if not known:
                self._by_label.pop(label, None)
        if now:
            self._by_label.setdefault((key.namespace, *min(now.items())), {})[key] = now
            self._services[key] = _Service()
            self._stale[key] = None
        elif self._services.pop(key, None) is not None or (after is None and key in self._slices):
            self._stale.pop(key, None)
            self._gone[key] = None

    def _slice_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        service = _service_of(key, before if after is None else after)
        if service is None:
            return
        known = self._slices.setdefault(service, set())
        if after is not None:
            known.add(key.name)
        else:
            known.discard(key.name)
            if not known:
                del self._slices[service]
        if not self._writing and service in self._services:
            # Another client changed it: it is computed again.
            self._services[service] = _Service()
            self._stale[service] = None

    # Work

    def settle(self) -> Steps:
        gone, self._gone = self._gone, {}
        for key in gone:
            if key not in self._services:
                self._delete(key)
                yield None
        new = {key for key in self._stale if self._services[key].is_new}
        if new:
            yield from self._compare_all_pods(new)
        stale, self._stale = self._stale, {}
        for key in stale:
            service = self._services.get(key)
            if service is None:
                continue
            wait = service.written_at + BATCH - self._clock.t
            if wait > 0:
                if key not in self._waiting:
                    self._waiting.add(key)
                    self._timers.add(self._clock.t + wait, partial(self._due, key))
                continue
            if service.is_new:  # it was changed meanwhile
                self._stale[key] = None
                continue
            service.written_at = self._clock.t
            yield from self._reconcile(key, service)

    def _due(self, key: Key) -> None:
        self._waiting.discard(key)
        if key in self._services:
            self._stale[key] = None

    def _compare_all_pods(self, new: Iterable[Key]) -> Steps:
        for key in new:
            service = self._services[key]
            service.is_new = False
            for name in self._slices.get(key, ()):
                self._read_slice(service, Key(*SLICE, key.namespace, name))
            service.changed_pods.update(service.slice_of)
        wanted = set(new)
        for number, pod in enumerate(self._objects.scan("", "Pod"), 1):
            metadata = pod["metadata"]
            for key in self._selecting(metadata["namespace"], metadata.get("labels") or {}):
                if key in wanted:
                    self._services[key].changed_pods.add(metadata["name"])
            if number % _PODS_AT_A_TIME == 0:
                yield None

    def _read_slice(self, service: _Service, key: Key) -> None:
        raw = self._objects.get(key)
        if raw is None:
            return
        ports = tuple(
            (
                port.get("name") or "",
                port.get("protocol") or "TCP",
                port.get("port") or 0,
                port.get("appProtocol") or "",
            )
            for port in raw.get("ports") or ()
        )
        found = service.slices[key.name] = _Slice(ports)
        for endpoint in raw.get("endpoints") or ():
            pod = (endpoint.get("targetRef") or {}).get("name") or ""
            found.endpoints[pod] = endpoint
            service.slice_of[pod] = key.name

    def _reconcile(self, key: Key, service: _Service) -> Steps:
        raw = self._objects.get(key)
        if raw is None or self._is_terminating(key.namespace):
            return
        pods, service.changed_pods = service.changed_pods, set()
        dirty: dict[str, None] = {}
        homeless: dict[_Ports, dict[str, Raw]] = {}
        for number, pod in enumerate(pods, 1):
            self._compare(raw, service, pod_key(key.namespace, pod), dirty, homeless)
            if number % _PODS_AT_A_TIME == 0:
                yield None
        if self._services.get(key) is not service:
            return  # it was changed meanwhile, and is compared again
        for ports, endpoints in homeless.items():
            self._place(key, service, ports, endpoints, dirty)
        empty = [name for name, each in service.slices.items() if not each.endpoints]
        if len(empty) == len(service.slices):
            empty = empty[1:]  # the placeholder of a Service without endpoints
        for name in empty:
            del service.slices[name]
            dirty[name] = None
        if not service.slices:
            service.slices[self._new_name(key)] = _Slice(())
            dirty[next(iter(service.slices))] = None
        for name in dirty:
            self._write_slice(key, raw, name, service.slices.get(name))
            yield None
        self._write_endpoints(key, raw, service)

    def _compare(
        self,
        service_raw: Raw,
        service: _Service,
        key: Key,
        dirty: dict[str, None],
        homeless: dict[_Ports, dict[str, Raw]],
    ) -> None:
        pod = self._objects.get(key)
        wanted = None
        if pod is not None and _is_selected(service_raw, pod) and _has_address(pod):
            wanted = self._endpoint(service_raw, pod), _ports_of(service_raw, pod)
        name = service.slice_of.get(key.name)
        if name is not None:
            found = service.slices[name]
            if wanted is not None and found.ports == wanted[1]:
                if found.endpoints[key.name] != wanted[0]:
                    found.endpoints[key.name] = wanted[0]
                    dirty[name] = None
                return
            del found.endpoints[key.name], service.slice_of[key.name]
            dirty[name] = None
        if wanted is not None:
            homeless.setdefault(wanted[1], {})[key.name] = wanted[0]

    def _place(
        self,
        key: Key,
        service: _Service,
        ports: _Ports,
        endpoints: dict[str, Raw],
        dirty: dict[str, None],
    ) -> None:
        """Fills slices that have to be written anyway, then others, then new ones."""
        names = [
            name for name, each in service.slices.items() if each.ports == ports or not each.endpoints
        ]
        names.sort(key=lambda name: name not in dirty)
        waiting = iter(sorted(endpoints.items()))
        pod = next(waiting, None)
        while pod is not None:
            name = names.pop(0) if names else self._new_name(key)
            found = service.slices.setdefault(name, _Slice(ports))
            while pod is not None and len(found.endpoints) < MOST_IN_SLICE:
                found.ports = ports
                found.endpoints[pod[0]] = pod[1]
                service.slice_of[pod[0]] = name
                dirty[name] = None
                pod = next(waiting, None)

    def _new_name(self, key: Key) -> str:
        while True:
            name = self._objects.identity.name(f"{key.name}-")
            if Key(*SLICE, key.namespace, name) not in self._objects:
                return name

    def _endpoint(self, service: Raw, pod: Raw) -> Raw:
        metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
        terminating, serving = bool(metadata.get("deletionTimestamp")), _is_ready(pod)
        endpoint: Raw = {
            "addresses": [status["podIP"]],
            "conditions": {
                "ready": bool(service["spec"].get("publishNotReadyAddresses"))
                or (serving and not terminating),
                "serving": serving,
                "terminating": terminating,
            },
            "targetRef": _reference(pod),
        }
        if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
            endpoint["hostname"] = spec["hostname"]
        node = spec.get("nodeName")
        if node:
            endpoint["nodeName"] = node
            found = self._objects.get(node_key(node))
            zone = ((found or {}).get("metadata", {}).get("labels") or {}).get(names.ZONE_LABEL)
            if zone:
                endpoint["zone"] = zone
        return endpoint

    # Writes

    def _write(self, key: Key, raw: Raw | None) -> None:
        self._writing = True
        try:
            if raw is None:
                if key in self._objects:
                    self._objects.delete(key)
            elif key in self._objects:
                self._objects.update(key, raw)
            else:
                self._objects.store.create(key, self._objects.identity.new(key, raw))
        finally:
            self._writing = False

    def _write_slice(self, service: Key, raw: Raw, name: str, wanted: _Slice | None) -> None:
        key = Key(*SLICE, service.namespace, name)
        if wanted is None:
            self._write(key, None)
            return
        before = self._objects.get(key) or {}
        labels = {
            **(raw["metadata"].get("labels") or {}),
            MANAGED_BY: MANAGER,
            SERVICE_NAME: service.name,
        }
        if _is_headless(raw):
            labels[HEADLESS] = ""
        owner = {
            "apiVersion": "v1",
            "kind": "Service",
            "name": service.name,
            "uid": raw["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = {
            **(before.get("metadata") or {"generation": 0}),
            "name": name,
            "namespace": service.namespace,
            "generateName": f"{service.name}-",
            "labels": labels,
            "annotations": {TRIGGERED: self._clock.stamp()},
            "ownerReferences": [owner],
        }
        metadata["generation"] = metadata.get("generation", 0) + 1
        self._write(
            key,
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": metadata,
                "addressType": "IPv4",
                "endpoints": [*wanted.endpoints.values()],
                "ports": [_port(*port) for port in wanted.ports],
            },
        )

    def _write_endpoints(self, key: Key, raw: Raw, service: _Service) -> None:
        at = Key("", "Endpoints", key.namespace, key.name)
        subsets, truncated = _subsets(service.slices.values())
        labels = {**(raw["metadata"].get("labels") or {}), LEGACY_MANAGED_BY: LEGACY_MANAGER}
        if _is_headless(raw):
            labels[HEADLESS] = ""
        before = self._objects.get(at)
        if (
            before is not None
            and before.get("subsets", []) == subsets
            and before["metadata"].get("labels") == labels
        ):
            return
        annotations = {TRIGGERED: self._clock.stamp()}
        if truncated:
            annotations[OVER_CAPACITY] = "truncated"
        metadata = {
            **(before or {"metadata": {}})["metadata"],
            "name": key.name,
            "namespace": key.namespace,
            "labels": labels,
            "annotations": annotations,
        }
        made: Raw = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
        self._write(at, {**made, "subsets": subsets} if subsets else made)

    def _delete(self, key: Key) -> None:
        """The Service is gone, or has no selector any more; then only its slices go."""
        for name in [*self._slices.get(key, ())]:
            self._write(Key(*SLICE, key.namespace, name), None)
        if key not in self._objects:
            self._write(Key("", "Endpoints", key.namespace, key.name), None)

    def _is_terminating(self, namespace: str) -> bool:
        found = self._objects.get(Key("", "Namespace", "", namespace))
        return found is not None and bool(found["metadata"].get("deletionTimestamp"))


# Services and pods


def _selector(service: Raw | None) -> dict[str, str]:
    spec = (service or {}).get("spec") or {}
    selector: dict[str, str] = spec.get("selector") or {}
    return selector if spec.get("type") != "ExternalName" else {}


def _is_headless(service: Raw) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def _is_selected(service: Raw, pod: Raw) -> bool:
    return _selector(service).items() <= (pod["metadata"].get("labels") or {}).items()


def _service_of(key: Key, raw: Raw | None) -> Key | None:
    """The Service of a slice of our making."""
    labels = ((raw or {}).get("metadata") or {}).get("labels") or {}
    if labels.get(MANAGED_BY) != MANAGER or not labels.get(SERVICE_NAME):
        return None
    return Key(*SERVICE, key.namespace, labels[SERVICE_NAME])


def _has_address(pod: Raw) -> bool:
    status = pod.get("status") or {}
    return bool(status.get("podIP")) and status.get("phase") not in ENDED


def _is_ready(pod: Raw) -> bool:
    return any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in pod["status"].get("conditions") or ()
    )


def _reference(pod: Raw) -> Raw:
    metadata = pod["metadata"]
    return {
        "kind": "Pod",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _ports_of(service: Raw, pod: Raw) -> _Ports:
    """The ports of the Service in this pod; one whose name no container has is left out."""
    found = []
    for port in service["spec"].get("ports") or ():
        protocol = port.get("protocol") or "TCP"
        number = _number(port, protocol, pod)
        if number is not None:
            found.append((port.get("name") or "", protocol, number, port.get("appProtocol") or ""))
    return tuple(found)


def _number(port: Raw, protocol: str, pod: Raw) -> int | None:
    target: Any = port.get("targetPort")
    if target in (None, "", 0):
        target = port.get("port")
    if isinstance(target, int):
        return target
    spec = pod["spec"]
    sidecars = [
        each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    ]
    for container in (*(spec.get("containers") or ()), *sidecars):
        for each in container.get("ports") or ():
            if each.get("name") == target and (each.get("protocol") or "TCP") == protocol:
                return int(each["containerPort"])
    return None


def _port(name: str, protocol: str, number: int, application: str) -> Raw:
    port: Raw = {"name": name, "port": number, "protocol": protocol}
    return {**port, "appProtocol": application} if application else port


def _subsets(slices: Iterable[_Slice]) -> tuple[list[Raw], bool]:
    """The subsets of an Endpoints object, one per set of ports, and whether some did not fit."""
    by_ports: dict[_Ports, tuple[list[Raw], list[Raw]]] = {}
    count = 0
    for each in slices:
        for endpoint in each.endpoints.values():
            conditions = endpoint["conditions"]
            if conditions["terminating"]:
                continue
            count += 1
            if count > MOST_ADDRESSES:
                return _as_subsets(by_ports), True
            address = {"ip": endpoint["addresses"][0], "targetRef": endpoint["targetRef"]}
            for name in ("hostname", "nodeName"):
                if name in endpoint:
                    address[name] = endpoint[name]
            ready, not_ready = by_ports.setdefault(each.ports, ([], []))
            (ready if conditions["ready"] else not_ready).append(address)
    return _as_subsets(by_ports), False


def _as_subsets(by_ports: dict[_Ports, tuple[list[Raw], list[Raw]]]) -> list[Raw]:
    found = []
    for ports, (ready, not_ready) in sorted(by_ports.items()):
        subset: Raw = {}
        if ready:
            subset["addresses"] = sorted(ready, key=lambda each: str(each["ip"]))
        if not_ready:
            subset["notReadyAddresses"] = sorted(not_ready, key=lambda each: str(each["ip"]))
        if ports:
            subset["ports"] = [
                {key: value for key, value in _port(*port).items() if value != ""} for port in ports
            ]
        found.append(subset)
    return found
