"""The objects that every cluster begins with, and those of them that the server keeps: the system
namespaces, and the Service `kubernetes` with its endpoints.
These are created again if they are deleted.
"""

from __future__ import annotations

from holdfast.api import names
from holdfast.local.apiserver.api_state import ApiRequest, ApiState
from holdfast.local.apiserver.verbs.writes import change, create_object
from holdfast.local.component import Steps
from holdfast.local.store import Key, Raw, StoreChange
from holdfast.machinery.object_request import WriteOptions
from holdfast.machinery.schema import apply_defaults
from holdfast.machinery.strategies.admission import SYSTEM_CLASSES
from holdfast.machinery.strategies.core_kinds import FIRST_ADDRESS

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_SERVICE = Key("", "Service", "default", "kubernetes")
_SLICE = Key("discovery.k8s.io", "EndpointSlice", "default", "kubernetes")
_ENDPOINTS = Key("", "Endpoints", "default", "kubernetes")
_KEPT = frozenset(
    (_SERVICE, _SLICE, _ENDPOINTS, *(Key("", "Namespace", "", name) for name in NAMESPACES))
)


class SystemObjects:
    """Creates and restores what the server keeps. A Service that was changed is left as it is, except
    for the port."""

    def __init__(self, cluster: ApiState, host: str, port: int) -> None:
        """`host` and `port` are those that the server listens on."""
        self._cluster = cluster
        self._address = (host, port)
        self._stale = False
        self._ensure()

    def changed(self, change: StoreChange) -> None:
        if change.key in _KEPT:
            self._stale = True

    def settle(self) -> Steps:
        if self._stale:
            self._stale = False
            self._ensure()
            yield None

    def _ensure(self) -> None:
        _ensure_namespaces(self._cluster)
        _ensure_kubernetes_service(self._cluster, *self._address)


def bootstrap(cluster: ApiState) -> None:
    """Creates of these what is not there yet."""
    _ensure_namespaces(cluster)
    for name, (value, description) in SYSTEM_CLASSES.items():
        raw: Raw = {"metadata": {"name": name}, "value": value, "description": description}
        _ensure(cluster, "scheduling.k8s.io", "priorityclasses", raw)


def add_default_storage_class(cluster: ApiState) -> None:
    """A class whose volumes the local cluster provisions, for claims that name none, as in kind and
    minikube. It is the user's to change and delete."""
    raw: Raw = {
        "metadata": {
            "name": "standard",
            "annotations": {names.DEFAULT_STORAGE_CLASS_ANNOTATION: "true"},
        },
        "provisioner": "volumes.holdfast.io",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    _ensure(cluster, "storage.k8s.io", "storageclasses", raw)


def _ensure_namespaces(cluster: ApiState) -> None:
    for name in NAMESPACES:
        _ensure(cluster, "", "namespaces", {"metadata": {"name": name}})


def ensure_definition(cluster: ApiState, raw: Raw) -> None:
    """A CustomResourceDefinition of our own, created or brought up to date: what is kept on disk may
    be of another version of ours."""
    call, before = _ensure(cluster, "apiextensions.k8s.io", "customresourcedefinitions", raw)
    if before is None:
        return
    after = apply_defaults(call.type, {**before, "spec": raw["spec"]})
    if after["spec"] != before["spec"]:
        change(call, before, after)


def _ensure(cluster: ApiState, group: str, plural: str, raw: Raw) -> tuple[ApiRequest, Raw | None]:
    """Creates it unless it is there; the call for it, and what was there."""
    type = cluster.catalogue.resource(group, "v1", plural)
    assert type is not None
    name = raw["metadata"]["name"]
    call = ApiRequest(cluster, type, "", name, options=WriteOptions(manager="holdfast"))
    before = cluster.store.get(call.key)
    if before is None:
        create_object(call, {"apiVersion": type.api_version, "kind": type.kind, **raw})
    return call, before


def _ensure_kubernetes_service(cluster: ApiState, host: str, port: int) -> None:
    """The Service `kubernetes` and its endpoints: the address that this server listens on."""
    type = cluster.catalogue.resource("", "v1", "services")
    assert type is not None
    labels = {"component": "apiserver", "provider": "kubernetes"}
    service: Raw = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]},
    }
    options = WriteOptions(manager="holdfast")
    call = ApiRequest(cluster, type, "default", "kubernetes", options=options)
    before = cluster.store.get(call.key)
    if before is None:
        taken = {each["spec"].get("clusterIP") for each in cluster.store.scan("", "Service")}
        if FIRST_ADDRESS not in taken:
            service["spec"]["clusterIP"] = FIRST_ADDRESS
        create_object(call, service)
    elif (given := before["spec"].get("ports")) and given[0].get("targetPort") != port:
        ports = [{**given[0], "targetPort": port}]
        change(call, before, {**before, "spec": {**before["spec"], "ports": ports}})
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    # A loopback address is not valid in a slice or in Endpoints for others; here it is the truth.
    conditions = {"ready": True}
    address_type = "IPv6" if ":" in host else "IPv4"
    _put_endpoints(
        cluster,
        _SLICE,
        "discovery.k8s.io/v1",
        {"kubernetes.io/service-name": "kubernetes"},
        {
            "addressType": address_type,
            "endpoints": [{"addresses": [host], "conditions": conditions}],
            "ports": ports,
        },
    )
    subsets = [{"addresses": [{"ip": host}], "ports": ports}]
    mirrored = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    _put_endpoints(cluster, _ENDPOINTS, "v1", mirrored, {"subsets": subsets})


def _put_endpoints(
    cluster: ApiState, key: Key, api_version: str, labels: dict[str, str], parts: Raw
) -> None:
    before = cluster.store.get(key)
    if before is not None:
        if any(before.get(name) != part for name, part in parts.items()):
            cluster.store.update(key, {**before, **parts})
        return
    metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
    raw = {"apiVersion": api_version, "kind": key.kind, "metadata": metadata, **parts}
    cluster.store.create(key, cluster.identity.new(key, raw))
