"""Reservations as they are sent, checked by the rules every reservation is checked by."""

from copy import deepcopy

from holdfast.api.decode import convert
from holdfast.api.names import RESERVATION_API
from holdfast.api.pod import Pod, PodSpec
from holdfast.api.resources import pod_requests
from holdfast.api.validation import validate
from holdfast.cli.failing import Failure
from holdfast.cli.reserving.sources import Source
from holdfast.cli.reserving.wishes import Raw, Wishes

_NOTHING = (
    "nothing to reserve: give --cpu, --memory, --gpu or --resource, or a SOURCE such as deployment/web"
)
_FLAGS = {
    "metadata.name": "--name",
    "metadata.labels": "--label",
    "spec.owners": "--owner",
    "spec.ttl": "--ttl",
    "spec.expires": "--expires",
    "spec.allocatePolicy": "--policy",
    "spec.template.spec.containers[0].resources.requests": "--cpu, --memory, --gpu or --resource",
    "spec.template.spec.nodeName": "--node",
    "spec.template.spec.nodeSelector": "--node-selector",
}


def make_reservations(wishes: Wishes, source: Source | None) -> list[Raw]:
    """One for each replica. Raises Failure."""
    replicas = wishes.replicas
    if replicas is None:
        replicas = source.replicas if source is not None else 1
    if replicas < 1:
        raise Failure(1, [f"--replicas: must be at least 1, got {replicas}"])
    base = wishes.name or (source.name if source is not None else _name_after(wishes.owners))
    spec = _spec(wishes, source)
    names = [base] if replicas == 1 else [f"{base}-{number}" for number in range(1, replicas + 1)]
    made = [_reservation(name, wishes, spec) for name in names]
    problems = [f"{_origin(error.field)}{error.field}: {error.message}" for error in validate(made[-1])]
    if problems:
        raise Failure(1, problems)
    return made


def holds_nothing(reservation: Raw) -> bool:
    """Whether its template asks for no resource at all, so that only a pod's place is held."""
    spec = convert(reservation["spec"]["template"].get("spec") or {}, PodSpec)
    return not any(pod_requests(Pod(spec=spec)).values())


def _reservation(name: str, wishes: Wishes, spec: Raw) -> Raw:
    metadata: Raw = {"name": name}
    if wishes.labels:
        metadata["labels"] = dict(wishes.labels)
    return {
        "apiVersion": RESERVATION_API,
        "kind": "Reservation",
        "metadata": metadata,
        "spec": deepcopy(spec),
    }


def _spec(wishes: Wishes, source: Source | None) -> Raw:
    owners = wishes.owners or (source.owners if source is not None else [])
    if not owners:
        raise Failure(1, ["--owner: is required: the labels of the pods it is for, such as app=web"])
    spec: Raw = {"template": _template(wishes, source), "owners": owners}
    if wishes.ttl is not None:
        spec["ttl"] = wishes.ttl
    if wishes.expires is not None:
        spec["expires"] = wishes.expires
    if wishes.once is not None:
        spec["allocateOnce"] = wishes.once
    if wishes.policy:
        spec["allocatePolicy"] = wishes.policy
    if wishes.ahead:
        spec["preAllocation"] = True
    return spec


def _template(wishes: Wishes, source: Source | None) -> Raw:
    if source is not None:
        template = deepcopy(source.template)
    elif wishes.resources:
        template = {"metadata": {"namespace": wishes.namespace}} if wishes.namespace else {}
    else:
        raise Failure(1, [_NOTHING])
    spec: Raw = template.setdefault("spec", {})
    if wishes.resources:
        # What is asked for by hand takes the place of what the workload's containers ask for.
        spec["containers"] = [{"name": "main", "resources": {"requests": dict(wishes.resources)}}]
        spec.pop("initContainers", None)
        spec.pop("resources", None)
        spec.pop("overhead", None)
    if wishes.node:
        spec["nodeName"] = wishes.node
    if wishes.node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **wishes.node_selector}
    return template


def _name_after(owners: list[Raw]) -> str:
    """The first label's value of the first owner, where that can be a name."""
    for owner in owners:
        for value in ((owner.get("labelSelector") or {}).get("matchLabels") or {}).values():
            name = "".join(c if c.isalnum() and c.isascii() else "-" for c in value.lower()).strip("-")
            if name:
                return name
    return "reservation"


def _origin(field: str) -> str:
    for start, flag in _FLAGS.items():
        if field.startswith(start):
            return f"{flag}: "
    return ""
