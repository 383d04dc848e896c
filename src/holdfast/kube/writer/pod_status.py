"""Writes the PodScheduled condition, the nominated node, and annotations of pods without a node."""

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.api.meta import Condition, condition
from holdfast.api.pod import Pod
from holdfast.api.times import format_time
from holdfast.kube.errors import ApiError, LeadershipLost
from holdfast.kube.http.client import POD, STRATEGIC, path_of
from holdfast.kube.writer.write_queue import TRANSIENT, ApiWriter, Job, Outcome, persistent, wait_after
from holdfast.scheduler.cluster.decisions import AnnotatePod, Nominate, ObjectRef, SetPodScheduled
from holdfast.scheduler.cluster.events import Event, WriteRefused

POD_SCHEDULED = "PodScheduled"
_ATTEMPTS = 8
_NOT_THERE = (404, 409)
"""The pod is deleted, or recreated under the same name: nothing is left to write."""

Wall = Callable[[], float]


class _Said:
    """The last known condition and nomination of a pod."""

    __slots__ = ("condition", "nominated", "version")

    def __init__(self, condition: Condition | None, nominated: str, version: int = 0) -> None:
        self.condition = condition
        self.nominated = nominated
        self.version = version


class Statuses:
    """Combines the changes of a pod at one moment into one patch, and skips what the pod already
    has, also after a restart.
    """

    def __init__(self, api: ApiWriter, wall: Wall) -> None:
        self._api = api
        self._wall = wall
        self._said: dict[str, _Said] = {}
        """Last known condition and nomination of pods without a node, by uid."""
        self._wanted: dict[str, tuple[SetPodScheduled | None, Nominate | None]] = {}

    def seen(self, pod: Pod) -> None:
        """A pod came from the server."""
        uid = pod.metadata.uid
        if pod.spec.node_name:
            self._said.pop(uid, None)
            return
        found = condition(pod.status.conditions, POD_SCHEDULED)
        nominated = pod.status.nominated_node_name
        version, before = _number(pod.metadata.resource_version), self._said.get(uid)
        if before is not None and version < before.version:
            return  # from before we wrote
        if found or nominated:
            self._said[uid] = _Said(found, nominated, version)
        else:
            self._said.pop(uid, None)

    def gone(self, uid: str) -> None:
        self._said.pop(uid, None)

    def want(self, decision: SetPodScheduled | Nominate) -> bool:
        """Takes note; whether a job is needed that was not before."""
        uid = decision.pod.uid
        new = uid not in self._wanted
        said, nominated = self._wanted.get(uid, (None, None))
        if isinstance(decision, SetPodScheduled):
            said = decision
        else:
            nominated = decision
        self._wanted[uid] = (said, nominated)
        return new

    def drop(self, uid: str) -> None:
        """Drops the queued status of a pod that is about to be bound."""
        self._wanted.pop(uid, None)

    def job(self, pod: ObjectRef) -> Callable[[], Any]:
        backoff = self._api.backoff(0.2, 10.0)

        async def write() -> Outcome:
            wanted = self._wanted.pop(pod.uid, None)
            patch = self._patch(pod, *wanted) if wanted is not None else None
            if wanted is None or patch is None:
                return None
            path = path_of(POD, pod.namespace, pod.name, "status")
            try:
                self._wrote(pod, wanted, await self._api.write("PATCH", path, patch, STRATEGIC))
            except LeadershipLost:
                return None
            except TRANSIENT as error:
                if isinstance(error, ApiError) and error.status in _NOT_THERE:
                    return None
                wait = wait_after(error, backoff)
                if wait is None or backoff.tries >= _ATTEMPTS:
                    raise
                newer = self._wanted.get(pod.uid, (None, None))
                self._wanted[pod.uid] = (newer[0] or wanted[0], newer[1] or wanted[1])
                return wait
            return None

        return write

    def _wrote(
        self,
        pod: ObjectRef,
        wanted: tuple[SetPodScheduled | None, Nominate | None],
        answer: bytes,
    ) -> None:
        said = self._said.setdefault(pod.uid, _Said(None, ""))
        said.version = max(said.version, _version_of(answer))
        if wanted[0] is not None:
            said.condition = Condition(
                type=POD_SCHEDULED, status="False", reason=wanted[0].reason, message=wanted[0].message
            )
        if wanted[1] is not None:
            said.nominated = wanted[1].node

    def _patch(
        self, pod: ObjectRef, wanted: SetPodScheduled | None, nominate: Nominate | None
    ) -> dict[str, Any] | None:
        """The patch; None if the pod is up to date."""
        said = self._said.get(pod.uid) or _Said(None, "")
        status: dict[str, Any] = {}
        if wanted is not None and not _says(said.condition, wanted):
            new = {
                "type": POD_SCHEDULED,
                "status": "False",
                "reason": wanted.reason,
                "message": wanted.message,
            }
            if said.condition is None or said.condition.status != "False":
                new["lastTransitionTime"] = format_time(self._wall())
            status["conditions"] = [new]
        if nominate is not None and nominate.node != said.nominated:
            status["nominatedNodeName"] = nominate.node or None
        # The uid makes the server refuse if the pod was recreated.
        return {"metadata": {"uid": pod.uid}, "status": status} if status else None


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Meta


def _version_of(answer: bytes) -> int:
    try:
        return _number(msgspec.json.decode(answer, type=_Versioned).metadata.resource_version)
    except msgspec.DecodeError:
        return 0


def _number(version: str) -> int:
    """Resource versions are numbers on every known server; otherwise the order is unknown."""
    return int(version) if version.isdigit() else 0


def _says(found: Condition | None, wanted: SetPodScheduled) -> bool:
    return (
        found is not None
        and found.status == "False"
        and found.reason == wanted.reason
        and found.message == wanted.message
    )


def annotation_job(api: ApiWriter, decision: AnnotatePod, feed: Callable[[Event], None]) -> Job:
    """Writes annotations of a pod: the reservation requested for it, and errors."""
    pod = decision.pod
    # The uid makes the server refuse if the pod was recreated.
    patch = {"metadata": {"uid": pod.uid, "annotations": dict(decision.annotations)}}
    return persistent(
        api,
        lambda: api.write("PATCH", path_of(POD, pod.namespace, pod.name), patch, STRATEGIC),
        lambda error: feed(WriteRefused(decision, str(error))),
    )
