"""create, update, delete and deletecollection; a request body to an object of its type.

What a write does to an object is in `machinery.objects`: here the object is read, its preconditions are
checked, and the result is stored.
"""

from collections.abc import Iterator
from typing import Any

from holdfast.local.apiserver.api_state import ApiRequest, PodTemplates, named
from holdfast.local.apiserver.request_bodies import Body
from holdfast.local.apiserver.request_info import DeleteOptions
from holdfast.local.apiserver.verbs.get import Listed, found
from holdfast.local.store import AlreadyExists, Key, Raw
from holdfast.machinery.objects import (
    changed_object,
    check_namespace_is_active,
    deleted_object,
    is_gone,
    new_object,
)
from holdfast.machinery.schema import (
    MALFORMED,
    UNKNOWN,
    FieldError,
    ResourceType,
    apply_defaults,
    decoding,
    read_object,
    suggestion,
)
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.schema.catalogue import NOT_ACTED_ON
from holdfast.machinery.schema.types import key_of, to_storage
from holdfast.machinery.status import (
    MODIFIED,
    Resource,
    StatusError,
    about,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    other_uid,
    success,
    unknown_resource,
)
from holdfast.machinery.strategies import strategy_of
from holdfast.machinery.strategies.crds import GROUP, KIND
from holdfast.machinery.strategies.strategy import Strategy
from holdfast.machinery.validation import metadata as metadata_rules

_TRIES = 8


def create(call: ApiRequest, body: Body) -> Raw:
    """The new object as it is stored. Raises StatusError."""
    templates = call.cluster.templates
    if (
        templates is not None
        and (call.type.group, call.type.kind) == ("", "Pod")
        and not call.options.dry_run
    ):
        return _create_pod(call, body, templates)
    return create_object(call, check_namespace(call, read(call, body)))


def _create_pod(call: ApiRequest, body: Body, templates: PodTemplates) -> Raw:
    """Copies the first pod of the same template, if there is one; else creates it as any object."""
    key = templates.key(call, body)
    known = templates.copy(key, body) if key is not None else None
    if known is None:
        made = create_object(call, check_namespace(call, read(call, body)))
        if key is not None and not call.warnings:
            templates.keep(key, body, made)
        return made
    name = body.value["metadata"]["name"]
    check_lifecycle(call.named(name))
    problems = metadata_rules.check_name(call.type, name)
    if problems:
        raise invalid(call.type.group, call.type.kind, name, problems)
    pod_key = key_of(call.type, call.namespace, name)
    cluster = call.cluster
    pod = named(known, name, cluster.identity.uid(pod_key), cluster.stamp())
    try:
        return cluster.store.create(pod_key, pod)
    except AlreadyExists:
        raise already_exists(call.resource, name) from None


def create_object(call: ApiRequest, raw: Raw, applied: bool = False) -> Raw:
    """Creates a decoded object. `applied` if its managed fields are up to date."""
    if raw["metadata"].get("resourceVersion"):
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    one = call.named(raw["metadata"].get("name") or "")
    check_lifecycle(one)
    _warn_if_not_acted_on(call)
    for attempt in range(_TRIES):
        built = new_object(one, raw, applied)
        if call.options.dry_run:
            return _dry(one, built)
        try:
            return call.cluster.store.create(key_of(call.type, call.namespace, _name(built)), built)
        except AlreadyExists:
            if raw["metadata"].get("name") or attempt == _TRIES - 1:
                raise already_exists(call.resource, _name(built)) from None
    raise AssertionError


def _warn_if_not_acted_on(call: ApiRequest) -> None:
    """Once for each kind, with its first object."""
    kind, cluster = (call.type.group, call.type.kind), call.cluster
    if kind not in NOT_ACTED_ON or kind in cluster.announced:
        return
    if not call.options.dry_run:
        cluster.announced.add(kind)
    if not cluster.store.count(*kind):
        call.warn(f"{call.type.plural} are stored but not acted on by this cluster")


