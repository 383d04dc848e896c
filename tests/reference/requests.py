"""What a pod asks for, written out step by step."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from holdfast.api.meta import ResourceList
from holdfast.api.pod import Container, Pod, ResourceRequirements
from reference.quantities import counted, exact

Amounts = dict[str, Fraction]

DEFAULTS: Amounts = {"cpu": Fraction(1, 10), "memory": Fraction(200 * 2**20)}
"""The request that a container without one has in scores."""


def requests(pod: Pod) -> dict[str, int]:
    return {name: counted(name, value) for name, value in _total(pod, {}).items()}


def scored(pod: Pod) -> dict[str, int]:
    """What a pod looking for a node counts with where NodeResourcesFit scores nodes.

    kube-scheduler does not look at what the pod asks for as a whole here.
    """
    total = _total(pod, DEFAULTS, whole=False)
    return {name: counted(name, value) for name, value in total.items()}


def claimed_for_scores(pod: Pod) -> dict[str, int]:
    """What a pod on a node counts with there."""
    defaults = DEFAULTS
    if _pod_level(pod):
        known = _total(pod, {})
        defaults = {name: value for name, value in DEFAULTS.items() if name not in known}
    return {name: counted(name, value) for name, value in _total(pod, defaults).items()}


def _total(pod: Pod, defaults: Amounts, *, whole: bool = True) -> Amounts:
    total = _containers(pod, defaults)
    if whole:
        total.update(_pod_level(pod))
    for name, quantity in pod.spec.overhead.items():
        total[name] = total.get(name, Fraction(0)) + exact(quantity)
    return total


def _containers(pod: Pod, defaults: Amounts) -> Amounts:
    return peak(pod, lambda resources: defaults | _asked(resources))


def peak(pod: Pod, of: Callable[[ResourceRequirements], Amounts]) -> Amounts:
    """The most the pod needs at any moment of its life."""
    moments: list[list[Container]] = []
    running: list[Container] = []
    for container in pod.spec.init_containers:
        moments.append([*running, container])
        if container.restart_policy == "Always":
            running.append(container)
    moments.append([*running, *pod.spec.containers])
    most: Amounts = {}
    for moment in moments:
        needed: Amounts = {}
        for container in moment:
            for name, value in of(container.resources).items():
                needed[name] = needed.get(name, Fraction(0)) + value
        for name, value in needed.items():
            most[name] = max(most.get(name, Fraction(0)), value)
    return most


def _pod_level(pod: Pod) -> Amounts:
    """What the pod asks for as a whole, completed as the API server does."""
    whole = pod.spec.resources
    if whole is None or not (whole.requests or whole.limits):
        return {}
    asked = {name: exact(quantity) for name, quantity in whole.requests.items()}
    limits = {name: exact(quantity) for name, quantity in whole.limits.items()}
    for name, value in peak(pod, lambda resources: _exact(resources.limits)).items():
        if name.startswith("hugepages-") and name not in asked:
            limits.setdefault(name, value)
    if limits:
        for name, value in _containers(pod, {}).items():
            if not name.startswith("hugepages-"):
                asked.setdefault(name, value)
    for name, value in limits.items():
        asked.setdefault(name, value)
    return {
        name: value
        for name, value in asked.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def _asked(resources: ResourceRequirements) -> Amounts:
    return _exact({**resources.limits, **resources.requests})


def _exact(quantities: ResourceList) -> Amounts:
    return {name: exact(quantity) for name, quantity in quantities.items()}
