"""Deployments of a scenario have pods, as in a cluster.

Only these: what a scenario says of ReplicaSets, Jobs and other owners is there for its pods to refer
to, and owners it says nothing of count as present. Nothing of theirs prolongs a run: their pods run
until they are deleted, whatever they say of their end, and waits such as `minReadySeconds` are looked
at when something else happens.
"""

from holdfast.api import names
from holdfast.backends.embedded.workloads import WorkloadControllers
from holdfast.store.objects import Change, Raw

_DEPLOYMENT = ("apps", "Deployment")
_REPLICA_SET = ("apps", "ReplicaSet")
_POD = ("", "Pod")


class Deployments(WorkloadControllers):
    _ours: set[str] | None = None
    """The uids of Deployments and of their ReplicaSets; None as long as there was no Deployment."""

    def changed(self, change: Change) -> None:
        kind = change.key[:2]
        if kind == _DEPLOYMENT:
            if self._ours is None:
                self._ours = set()
        elif self._ours is None or kind not in (_REPLICA_SET, _POD):
            return
        raw = change.after if change.after is not None else change.before
        assert raw is not None and self._ours is not None
        if kind == _DEPLOYMENT or _controller(raw) in self._ours:
            if kind != _POD:
                self._ours.add(raw["metadata"]["uid"])
            super().changed(change)

    def _plan(self, due: float | None) -> None:
        pass

    def _put(self, raw: Raw) -> Raw:
        if raw["kind"] == "Pod":
            raw = _without_end(raw)
        return super()._put(raw)


def _controller(raw: Raw) -> str:
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def _without_end(pod: Raw) -> Raw:
    metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(names.SIM_RUNS_FOR, None)
    spec.pop("activeDeadlineSeconds", None)
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
