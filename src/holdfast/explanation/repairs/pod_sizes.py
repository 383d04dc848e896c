"""Other requests or limits for a pod: in which of its containers, and the changed spec.

A pod requests the sum of its containers and sidecars, or what an init container requests together with
the sidecars before it, if that is more; pod-level resources replace all of that. The change is made in
the fewest places: in the largest container if that is enough, otherwise in all of them by their shares.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.api.quantity import amount, format_amount
from holdfast.api.resources import is_pod_level
from holdfast.explanation.facts.admitted_pods import NONE, Additions
from holdfast.kube.object_client import Raw
from holdfast.snapshot.cluster_snapshot import shown

SMALLEST_SHARE = 4
"""A request is not advised to shrink below one part in this many."""

Sizes = Mapping[str, tuple[int, int]]
"""By resource, the amounts of the pod now and then, its overhead included."""
CONTAINER, SIDECAR, INIT = "container", "sidecar", "init container"


class ResizedSpec(NamedTuple):
    patch: Raw
    """A merge patch of the pod's spec."""
    places: list[str]
    """Where the amounts change, if that is not its only container."""
    limits_too: bool
    """Whether limits change that were equal to requests."""


class Part(NamedTuple):
    """A container of a pod."""

    role: str
    name: str
    resources: Raw
    is_fixed: bool = False
    """It is not in the template, so that its amounts stay."""


def parts_of(spec: Raw) -> list[Part]:
    """The containers, then the init containers, in their order."""
    found = [Part(CONTAINER, each["name"], _resources(each)) for each in spec.get("containers") or ()]
    for each in spec.get("initContainers") or ():
        role = SIDECAR if each.get("restartPolicy") == "Always" else INIT
        found.append(Part(role, each["name"], _resources(each)))
    return found


def resized_spec(
    spec: Raw, sizes: Sizes, field: str = "requests", added: Additions = NONE
) -> ResizedSpec | None:
    """The spec with these requests, or limits; None if a container would be left with too little. The
    sizes are of the pod, to which admission adds more than a template has."""
    fields = ("containers", "initContainers", "resources")
    whole_pod = added.to(spec)
    changed = copy.deepcopy({key: whole_pod[key] for key in fields if whole_pod.get(key)})
    parts = [each._replace(is_fixed=each.name in added.names) for each in parts_of(changed)]
    places: list[str] = []
    limits_too = False
    for name, (_, then) in sizes.items():
        wanted = then - amount_of(whole_pod.get("overhead"), name)
        before = [given(part.resources, name, field) for part in parts]
        after: Sequence[int] | None
        if whole := pod_level(changed, name, field):
            limits_too |= _set(changed["resources"], name, wanted, field)
            places.append(f"spec.resources {shown(name, wanted)} instead of {shown(name, whole)}")
            after = _within(before, parts, wanted, field)
        else:
            after = _shared_out(before, parts, wanted)
        if after is None:
            return None
        for part, was, size in zip(parts, before, after, strict=True):
            if was == size:
                continue
            limits_too |= _set(part.resources, name, size, field)
            if len(parts) > 1 or whole:
                both = f" {shown(name, size)} instead of {shown(name, was)}" if size != wanted else ""
                places.append(f"{part.role} {part.name}{both}")
    return ResizedSpec(_patch(spec, changed, sizes), places, limits_too)


def _patch(spec: Raw, changed: Raw, sizes: Sizes) -> Raw:
    """The containers of the spec with the amounts of the changed one for these resources."""
    found: Raw = {key: changed[key] for key in ("resources",) if key in changed}
    for key in ("containers", "initContainers"):
        resources = {each["name"]: each["resources"] for each in changed.get(key) or ()}
        if spec.get(key):
            found[key] = [
                {**each, "resources": _with_sizes(each, resources[each["name"]], sizes)}
                for each in spec[key]
            ]
    return found


