"""create."""

from holdfast.local.apiserver.api_state import Call, PodTemplates, named
from holdfast.local.apiserver.request_bodies import Body
from holdfast.local.apiserver.verbs.decode import check_namespace, read
from holdfast.local.store import AlreadyExists, Key, Raw
from holdfast.machinery.objects import check_namespace_is_active, new_object
from holdfast.machinery.schema.versions import key_of
from holdfast.machinery.status import StatusError, already_exists, forbidden, invalid, unknown_resource
from holdfast.machinery.strategies.crds import GROUP, KIND
from holdfast.machinery.validation import metadata as metadata_rules

_TRIES = 8


def create(call: Call, body: Body) -> Raw:
    """The new object, as it is stored."""
    templates = call.cluster.templates
    if (
        templates is not None
        and (call.type.group, call.type.kind) == ("", "Pod")
        and not call.options.dry_run
    ):
        return _create_pod(call, body, templates)
    return create_object(call, check_namespace(call, read(call, body)))


def _create_pod(call: Call, body: Body, templates: PodTemplates) -> Raw:
    """As any object, unless one of the same template came before."""
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


def create_object(call: Call, raw: Raw, applied: bool = False) -> Raw:
    """Of an object already read. `applied` says its managed fields are as they should be."""
    if raw["metadata"].get("resourceVersion"):
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    one = call.named(raw["metadata"].get("name") or "")
    check_lifecycle(one)
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


def check_lifecycle(call: Call) -> None:
    """Nothing is created in a namespace that is not there or is on its way out, nor of a kind whose
    definition is not there any more or is."""
    if call.type.crd:
        _check_definition(call)
    check_namespace_is_active(call)


def _check_definition(call: Call) -> None:
    """It may have been deleted while the request was read."""
    type = call.type
    definition = call.cluster.store.get(Key(GROUP, KIND, "", type.crd))
    if definition is not None and definition["metadata"].get("deletionTimestamp"):
        why = "create not allowed while custom resource definition is terminating"
        raise forbidden(call.resource, call.name, why)
    if call.cluster.catalogue.resource(type.group, type.version, type.plural) is None:
        raise unknown_resource()


def _dry(call: Call, built: Raw) -> Raw:
    if call.cluster.store.get(key_of(call.type, call.namespace, _name(built))) is not None:
        raise already_exists(call.resource, _name(built))
    metadata = {name: value for name, value in built["metadata"].items() if name != "resourceVersion"}
    return {**built, "metadata": metadata}


def _name(raw: Raw) -> str:
    return str(raw["metadata"]["name"])
