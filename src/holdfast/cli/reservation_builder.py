"""Builds the reservations of `holdfast reserve` from its flags or from a workload, and validates
them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.api.decode import convert
from holdfast.api.errors import MalformedText
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.meta import Struct
from holdfast.api.names import (
    CPU,
    DEFAULT_NAMESPACE,
    DEFAULT_SCHEDULER,
    HOLDFAST_API,
    LEAD,
    MANAGED_BY,
    MEMORY,
    NVIDIA_GPU,
    RELEASE_IF_UNUSED_AFTER,
    RESERVATION_API,
    RESERVATION_PRIORITY,
    RESOURCE_API,
    STARTS_AT,
)
from holdfast.api.pod import Container, Pod, PodSpec
from holdfast.api.quantity import EXPECTED_QUANTITY, MOST_COUNTED, NANO, QuantityError, amount, parse
from holdfast.api.resources import is_extended, pod_requests
from holdfast.api.selectors import Requirement, parse_label_selector
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import format_time, parse_duration, parse_time
from holdfast.cli.options import Failure
from holdfast.machinery.objects import checked_object
from holdfast.machinery.schema import ResourceType, read_object
from holdfast.machinery.schema.catalogue import holdfast_catalogue
from holdfast.machinery.validation.own_kinds import most_text

Raw = dict[str, Any]

MOST_RESERVATIONS = 1000
"""Of one command."""
HIGHEST_PRIORITY = 2**31 - 1
MAX_DEVICES = 32
"""Of one claim."""
DEVICES = "devices"
"""The entry of `resourceClaims`, and the request of its template, that --device-class makes."""


@dataclass(frozen=True, slots=True)
class ReserveOptions:
    """The given flags; None or empty if not given."""

    name: str = ""
    replicas: int | None = None
    resources: dict[str, str] = field(default_factory=dict)
    owners: list[Raw] = field(default_factory=list)
    node: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    ttl: str | None = None
    expires: str | None = None
    once: bool | None = None
    policy: str = ""
    pre_allocation: bool = False
    namespace: str = ""
    """The namespace of the owners, if it was given."""
    device_class: str = ""
    devices: int = 1
    """How many devices of the class each reservation holds."""
    annotations: dict[str, str] = field(default_factory=dict)
    recurrence: Raw = field(default_factory=dict)
    """The fields of a ReservationSchedule beside its template; empty if the reservations do not
    recur."""


def read_resources(
    cpu: str | None, memory: str | None, gpu: str | None, others: Sequence[str]
) -> dict[str, str]:
    """Amounts by name. Raises Failure."""
    given = [("--cpu", CPU, cpu), ("--memory", MEMORY, memory), ("--gpu", NVIDIA_GPU, gpu)]
    for text in others:
        name, equals, quantity = text.partition("=")
        if not equals or not name or not quantity:
            raise Failure(1, [f"--resource: expected NAME=QUANTITY, got {text!r}"])
        given.append(("--resource", name, quantity))
    found: dict[str, str] = {}
    for flag, name, value in given:
        if value is None:
            continue
        if name in found:
            raise Failure(1, [f"{flag}: {name} is given twice"])
        if problem := _quantity_problem(name, value):
            raise Failure(1, [f"{flag}: {problem}, got {value!r}"])
        found[name] = value
    return found


def _quantity_problem(name: str, value: str) -> str:
    """Empty if it is an amount of this resource."""
    try:
        nano = parse(value)
    except QuantityError:
        return EXPECTED_QUANTITY
    if nano <= 0:
        return "must be more than 0"
    if is_extended(name) and nano % NANO:
        return "must be an integer"
    return most_text(name) if amount(name, value) > MOST_COUNTED else ""


def read_owners(selectors: Sequence[str], namespace: str) -> list[Raw]:
    """Alternative owners; all parts of one must match. Raises Failure."""
    owners = []
    for text in selectors:
        if not text.strip():
            raise Failure(1, ["--owner: expected labels, such as app=web,tier in (a,b)"])
        with flag_errors("--owner"):
            owner: Raw = {"labelSelector": label_selector(parse_label_selector(text).requirements)}
        owners.append({"object": {"namespace": namespace}, **owner} if namespace else owner)
    return owners


def label_selector(requirements: Sequence[Requirement]) -> Raw:
    labels: dict[str, str] = {}
    expressions: list[Raw] = []
    for each in requirements:
        if each.operator == "In" and len(each.values) == 1 and each.key not in labels:
            labels[each.key] = each.values[0]
            continue
        if each.operator in ("Gt", "Lt"):
            raise Failure(1, [f"--owner: {each.key}: pod labels do not support > and <"])
        expression: Raw = {"key": each.key, "operator": each.operator}
        if each.values:
            expression["values"] = sorted(each.values)
        expressions.append(expression)
    selector: Raw = {"matchLabels": labels} if labels else {}
    return {**selector, "matchExpressions": expressions} if expressions else selector


def read_pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """`key=value`, several with commas. Raises Failure."""
    found = {}
    for part in (part for text in given for part in text.split(",") if part):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise Failure(1, [f"{flag}: expected KEY=VALUE, got {part!r}"])
        found[key] = value
    return found


def check_priority(priority: int | None) -> None:
    """A label's value cannot begin with a minus. Raises Failure."""
    if priority is not None and not 0 <= priority <= HIGHEST_PRIORITY:
        known = f"expected a number from 0 to {HIGHEST_PRIORITY}"
        why = (
            ": it is the value of a label, which cannot begin with a minus; "
            "spec.template.spec.priority can be negative"
        )
        raise Failure(1, [f"--priority: {known}, got {priority}{why if priority < 0 else ''}"])


