"""delete and deletecollection."""

from collections.abc import Iterator

from holdfast.local.apiserver.api_state import Call
from holdfast.local.apiserver.request_info import DeleteOptions
from holdfast.local.apiserver.verbs.get import Listed, found
from holdfast.local.store import Raw
from holdfast.machinery.objects import deleted_object
from holdfast.machinery.status import Resource, about, conflict, forbidden, success
from holdfast.machinery.strategies.table import strategy_of

_PODS_STAY = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
    "remove them or set propagationPolicy=Orphan to suppress this warning"
)
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public")


def delete(call: Call, options: DeleteOptions) -> tuple[Raw, bool]:
    """The object as it is or was, or a Status that it is gone; and whether that is a Status."""
    raw = found(call)
    if call.type.kind == "Namespace" and call.type.builtin and call.name in _KEPT_NAMESPACES:
        raise forbidden(call.resource, call.name, "this namespace may not be deleted")
    _check_preconditions(call, options, raw)
    if options.propagation is None and strategy_of(call.type).orphans:
        call.warn(_PODS_STAY)
        options = options._replace(propagation="Orphan")
    after, gone = deleted_object(call, raw, options.grace, options.propagation)
    if not gone:
        if after is raw or options.dry_run:
            return after, False
        return call.cluster.store.update(call.key, after), False
    if not options.dry_run:
        call.cluster.store.delete(call.key)
    strategy = strategy_of(call.type)
    if strategy.returns_deleted:
        return after if strategy.grace is not None else raw, False
    return success(about(call.resource, call.name, uid=raw["metadata"]["uid"])), True


def delete_listed(call: Call, listed: Listed, options: DeleteOptions) -> Iterator[None]:
    """Deletes each object of the list that is still there, one at each step. Others may write between
    two steps, as with the real API server."""
    for raw in listed.objects:
        metadata = raw["metadata"]
        one = call.named(metadata["name"])
        one.namespace = metadata.get("namespace", "")
        now = call.cluster.store.get(one.key)
        if now is not None and now["metadata"]["uid"] == metadata["uid"]:
            delete(one, options)
        yield


def _check_preconditions(call: Call, options: DeleteOptions, raw: Raw) -> None:
    metadata = raw["metadata"]
    kind = Resource(call.type.group, call.type.kind)
    if options.uid is not None and options.uid != metadata["uid"]:
        raise conflict(
            kind,
            call.name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({metadata['uid']}). The object might have been deleted and then recreated",
        )
    if options.resource_version is not None and options.resource_version != metadata["resourceVersion"]:
        raise conflict(
            kind,
            call.name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have been "
            "modified",
        )
