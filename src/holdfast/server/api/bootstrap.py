"""What a cluster has from its first moment: the usual namespaces and the two system priority
classes."""

from holdfast.server.api.cluster import Call, Cluster
from holdfast.server.api.options import WriteOptions
from holdfast.server.api.strategies.priorities import SYSTEM_CLASSES
from holdfast.server.api.verbs.creating import create_object
from holdfast.server.api.views import key_of
from holdfast.store import Raw

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def bootstrap(cluster: Cluster) -> None:
    """Creates of these what is not there yet."""
    for name in NAMESPACES:
        _ensure(cluster, "", "namespaces", {"metadata": {"name": name}})
    for name, (value, description) in SYSTEM_CLASSES.items():
        raw: Raw = {"metadata": {"name": name}, "value": value, "description": description}
        _ensure(cluster, "scheduling.k8s.io", "priorityclasses", raw)


def ensure_definition(cluster: Cluster, raw: Raw) -> None:
    """A CustomResourceDefinition of our own, created or brought up to date."""
    _ensure(cluster, "apiextensions.k8s.io", "customresourcedefinitions", raw)


def _ensure(cluster: Cluster, group: str, plural: str, raw: Raw) -> None:
    type = cluster.catalogue.resource(group, "v1", plural)
    assert type is not None
    name = raw["metadata"]["name"]
    if cluster.store.get(key_of(type, "", name)) is None:
        full = {"apiVersion": type.api_version, "kind": type.kind, **raw}
        create_object(Call(cluster, type, "", name, options=WriteOptions(manager="holdfast")), full)
