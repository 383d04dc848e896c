"""What has been promised to claims but is not on the objects yet.

A pod that was given a node may have been promised volumes for its claims, or that a volume will be made
there. Until the objects say so themselves, or the pod gives up, these promises stand in for them.
Several pods may share a claim; a promise lasts as long as one of them keeps it.
"""

from dataclasses import dataclass, field

from holdfast.api.meta import ObjectReference
from holdfast.core.volumes.objects import ClaimKey


@dataclass(slots=True)
class Promise:
    claim: ObjectReference | None = None
    """For a volume: the claim it is to be bound to."""
    node: str = ""
    """For a claim: the node its volume is to be made for."""
    pods: set[str] = field(default_factory=set)


class Assumed:
    def __init__(self) -> None:
        self.volumes: dict[str, Promise] = {}
        self.claims: dict[ClaimKey, Promise] = {}
        self._volumes_of: dict[str, set[str]] = {}
        self._claims_of: dict[str, set[ClaimKey]] = {}

    def __contains__(self, pod: str) -> bool:
        """Whether there are promises to the pod, or a memory of some."""
        return pod in self._volumes_of or pod in self._claims_of

    def promise_volume(self, volume: str, claim: ObjectReference, pod: str) -> None:
        self.volumes.setdefault(volume, Promise(claim=claim)).pods.add(pod)
        self._volumes_of.setdefault(pod, set()).add(volume)

    def promise_node(self, claim: ClaimKey, node: str, pod: str) -> None:
        self.claims.setdefault(claim, Promise(node=node)).pods.add(pod)
        self._claims_of.setdefault(pod, set()).add(claim)

    def kept_for(self, pod: str) -> tuple[list[str], list[ClaimKey]]:
        """The volumes and claims that only this pod's promises stand for."""
        return (
            sorted(n for n in self._volumes_of.get(pod, ()) if _only(self.volumes.get(n), pod)),
            sorted(key for key in self._claims_of.get(pod, ()) if _only(self.claims.get(key), pod)),
        )

    def of(self, pod: str) -> tuple[list[str], list[ClaimKey]]:
        """The volumes and claims the pod was promised and has not got yet."""
        return (
            sorted(name for name in self._volumes_of.get(pod, ()) if name in self.volumes),
            sorted(key for key in self._claims_of.get(pod, ()) if key in self.claims),
        )

    def release(self, pod: str) -> None:
        """The pod has no promises any more."""
        for name in sorted(self._volumes_of.pop(pod, ())):
            if _left(self.volumes.get(name), pod):
                del self.volumes[name]
        for key in sorted(self._claims_of.pop(pod, ())):
            if _left(self.claims.get(key), pod):
                del self.claims[key]

    def pods(self) -> set[str]:
        """Those with promises, or a memory of some."""
        return {*self._volumes_of, *self._claims_of}


def _only(promise: Promise | None, pod: str) -> bool:
    return promise is not None and promise.pods == {pod}


def _left(promise: Promise | None, pod: str) -> bool:
    if promise is None:
        return False
    promise.pods.discard(pod)
    return not promise.pods
