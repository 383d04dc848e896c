"""Reservations that pods have requested of a provisioner and that do not exist yet. The scheduler holds
their capacity by itself (virtual reservations), on nodes that no object names."""

from collections.abc import Iterator

from holdfast.api.plurals import plural
from holdfast.explanation.phrases import pods_text
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def request_text(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """The state of the reservation requested for the pod, if there is one."""
    requirements = snapshot.cluster.virtuals.requirements
    request = requirements.requests.get(pod.uid)
    if request is None or request.requirement is None:
        return ""
    if request.error:
        return f"The reservation requested for it, {request.id}, was not created: {request.error}"
    if request.id in requirements.made:
        return f"The reservation requested for it, {request.id}, exists; the pod is bound next."
    return (
        f"It waits until its provisioner creates the reservation {request.id} "
        f"({_amounts(snapshot, pod)})."
    )


def awaiting_reservations(snapshot: ClusterSnapshot) -> list[PodRecord]:
    """The pods whose reservation has been requested and is not created yet."""
    requirements = snapshot.cluster.virtuals.requirements
    found = [
        snapshot.cluster.pods.get(uid)
        for uid, request in requirements.requests.items()
        if request.requirement is not None and not request.error and request.id not in requirements.made
    ]
    return [pod for pod in found if pod is not None and pod.row < 0]


def awaiting_text(pods: list[PodRecord]) -> str:
    """`pod default/x waits for a reservation that it requested`"""
    each = plural(len(pods), "a reservation that it requested", "reservations that they requested")
    return f"{pods_text(pods)} {plural(len(pods), 'waits', 'wait')} for {each}"


def unknown_capacity(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> Iterator[str]:
    """What the scheduler holds for each of them."""
    for pod in pods:
        whom = f"pod {pod.namespace}/{pod.name}"
        yield (
            f"the scheduler holds {_amounts(snapshot, pod)} for {whom} until its provisioner creates "
            "the reservation: it is not counted here, as no object names the node (an event of the pod "
            "does)"
        )


def _amounts(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    requirement = snapshot.cluster.virtuals.requirements.requests[pod.uid].requirement
    assert requirement is not None
    return ", ".join(f"{name}: {amount}" for name, amount in requirement.resources.items())