def check_lifetime(ttl: str | None, expires: str | None, now: float) -> None:
    """Raises Failure."""
    if ttl is not None and expires is not None:
        raise Failure(1, ["--expires: cannot be given together with --ttl; keep one of them"])
    if ttl is not None:
        with flag_errors("--ttl"):
            if parse_duration(ttl) < 0:
                raise Failure(1, [f"--ttl: must not be negative: {ttl}"])
    if expires is not None:
        with flag_errors("--expires"):
            if parse_time(expires) <= now:
                text = f"must be in the future, got {expires}; it is {format_time(now)} now"
                raise Failure(1, [f"--expires: {text}"])


def read_duration(flag: str, text: str) -> float:
    """Raises Failure."""
    with flag_errors(flag):
        seconds = parse_duration(text)
    if seconds <= 0:
        raise Failure(1, [f"{flag}: must be more than 0, got {text!r}"])
    return seconds


@contextmanager
def flag_errors(name: str) -> Iterator[None]:
    """Prefixes errors with the flag."""
    try:
        yield
    except MalformedText as error:
        raise Failure(1, [f"{name}: {error}"]) from None


# Workloads as the source: pod template, owner, number of replicas.
#
# Pods of a Deployment belong to ReplicaSets that change, so they are matched by labels. Pods of other
# workloads are matched by their controller.


class Source(NamedTuple):
    name: str
    template: Raw
    owners: list[Raw]
    replicas: int


class _Workload(NamedTuple):
    info: KindInfo
    replicas: Callable[[Raw], int | None]
    by_labels: bool = False


def _replicas(spec: Raw) -> int | None:
    return spec.get("replicas")


def _parallelism(spec: Raw) -> int | None:
    counts = [spec[key] for key in ("parallelism", "completions") if spec.get(key) is not None]
    return min(counts) if counts else None


_DEPLOYMENT = _Workload(KINDS["apps/v1", "Deployment"], _replicas, by_labels=True)
_WORKLOADS = (
    _DEPLOYMENT,
    _Workload(KINDS["batch/v1", "Job"], _parallelism),
    _Workload(KINDS["apps/v1", "StatefulSet"], _replicas),
    _Workload(KINDS["apps/v1", "ReplicaSet"], _replicas),
)


