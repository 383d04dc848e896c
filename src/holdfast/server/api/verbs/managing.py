"""Who owns which field: the `managedFields` of an object, kept as it is written."""

from holdfast.server.api.cluster import Call
from holdfast.server.api.views import shown, stored
from holdfast.server.patch import track_update
from holdfast.store import Raw


def created_by(call: Call, raw: Raw) -> Raw:
    return _tracked(call, None, raw)


def changed_by(call: Call, before: Raw, after: Raw) -> Raw:
    return _tracked(call, before, after)


def _tracked(call: Call, before: Raw | None, after: Raw) -> Raw:
    type = call.type
    if before is not None:
        before = shown(type, before)
    now = call.cluster.stamp()
    tracked = track_update(
        type, before, shown(type, after), call.options.manager, call.subresource, now
    )
    return stored(type, tracked)