def _with_sizes(container: Raw, after: Raw, sizes: Sizes) -> Raw:
    found = copy.deepcopy(container.get("resources") or {})
    for field in ("requests", "limits"):
        amounts = {name: each for name, each in (after.get(field) or {}).items() if name in sizes}
        if amounts:
            found[field] = {**(found.get(field) or {}), **amounts}
    return found


def pod_level(spec: Raw, name: str, field: str = "requests") -> int:
    """The amount of the pod as a whole; 0 if it has none."""
    return given(spec.get("resources") or {}, name, field) if is_pod_level(name) else 0


def given(resources: Raw, name: str, field: str = "requests") -> int:
    """A request that is missing is equal to the limit; a limit that is missing bounds nothing, and
    counts as large as the request."""
    request, limit = (amount_of(resources.get(each), name) for each in ("requests", "limits"))
    if field == "limits":
        return max(request, limit)
    return request if name in (resources.get("requests") or {}) else limit


def amount_of(resources: Any, name: str) -> int:
    quantity = (resources or {}).get(name)
    return amount(name, quantity) if quantity is not None else 0


def _resources(container: Raw) -> Raw:
    found: Raw = container.setdefault("resources", {})
    return found


def _peak(sizes: Sequence[int], parts: Sequence[Part]) -> int:
    """What the pod needs at the most crowded time of its life."""
    peak = sidecars = 0
    for size, part in zip(sizes, parts, strict=True):
        if part.role == SIDECAR:
            sidecars += size
        elif part.role == INIT:
            peak = max(peak, sidecars + size)
    running = sum(size for size, part in zip(sizes, parts, strict=True) if part.role != INIT)
    return max(peak, running)


def _within(sizes: list[int], parts: list[Part], wanted: int, field: str) -> Sequence[int] | None:
    """Sizes that a pod-level amount allows: requests in sum, limits each."""
    if field == "limits":
        return [min(each, wanted) for each in sizes]
    return sizes if _peak(sizes, parts) <= wanted else _shared_out(sizes, parts, wanted)


def _shared_out(sizes: list[int], parts: list[Part], wanted: int) -> Sequence[int] | None:
    """Sizes with which the pod needs as much as is wanted."""
    peak = _peak(sizes, parts)
    if not peak:
        return None
    found = list(sizes)
    running = [i for i, part in enumerate(parts) if part.role != INIT]
    excess = sum(sizes[i] for i in running) - wanted
    own = [i for i in running if not parts[i].is_fixed]
    if own and (excess > 0 or peak < wanted):
        found[max(own, key=lambda i: sizes[i])] -= excess
    sidecars = 0
    for i, part in enumerate(parts):
        if part.role == SIDECAR:
            sidecars += found[i]
        elif part.role == INIT and not part.is_fixed:
            found[i] = min(found[i], wanted - sidecars)
    if not _is_enough(sizes, found):
        fixed = sum(sizes[i] for i in running if parts[i].is_fixed)
        found = [
            size if part.is_fixed else size * max(0, wanted - fixed) // (peak - fixed or 1)
            for size, part in zip(sizes, parts, strict=True)
        ]
    fits = peak < wanted or _peak(found, parts) <= wanted
    return found if fits and _is_enough(sizes, found) else None


def _is_enough(before: Sequence[int], after: Sequence[int]) -> bool:
    both = zip(before, after, strict=True)
    return all(was == now or (now > 0 and now * SMALLEST_SHARE >= was) for was, now in both)


def _set(resources: Raw, name: str, size: int, field: str) -> bool:
    """Sets a request or limit; tells whether a limit changes with its request."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    text, limit = format_amount(name, size), amount_of(limits, name)
    if field == "limits":
        resources["limits"] = {**limits, name: text}
        if amount_of(requests, name) > size:
            resources["requests"] = {**requests, name: text}
        return False
    is_tied = "/" in name or limit == given(resources, name) or limit < size
    resources["requests"] = {**requests, name: text}
    if name not in limits or not is_tied:
        return False
    resources["limits"] = {**limits, name: text}
    return "/" not in name