def check_lifecycle(call: ApiRequest) -> None:
    """Refuses a creation in a namespace, or of a kind whose definition, that does not exist or is being
    deleted. Raises StatusError."""
    if call.type.crd:
        _check_definition(call)
    check_namespace_is_active(call)


def _check_definition(call: ApiRequest) -> None:
    """The definition may have been deleted while the request was read."""
    type = call.type
    definition = call.cluster.store.get(Key(GROUP, KIND, "", type.crd))
    if definition is not None and definition["metadata"].get("deletionTimestamp"):
        why = "create not allowed while custom resource definition is terminating"
        raise forbidden(call.resource, call.name, why)
    if call.cluster.catalogue.resource(type.group, type.version, type.plural) is None:
        raise unknown_resource()


def _dry(call: ApiRequest, built: Raw) -> Raw:
    if call.cluster.store.get(key_of(call.type, call.namespace, _name(built))) is not None:
        raise already_exists(call.resource, _name(built))
    metadata = {name: value for name, value in built["metadata"].items() if name != "resourceVersion"}
    return {**built, "metadata": metadata}


def _name(raw: Raw) -> str:
    return str(raw["metadata"]["name"])


def update(call: ApiRequest, body: Body) -> tuple[Raw, bool]:
    """The object as it is stored, and whether it is new."""
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
    return change(call, before, to_storage(call.type, apply_defaults(call.type, raw))), False


def check_name(call: ApiRequest, raw: Raw) -> None:
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


def _check_revision(call: ApiRequest, strategy: Strategy, raw: Raw, before: Raw) -> None:
    given = raw["metadata"].get("resourceVersion")
    if not given:
        if strategy.unconditional_update:
            return
        complaint = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(call.type.group, call.type.plural, call.name, [complaint])
    if not given.isdigit():
        raise StatusError(500, "", f'strconv.ParseUint: parsing "{given}": invalid syntax')
    check_unmodified(call, given, before)


def check_unmodified(call: ApiRequest, given: str | None, before: Raw) -> None:
    if given and given != before["metadata"]["resourceVersion"]:
        raise conflict(call.resource, call.name, MODIFIED)


def change(call: ApiRequest, before: Raw, after: Raw, applied: bool = False) -> Raw:
    """Replaces `before` by `after`, as far as the subresource permits, if it is valid and different.
    `applied` if its managed fields are up to date. Raises StatusError 422."""
    return write(call, before, changed_object(call, before, after, applied))


def write(call: ApiRequest, before: Raw, after: Raw) -> Raw:
    """Stores a valid change; deletes an object that only waited for its last finalizer."""
    if call.options.dry_run:
        return after
    if is_gone(call, after):
        call.cluster.store.delete(call.key)
        return after
    if after == before:
        return before
    return call.cluster.store.update(call.key, after)


_PODS_STAY = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
    "remove them or set propagationPolicy=Orphan to suppress this warning"
)
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public")


def delete(call: ApiRequest, options: DeleteOptions) -> tuple[Raw, bool]:
    """The object as it is or was, or the Status of a completed deletion; and whether it is a Status."""
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


def delete_listed(call: ApiRequest, listed: Listed, options: DeleteOptions) -> Iterator[None]:
    """Deletes each listed object that still exists, one per step. Others may write between two steps,
    as with the API server."""
    for raw in listed.objects:
        metadata = raw["metadata"]
        one = call.named(metadata["name"])
        one.namespace = metadata.get("namespace", "")
        now = call.cluster.store.get(one.key)
        if now is not None and now["metadata"]["uid"] == metadata["uid"]:
            delete(one, options)
        yield


def _check_preconditions(call: ApiRequest, options: DeleteOptions, raw: Raw) -> None:
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