WORKLOAD_TITLES = tuple(each.info.singular for each in _WORKLOADS)


def find_workload(text: str) -> tuple[KindInfo, str]:
    """The kind and the name in `deployment/web`. Raises Failure."""
    kind, slash, name = text.partition("/")
    known = {alias: each.info for each in _WORKLOADS for alias in each.info.command_names}
    info = known.get(kind.lower())
    if info is None:
        titles = f"known: {', '.join(WORKLOAD_TITLES)}"
        is_kind = any(kind.lower() in each.command_names for each in KINDS.values())
        hint = f"; {titles}" if is_kind else did_you_mean(kind, WORKLOAD_TITLES, titles)
        raise Failure(1, [f"SOURCE: cannot reserve for {kind!r}{hint}"])
    if not slash or not name:
        raise Failure(1, [f"SOURCE: expected {info.singular}/NAME, got {text!r}"])
    return info, name


def misspelt_fields(raw: Raw) -> list[str]:
    """The fields of a manifest that its kind does not have, as an API server reports them: a request
    that is not read would reserve nothing."""
    group, _, version = str(raw.get("apiVersion") or "").rpartition("/")
    type = holdfast_catalogue().kind(group, version, str(raw.get("kind") or ""))
    if type is None or not type.definition:
        return []
    return [problem.text for problem in read_object(type, raw)[1]]


def source_of(raw: Raw, namespace: str) -> Source:
    """Raises Failure."""
    api_version, kind = raw.get("apiVersion"), raw.get("kind")
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    name = str(metadata.get("name") or "")
    for workload in _WORKLOADS:
        if (workload.info.api_version, workload.info.kind) == (api_version, kind):
            break
    else:
        titles = ", ".join(each.info.kind for each in _WORKLOADS)
        raise Failure(1, [f"{kind}/{name}: cannot reserve for this kind; known: {titles}"])
    if not spec.get("template"):
        raise Failure(1, [f"{kind}/{name}: spec.template: is required: the pod to reserve for"])
    namespace = str(metadata.get("namespace") or namespace)
    if workload.by_labels:
        if not spec.get("selector"):
            raise Failure(1, [f"{kind}/{name}: spec.selector: is required: it selects the owners"])
        owner: Raw = {"object": {"namespace": namespace}, "labelSelector": deepcopy(spec["selector"])}
    else:
        controller = {"apiVersion": api_version, "kind": kind, "name": name, "namespace": namespace}
        owner = {"controller": {**controller, "controller": True}}
    replicas = workload.replicas(spec)
    return Source(
        name, _template(spec["template"], namespace), [owner], 1 if replicas is None else replicas
    )


def _template(given: Raw, namespace: str) -> Raw:
    """The fields of the template that scheduling reads. Environments, commands and mounts are left
    out, since readers of reservations need not see them.
    """
    metadata = {
        key: value
        for key, value in (given.get("metadata") or {}).items()
        if key in ("labels", "annotations") and value
    }
    spec = _known(given.get("spec") or {}, PodSpec)
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [_known(container, Container) for container in spec[part]]
    if spec.get("schedulerName") == DEFAULT_SCHEDULER:
        del spec["schedulerName"]  # a default written by the server
    return {"metadata": {**metadata, "namespace": namespace}, "spec": spec}


def _known(raw: Raw, type: type[Struct]) -> Raw:
    return {
        key: deepcopy(raw[key]) for key in type.__struct_encode_fields__ if raw.get(key) is not None
    }


# Building and validation


