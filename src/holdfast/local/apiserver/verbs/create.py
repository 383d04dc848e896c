"""create."""

from holdfast.local.apiserver.api_state import Call
from holdfast.local.apiserver.request_bodies import Body
from holdfast.local.apiserver.status import (
    Resource,
    StatusError,
    already_exists,
    forbidden,
    invalid,
    not_found,
    unknown_resource,
)
from holdfast.local.apiserver.strategies import strategy as metadata_rules
from holdfast.local.apiserver.strategies.crds import GROUP, KIND
from holdfast.local.apiserver.strategies.table import strategy_of
from holdfast.local.apiserver.template_memo import PodTemplates, named
from holdfast.local.apiserver.verbs.decode import check_namespace, created_by, read
from holdfast.local.apiserver.versions import key_of, shown, stored
from holdfast.local.store import AlreadyExists, Key, Raw
from holdfast.machinery.schema import apply_defaults, check_values

_TRIES = 8
_NAMESPACES = Resource("", "namespaces")
_GIVEN_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "resourceVersion",
)


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
        built = complete(one, raw, applied)
        if call.options.dry_run:
            return _dry(one, built)
        try:
            return call.cluster.store.create(key_of(call.type, call.namespace, _name(built)), built)
        except AlreadyExists:
            if raw["metadata"].get("name") or attempt == _TRIES - 1:
                raise already_exists(call.resource, _name(built)) from None
    raise AssertionError


def complete(call: Call, raw: Raw, applied: bool = False) -> Raw:
    """The object with all that defaults, admission and the server give it, checked. Raises ApiError
    422."""
    strategy = strategy_of(call.type)
    raw = apply_defaults(call.type, raw)
    metadata = {name: value for name, value in raw["metadata"].items() if name not in _GIVEN_BY_SERVER}
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = call.cluster.identity.name(metadata["generateName"][:58])
    call.name = metadata.get("name") or ""
    raw = stored(call.type, {**raw, "metadata": metadata})
    if not applied:
        # What admission and the server add belongs to no one.
        raw = created_by(call, raw)
    raw = call.cluster.identity.new(key_of(call.type, call.namespace, call.name), raw)
    if strategy.wish is not None:
        raw["metadata"]["generation"] = 1
    elif "generation" not in metadata:
        raw["metadata"].pop("generation", None)
    raw = strategy.new(call, raw)
    view = shown(call.type, raw)
    problems = metadata_rules.check(call.type, raw["metadata"])
    _warn_of_finalizers(call, raw)
    problems += strategy.check_new(call, raw)
    problems += check_values(call.type, view)
    if problems:
        raise invalid(call.type.group, call.type.kind, call.name, problems)
    return raw


def _warn_of_finalizers(call: Call, raw: Raw) -> None:
    if call.type.builtin:
        return
    for each in raw["metadata"].get("finalizers") or ():
        if "/" not in each and each not in metadata_rules.STANDARD_FINALIZERS:
            call.warn(
                f'metadata.finalizers: "{each}": prefer a domain-qualified finalizer name to avoid '
                "accidental conflicts with other finalizer writers"
            )


def check_lifecycle(call: Call) -> None:
    """Nothing is created in a namespace that is not there or is on its way out, nor of a kind whose
    definition is not there any more or is."""
    if call.type.crd:
        _check_definition(call)
    if not call.type.namespaced:
        return
    namespace = call.cluster.namespace(call.namespace)
    if namespace is None:
        raise not_found(_NAMESPACES, call.namespace)
    if namespace["metadata"].get("deletionTimestamp"):
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {call.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        why = (
            f"unable to create new content in namespace {call.namespace} because it is being terminated"
        )
        raise forbidden(call.resource, call.name, why, [cause])


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