def read(call: ApiRequest, body: Body, type: ResourceType | None = None) -> Raw:
    """The decoded object; unknown fields are dropped or refused, according to `fieldValidation`. Raises
    StatusError 400."""
    type = type or call.type
    raw: Raw = body.value
    twice = body.duplicates()
    if not type.builtin:
        for field, called in (("kind", "Kind"), ("apiVersion", "apiVersion")):
            if not raw.get(field):
                raise body.lacks(called)
    check_kind(call, type, raw)
    raw, problems = read_object(type, {**raw, "apiVersion": type.api_version, "kind": type.kind})
    unknown: list[str] = []
    for problem in problems:
        if problem.reason == MALFORMED:
            raise _cannot_be_handled(type.kind, type.version, problem.message)
        if problem.reason == UNKNOWN:
            unknown.append(problem.message)
    complaints = [f'duplicate field "{path}"' for path in twice] + unknown
    complaints = complaints[: decoding.MOST_UNKNOWN]
    if complaints:
        if call.options.validation == "Strict":
            _suggest(call, type, problems)
            why = f"strict decoding error: {', '.join(complaints)}"
            raise _cannot_be_handled(type.kind, type.version, why)
        if call.options.validation == "Warn":
            for each in complaints:
                call.warn(each)
    if not isinstance(raw.get("metadata"), dict):
        raw = {**raw, "metadata": {}}
    return raw


def _suggest(call: ApiRequest, type: ResourceType, problems: list[FieldError]) -> None:
    """Warns with suggestions for unknown fields; the error itself is the API server's to the letter."""
    for each in problems:
        hint = suggestion(type.shape, each.field) if each.reason == UNKNOWN else ""
        if hint:
            call.warn(f"{each.message}: {hint}")


def read_known(definition: str, value: Any) -> Raw:
    """An object that is acted on and not stored, such as a Scale, by its OpenAPI name. Raises
    StatusError 400."""
    kind = definition.rpartition(".")[2]
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind})")
    raw, problems = decoding.read(definition, value)
    for problem in problems:
        if problem.reason == MALFORMED:
            raise _cannot_be_handled(kind, "v1", problem.message)
    return raw


def check_kind(call: ApiRequest, type: ResourceType, raw: Raw) -> None:
    """The apiVersion and kind of an object, if it has them, must be those of the request."""
    api_version, kind = raw.get("apiVersion") or type.api_version, raw.get("kind") or type.kind
    if not isinstance(api_version, str) or not isinstance(kind, str):
        field = "apiVersion" if not isinstance(api_version, str) else "kind"
        raise bad_request(
            f"the object provided is unrecognized (must be of type {type.kind}): couldn't get "
            f"version/kind; json parse error: {field} is not a string"
        )
    if (api_version, kind) == (type.api_version, type.kind):
        return
    group, _, version = api_version.rpartition("/")
    if not type.builtin:
        if api_version != type.api_version:
            raise bad_request(
                f"the API version in the data ({api_version}) does not match the expected API version "
                f"({type.api_version})"
            )
        metadata = raw.get("metadata")
        name = metadata.get("name") or "" if isinstance(metadata, dict) else ""
        complaint = fields.invalid("kind", kind, f"must be {type.kind}")
        raise invalid(type.group, kind, name, [complaint])
    if call.cluster.catalogue.kind(group, version, kind) is None:
        why = f'no kind "{kind}" is registered for version "{api_version}"'
    else:
        package = type.group.partition(".")[0] or "core"
        why = f"converting ({version}.{kind}) to ({package}.{type.kind}): unknown conversion"
    raise bad_request(f'{kind} in version "{version}" cannot be handled as a {type.kind}: {why}')


def _cannot_be_handled(kind: str, version: str, why: str) -> StatusError:
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def check_namespace(call: ApiRequest, raw: Raw) -> Raw:
    """The object with the namespace of the request. Raises StatusError 400 if it has another."""
    metadata = raw["metadata"]
    given = metadata.get("namespace") or ""
    if not call.type.namespaced:
        if given:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        return raw
    if given and given != call.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if given:
        return raw
    return {**raw, "metadata": {**metadata, "namespace": call.namespace}}
