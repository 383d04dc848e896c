"""delete and deletecollection."""

from collections.abc import Iterator

from holdfast.api.times import format_time, parse_time
from holdfast.local.apiserver.api_state import Call
from holdfast.local.apiserver.request_info import DeleteOptions
from holdfast.local.apiserver.status import Resource, about, conflict, forbidden, success
from holdfast.local.apiserver.strategies.table import strategy_of
from holdfast.local.apiserver.verbs.get import Listed, found
from holdfast.local.store import Raw

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
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
    after, gone = _ended(call, options, raw)
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


def _ended(call: Call, options: DeleteOptions, raw: Raw) -> tuple[Raw, bool]:
    """The object as the deletion leaves it, and whether nothing keeps it any more."""
    metadata = raw["metadata"]
    finalizers = _finalizers(options, metadata.get("finalizers") or [])
    grace = _grace(call, options, raw)
    already = metadata.get("deletionTimestamp")
    if not already:
        added = strategy_of(call.type).leaves_with
        finalizers = [*finalizers, *(each for each in added if each not in finalizers)]
    left = metadata.get("deletionGracePeriodSeconds") or 0
    if already:
        # It can be made to end sooner, never later.
        grace = left if options.grace is None else min(grace, left)
        unchanged = grace == left and finalizers == (metadata.get("finalizers") or [])
        if unchanged and (grace or finalizers or namespace_waits(call, raw)):
            return raw, False
    changed = dict(metadata)
    if not already:
        changed["deletionTimestamp"] = call.cluster.stamp(grace)
        changed["deletionGracePeriodSeconds"] = grace
        if "generation" in changed:
            changed["generation"] += 1
    elif grace < left:
        changed["deletionTimestamp"] = format_time(parse_time(already) - left + grace)
        changed["deletionGracePeriodSeconds"] = grace
    if finalizers:
        changed["finalizers"] = finalizers
    else:
        changed.pop("finalizers", None)
    after = {**raw, "metadata": changed}
    if call.type.kind == "Namespace" and call.type.builtin:
        changed.pop("deletionGracePeriodSeconds", None)
        after["status"] = {**(raw.get("status") or {}), "phase": "Terminating"}
    return after, not finalizers and not grace and not namespace_waits(call, raw)


def _grace(call: Call, options: DeleteOptions, raw: Raw) -> int:
    """Seconds the object may take to end."""
    judge = strategy_of(call.type).grace
    if judge is None:
        return 0
    return judge(raw, options.grace)


def _finalizers(options: DeleteOptions, existing: list[str]) -> list[str]:
    """With those for the garbage collector, as the propagation policy wants them."""
    match options.propagation:
        case None:
            return existing
        case "Orphan":
            wanted = [ORPHAN]
        case "Foreground":
            wanted = [FOREGROUND]
        case _:
            wanted = []
    kept = [each for each in existing if each not in (ORPHAN, FOREGROUND)]
    return [*kept, *wanted]


def namespace_waits(call: Call, raw: Raw) -> bool:
    """A namespace goes when what is in it is gone, which its own finalizer stands for."""
    return (
        call.type.builtin
        and call.type.kind == "Namespace"
        and bool((raw.get("spec") or {}).get("finalizers"))
    )