_NOTHING = (
    "nothing to reserve: give --cpu, --memory, --gpu, --device-class or --resource, or a SOURCE such "
    "as deployment/web"
)
_FLAGS = {
    "metadata.name": "--name",
    "metadata.labels": "--label",
    f"metadata.annotations[{STARTS_AT}]": "--start",
    f"metadata.annotations[{LEAD}]": "--lead",
    f"metadata.annotations[{RELEASE_IF_UNUSED_AFTER}]": "--release-if-unused-after",
    "spec.owners": "--owner",
    "spec.ttl": "--ttl",
    "spec.expires": "--expires",
    "spec.allocatePolicy": "--policy",
    "spec.template.spec.containers[0].resources.requests": "--cpu, --memory, --gpu or --resource",
    "spec.template.spec.nodeName": "--node",
    "spec.template.spec.nodeSelector": "--node-selector",
}
_SCHEDULE_FLAGS = {
    "metadata.name": "--name",
    "spec.schedule": "--repeat",
    "spec.timeZone": "--time-zone",
    "spec.duration": "--for",
    "spec.lead": "--lead",
    "spec.releaseIfUnusedAfter": "--release-if-unused-after",
    **{f"spec.template.{field}": flag for field, flag in _FLAGS.items()},
}


def make_reservations(options: ReserveOptions, source: Source | None) -> list[Raw]:
    """One for each replica, or one schedule for each if they recur. Raises Failure."""
    replicas = options.replicas
    if replicas is None:
        replicas = source.replicas if source is not None else 1
    if replicas < 1:
        raise Failure(1, [f"--replicas: must be at least 1, got {replicas}"])
    if replicas > MOST_RESERVATIONS:
        text = f"at most {MOST_RESERVATIONS} reservations at once, got {replicas}"
        raise Failure(1, [f"--replicas: {text}"])
    base = _base(options, source)
    spec = _spec(options, source)
    names = [base] if replicas == 1 else [f"{base}-{number}" for number in range(1, replicas + 1)]
    make = _schedule if options.recurrence else _reservation
    made = [make(name, options, spec) for name in names]
    _, found = checked_object(_type_of(made[-1]), made[-1])
    flags = _SCHEDULE_FLAGS if options.recurrence else _FLAGS
    problems = [f"{_origin(error.field, flags)}{error.field}: {error.message}" for error in found]
    if problems:
        raise Failure(1, problems)
    return made


def check_devices(device_class: str | None, count: int | None) -> None:
    """Raises Failure."""
    if count is not None and not device_class:
        raise Failure(1, ["--count: needs --device-class, the class of the devices"])
    if count is not None and not 1 <= count <= MAX_DEVICES:
        raise Failure(1, [f"--count: expected a number from 1 to {MAX_DEVICES}, got {count}"])


def make_claim_template(options: ReserveOptions, reservation: Raw) -> Raw | None:
    """The ResourceClaimTemplate that the reservations or schedules name; None if they hold no
    devices of a class."""
    if not options.device_class:
        return None
    template = _pod_template_of(reservation)
    exactly = {
        "deviceClassName": options.device_class,
        "allocationMode": "ExactCount",
        "count": options.devices,
    }
    return {
        "apiVersion": RESOURCE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": template["spec"]["resourceClaims"][-1]["resourceClaimTemplateName"],
            "namespace": template["metadata"]["namespace"],
            "labels": {MANAGED_BY: "holdfast-reserve"},
        },
        "spec": {"spec": {"devices": {"requests": [{"name": DEVICES, "exactly": exactly}]}}},
    }


def _type_of(raw: Raw) -> ResourceType:
    group, _, version = raw["apiVersion"].partition("/")
    found = holdfast_catalogue().kind(group, version, raw["kind"])
    assert found is not None
    return found


def holds_nothing(reservation: Raw) -> bool:
    """Whether the template requests no resources, so that only a pod slot is reserved."""
    spec = convert(_pod_template_of(reservation).get("spec") or {}, PodSpec)
    return not spec.resource_claims and not any(pod_requests(Pod(spec=spec)).values())


