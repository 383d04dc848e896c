"""update, and what any change of an object goes through."""

from holdfast.local.apiserver.api_state import Call
from holdfast.local.apiserver.request_bodies import Body
from holdfast.local.apiserver.verbs.create import create_object
from holdfast.local.apiserver.verbs.decode import check_namespace, read
from holdfast.local.apiserver.verbs.get import found
from holdfast.local.store import Raw
from holdfast.machinery.objects import changed_object, is_gone
from holdfast.machinery.schema import apply_defaults
from holdfast.machinery.schema.field_errors import invalid as invalid_field
from holdfast.machinery.schema.versions import stored
from holdfast.machinery.status import MODIFIED, StatusError, bad_request, conflict, invalid, other_uid
from holdfast.machinery.strategies.strategy import Strategy
from holdfast.machinery.strategies.table import strategy_of


def update(call: Call, body: Body) -> tuple[Raw, bool]:
    """The object as it is now, and whether it is new."""
    raw = check_namespace(call, read(call, body))
    check_name(call, raw)
    strategy = strategy_of(call.type)
    before = call.cluster.store.get(call.key)
    if before is None and strategy.create_on_update and not call.subresource:
        return create_object(call, raw), True
    before = found(call)
    _check_revision(call, strategy, raw, before)
    uid = raw["metadata"].get("uid")
    if uid and uid != before["metadata"]["uid"]:
        raise other_uid(call.resource, call.name, uid, before["metadata"]["uid"])
    return change(call, before, stored(call.type, apply_defaults(call.type, raw))), False


def check_name(call: Call, raw: Raw) -> None:
    name = raw["metadata"].get("name")
    if not name:
        raise bad_request(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be "
            "provided"
        )
    if name != call.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.name})"
        )


def _check_revision(call: Call, strategy: Strategy, raw: Raw, before: Raw) -> None:
    given = raw["metadata"].get("resourceVersion")
    if not given:
        if strategy.unconditional_update:
            return
        complaint = invalid_field("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(call.type.group, call.type.plural, call.name, [complaint])
    if not given.isdigit():
        raise StatusError(500, "", f'strconv.ParseUint: parsing "{given}": invalid syntax')
    check_unmodified(call, given, before)


def check_unmodified(call: Call, given: str | None, before: Raw) -> None:
    if given and given != before["metadata"]["resourceVersion"]:
        raise conflict(call.resource, call.name, MODIFIED)


def change(call: Call, before: Raw, after: Raw, applied: bool = False) -> Raw:
    """Puts `after` in the place of `before`, as far as the subresource lets it, if it is acceptable and
    anything is different. `applied` says its managed fields are as they should be. Raises StatusError
    422."""
    return write(call, before, changed_object(call, before, after, applied))


def write(call: Call, before: Raw, after: Raw) -> Raw:
    """Stores a change that is found good; an object that only waited for its last finalizer goes."""
    if call.options.dry_run:
        return after
    if is_gone(call, after):
        call.cluster.store.delete(call.key)
        return after
    if after == before:
        return before
    return call.cluster.store.update(call.key, after)
