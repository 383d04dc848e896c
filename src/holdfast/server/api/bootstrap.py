"""What a cluster has from its first moment: the usual namespaces and the two system priority
classes."""

from holdfast.server.api.cluster import Call, Cluster
from holdfast.server.api.options import WriteOptions
from holdfast.server.api.strategies.priorities import SYSTEM_CLASSES
from holdfast.server.api.verbs.creating import create_object
from holdfast.server.api.verbs.updating import change
from holdfast.server.schema import apply_defaults
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
    """A CustomResourceDefinition of our own, created or brought up to date: what is kept on disk may
    be of another version of ours."""
    call, before = _ensure(cluster, "apiextensions.k8s.io", "customresourcedefinitions", raw)
    if before is not None:
        change(call, before, apply_defaults(call.type, {**before, "spec": raw["spec"]}))


def _ensure(cluster: Cluster, group: str, plural: str, raw: Raw) -> tuple[Call, Raw | None]:
    """Creates it unless it is there; the call for it, and what was there."""
    type = cluster.catalogue.resource(group, "v1", plural)
    assert type is not None
    name = raw["metadata"]["name"]
    call = Call(cluster, type, "", name, options=WriteOptions(manager="holdfast"))
    before = cluster.store.get(call.key)
    if before is None:
        create_object(call, {"apiVersion": type.api_version, "kind": type.kind, **raw})
    return call, before