def has_priority(options: ReserveOptions, made: Raw) -> bool:
    """Whether a priority is given, or the template has one."""
    spec = _pod_template_of(made).get("spec") or {}
    given = spec.get("priority") is not None or bool(spec.get("priorityClassName"))
    return given or RESERVATION_PRIORITY in options.labels


def _pod_template_of(made: Raw) -> Raw:
    """The pod template of a reservation, or of the reservations of a schedule."""
    of_reservation = made["spec"] if made["kind"] == "Reservation" else made["spec"]["template"]["spec"]
    template: Raw = of_reservation["template"]
    return template


def _reservation(name: str, options: ReserveOptions, spec: Raw) -> Raw:
    metadata: Raw = {"name": name}
    if options.labels:
        metadata["labels"] = dict(options.labels)
    if options.annotations:
        metadata["annotations"] = dict(options.annotations)
    return {
        "apiVersion": RESERVATION_API,
        "kind": "Reservation",
        "metadata": metadata,
        "spec": deepcopy(spec),
    }


def _schedule(name: str, options: ReserveOptions, spec: Raw) -> Raw:
    metadata: Raw = {"metadata": {"labels": dict(options.labels)}} if options.labels else {}
    return {
        "apiVersion": HOLDFAST_API,
        "kind": "ReservationSchedule",
        "metadata": {"name": name},
        "spec": {**options.recurrence, "template": {**metadata, "spec": deepcopy(spec)}},
    }


def _spec(options: ReserveOptions, source: Source | None) -> Raw:
    owners = options.owners or (source.owners if source is not None else [])
    if not owners:
        raise Failure(1, ["--owner: is required: the labels of the pods it is for, such as app=web"])
    spec: Raw = {"template": _pod_template(options, source), "owners": owners}
    if options.ttl is not None:
        spec["ttl"] = options.ttl
    if options.expires is not None:
        spec["expires"] = options.expires
    if options.once is not None:
        spec["allocateOnce"] = options.once
    if options.policy:
        spec["allocatePolicy"] = options.policy
    if options.pre_allocation:
        spec["preAllocation"] = True
    return spec


def _pod_template(options: ReserveOptions, source: Source | None) -> Raw:
    if source is not None:
        template = deepcopy(source.template)
    elif options.resources or options.device_class:
        template = {"metadata": {"namespace": options.namespace}} if options.namespace else {}
    else:
        raise Failure(1, [_NOTHING])
    spec: Raw = template.setdefault("spec", {})
    if options.resources:
        # Amounts of the command line replace the requests of the workload's containers.
        spec["containers"] = [{"name": "main", "resources": {"requests": dict(options.resources)}}]
        spec.pop("initContainers", None)
        spec.pop("resources", None)
        spec.pop("overhead", None)
    if options.device_class:
        spec.setdefault("containers", [{"name": "main"}])
        template.setdefault("metadata", {}).setdefault("namespace", DEFAULT_NAMESPACE)
        entry = {"name": DEVICES, "resourceClaimTemplateName": f"{_base(options, source)}-devices"}
        spec["resourceClaims"] = [*(spec.get("resourceClaims") or ()), entry]
    if options.node:
        spec["nodeName"] = options.node
    if options.node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **options.node_selector}
    return template


def _base(options: ReserveOptions, source: Source | None) -> str:
    """The name of the reservation, or what the names of several begin with."""
    return options.name or (source.name if source is not None else _name_after(options.owners))


def _name_after(owners: list[Raw]) -> str:
    """The value of the first owner's first label, if it is a valid name."""
    for owner in owners:
        for value in ((owner.get("labelSelector") or {}).get("matchLabels") or {}).values():
            name = "".join(c if c.isalnum() and c.isascii() else "-" for c in value.lower()).strip("-")
            if name:
                return name
    return "reservation"


def _origin(field: str, flags: Mapping[str, str]) -> str:
    for start, flag in flags.items():
        if field.startswith(start):
            return f"{flag}: "
    return ""
