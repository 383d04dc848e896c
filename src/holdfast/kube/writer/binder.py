"""Writes a bind and finds out its outcome.

    volumes written ─► claims bound ─► ResourceClaims written ─► devices verified ─► releases written
          │                 │                   │                       │                   │
          │                 │                   │                       │                   ▼
          └────────┬────────┴───────────────────┴───────────────────────┘            binding posted
                   ▼                                                                        │
                refused                         no answer, an error, or a conflict: read the pod

The API server lets two schedulers allocate one device to two claims. Therefore a pod is bound only when
the watch has delivered the pod's own claims, and with them every allocation that was written before. If
one of those has a device of the pod's claims, the pod's claim is deallocated, and the bind refused. If
the other allocation was written later, its scheduler is given some time to take it back.

A pod stays assumed until the outcome of its bind is known. If the connection was closed, the response
timed out or was a server error, the pod is read. One read is not enough: the server may still carry out
a bind that it did not answer or answered with an error. Therefore a bind names the pod's resource
version where it is known; before the pod's capacity is released the pod is patched, so that the server
rejects a bind for the earlier version; and the pod is read once more after the server's own request
timeout.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.api import names
from holdfast.api.decode import convert, decode_pod_json
from holdfast.api.errors import HoldfastError, InvalidObject
from holdfast.api.meta import Object, ObjectMeta
from holdfast.api.pod import Pod
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.api.times import format_time
from holdfast.kube.client import CLAIM, MERGE, POD, STRATEGIC, VOLUME, path_of
from holdfast.kube.errors import ApiError, LeadershipLost, Unreachable
from holdfast.kube.reflector import is_older
from holdfast.kube.writer.reservation_writes import Releases
from holdfast.kube.writer.resource_claim_writes import ResourceClaimWriter
from holdfast.kube.writer.write_queue import (
    TRANSIENT,
    ApiWriter,
    WriteResult,
    is_conflict,
    may_be_carried_out,
    wait_after,
)
from holdfast.scheduler.cluster.claim_writes import ClaimConflict
from holdfast.scheduler.cluster.decisions import (
    Bind,
    BindVolume,
    CreateClaim,
    HoldDevices,
    ReserveClaim,
    SelectNode,
    metadata_patch,
    volume_patch,
)
from holdfast.scheduler.cluster.events import BindConfirmed, BindRefused, Deleted, Event, Updated
from holdfast.scheduler.managers.claims.claim_state import ConflictingClaim

_SERVER_ERRORS = 4
"""After this many server errors in a row the pod is read; if it has no node, it is scheduled again
later, perhaps on another node."""
_CONFLICTS = 5

_VERIFIED_EVERY = 0.01
_WATCH_TIMEOUT = 10.0
"""Seconds to wait for the watch to deliver the claims that were written."""
_CONFLICT_TIMEOUT = 3.0
"""Seconds to wait for another scheduler to take back an allocation that was written later."""

Feed = Callable[[Event], None]
ConflictsOf = Callable[[str], Sequence[ConflictingClaim] | None]
"""The claims that have devices of a pod's claims, by the pod's uid; None while the watch has not
delivered the pod's claims."""
BeforeBind = BindVolume | SelectNode | ReserveClaim | CreateClaim | HoldDevices
"""What is written before a pod is bound."""


async def write_volume(api: ApiWriter, decision: BindVolume | SelectNode) -> str:
    """Writes the decision; returns the claim's new resource version if the claim was written.

    Raises ClaimFailed if the objects have changed since the decision, and the errors of `ApiWriter`.
    The write carries the object's resource version, so that no concurrent change is overwritten.
    """
    if isinstance(decision, BindVolume):
        await _bind_volume(api, decision)
        return ""
    return await _select_node(api, decision)


async def _bind_volume(api: ApiWriter, decision: BindVolume) -> None:
    path = path_of(VOLUME, "", decision.volume.name)
    volume = convert(msgspec.json.decode(await api.read(path)), PersistentVolume)
    claim, ref = decision.claim, volume.spec.claim_ref
    if ref is not None:
        if (ref.namespace, ref.name) != (claim.namespace, claim.name) or ref.uid not in ("", claim.uid):
            raise ClaimFailed(f'volume "{decision.volume.name}" is bound to another claim')
        if ref.uid == claim.uid:
            return
    patch = volume_patch(decision, is_referenced=ref is not None)
    await api.write("PATCH", path, _at_version(patch, volume), MERGE)


async def _select_node(api: ApiWriter, decision: SelectNode) -> str:
    path = path_of(CLAIM, decision.claim.namespace, decision.claim.name)
    claim = convert(msgspec.json.decode(await api.read(path)), PersistentVolumeClaim)
    meta = claim.metadata
    if decision.claim.uid and meta.uid != decision.claim.uid:
        raise ClaimFailed(f'persistentvolumeclaim "{decision.claim.name}" was recreated (UID changed)')
    selected = meta.annotations.get(names.SELECTED_NODE_ANNOTATION)
    if selected == decision.node:
        return meta.resource_version
    if selected:
        raise ClaimFailed(f'persistentvolumeclaim "{meta.name}" is being provisioned for another node')
    patch = {"metadata": metadata_patch(decision)}
    answer = await api.write("PATCH", path, _at_version(patch, claim), MERGE)
    return convert(msgspec.json.decode(answer), PersistentVolumeClaim).metadata.resource_version


def _at_version(patch: dict[str, Any], read: Object) -> dict[str, Any]:
    """The patch, to be refused if the object has changed since it was read."""
    version = {"resourceVersion": read.metadata.resource_version}
    return {**patch, "metadata": {**patch.get("metadata", {}), **version}}


Key = tuple[str, str]


class ClaimFailed(HoldfastError):
    """The claim will not be bound as the scheduler decided."""


class ClaimWaiter:
    """Waits for a pod's claims to be bound by the volume controller or a provisioner.

    `known` are the claims in the scheduler's cache.
    """

    def __init__(self, known: Mapping[Key, Any]) -> None:
        self._known = known
        self._waiting: dict[Key, list[asyncio.Future[None]]] = {}

    def is_bound(self, key: Key, written: str, node: str | None) -> bool:
        """Whether the claim is fully bound. `written` is the version our own write made: an older one
        shows nothing. With `node`, a volume is being made for that node."""
        claim: PersistentVolumeClaim | None = self._known.get(key)
        if claim is None:
            raise ClaimFailed(f'persistentvolumeclaim "{key[1]}" not found')
        meta = claim.metadata
        if is_older(meta.resource_version, written):
            return False
        if node is not None and meta.annotations.get(names.SELECTED_NODE_ANNOTATION) != node:
            raise ClaimFailed(f'provisioning failed for PVC "{key[1]}"')
        return bool(claim.spec.volume_name) and names.BIND_COMPLETED_ANNOTATION in meta.annotations

    def next_change(self, key: Key) -> asyncio.Future[None]:
        """Done when the claim changes."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(future)
        return future

    def changed(self, key: Key) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def __len__(self) -> int:
        return len(self._waiting)


class BindWrite:
    """The write queue calls it repeatedly until it is done."""

    def __init__(
        self,
        api: ApiWriter,
        feed: Feed,
        claims: ClaimWaiter,
        bind: Bind,
        before: Sequence[BeforeBind],
        claim_timeout: float,
        wall: Callable[[], float],
        releases: Releases,
        resource_claims: ResourceClaimWriter,
        version: str = "",
        conflicting: ConflictsOf = lambda _: (),
    ) -> None:
        self._api = api
        self._feed = feed
        self._claims = claims
        self._bind = bind
        self._conflicts_of = conflicting
        self._verifying_since: float | None = None
        self._conflict: ConflictingClaim | None = None
        """Why the pod's claims are given up; some may be, although no answer says so."""
        self._to_give_up: list[tuple[str, str]] = []
        self._is_verified = False
        """Not verified again: the binding may have been posted, and the claims be in use."""
        self._to_write = [each for each in before if isinstance(each, BindVolume | SelectNode)]
        self._to_await = [
            (each.claim.namespace, each.claim.name, bind.node if isinstance(each, SelectNode) else None)
            for each in self._to_write
        ]
        self._to_reserve = [
            each for each in before if isinstance(each, ReserveClaim | CreateClaim | HoldDevices)
        ]
        self._unsure_claim: ReserveClaim | None = None
        """A resource claim that may have been written, although no answer says so."""
        self._written: dict[tuple[str, str], str] = {}
        self._claim_timeout = claim_timeout
        self._wall = wall
        self._releases = releases
        self._resource_claims = resource_claims
        self._give_up_at: float | None = None
        self._backoff = api.backoff(0.1, 5.0)
        self._errors = 0
        self._version = version
        """The resource version of the pod when it was last seen; "" if unknown."""
        self._conflicts = 0
        self._unsure_until = -math.inf
        """The time until which the server may still execute an unanswered bind."""
        self._is_withdrawn = False
        self._given_up = ""
        """Why the bind is no longer retried, though the server may still execute it."""
        self._is_transient = False
        """Whether it failed in a way that a later bind may not."""

    async def __call__(self) -> WriteResult:
        try:
            if self._given_up:
                return await self._refuse(self._given_up)
            if self._to_write:
                await self._write_volumes()
            if self._to_await and (pending := self._await_claims()) is not None:
                return pending
            if self._to_reserve:
                await self._write_resource_claims()
            if not self._is_verified and (contested := await self._verify_devices()) is not None:
                return contested
            if (releasing := self._releases.waiting(self._bind.node)) is not None:
                return releasing
            return await self._post()
        except (ClaimFailed, ClaimConflict) as error:
            self._is_transient = False
            return await self._refuse(str(error))
        except LeadershipLost:
            # The current leader sees the pod as it is.
            return None
        except TRANSIENT as error:
            wait = wait_after(error, self._backoff)
            if (
                wait is None
                and (self._to_write or self._to_reserve)
                and is_conflict(error)
                and self._backoff.tries < _CONFLICTS
            ):
                wait = self._backoff.next()  # somebody else wrote in between: look again
            self._is_transient = is_conflict(error)
            return await self._refuse(str(error)) if wait is None else wait

    # Volumes

    async def _write_volumes(self) -> None:
        while self._to_write:
            decision = self._to_write[0]
            version = await write_volume(self._api, decision)
            self._written[decision.claim.namespace, decision.claim.name] = version
            del self._to_write[0]
        self._backoff.reset()
        self._give_up_at = asyncio.get_running_loop().time() + self._claim_timeout

    def _await_claims(self) -> WriteResult:
        loop = asyncio.get_running_loop()
        while self._to_await:
            namespace, name, node = self._to_await[0]
            key = (namespace, name)
            if self._claims.is_bound(key, self._written.get(key, ""), node):
                del self._to_await[0]
                continue
            assert self._give_up_at is not None
            left = self._give_up_at - loop.time()
            if left <= 0:
                raise ClaimFailed("timed out waiting for the condition")
            change = self._claims.next_change(key)
            self._wake_by(loop.call_later(left, self._claims.changed, key), change)
            return change
        return None

    def _wake_by(self, timer: asyncio.TimerHandle, change: asyncio.Future[None]) -> None:
        change.add_done_callback(lambda _: timer.cancel())

    async def _write_resource_claims(self) -> None:
        while self._to_reserve:
            decision = self._to_reserve[0]
            again = self._unsure_claim is not None
            self._unsure_claim = decision if isinstance(decision, ReserveClaim) else None
            version = await self._resource_claims.write(decision, again)
            # A bind for the version before our own write would be a conflict.
            self._version = version or self._version
            self._unsure_claim = None
            del self._to_reserve[0]
        self._backoff.reset()

    async def _verify_devices(self) -> float | None:
        """When to look again; None if no other claim has devices of the pod's claims. Raises
        ClaimConflict."""
        if self._conflict is not None:
            raise await self._given_up_for(self._conflict)
        conflicting, now = self._conflicts_of(self._bind.pod.uid), asyncio.get_running_loop().time()
        if conflicting is not None and not conflicting:
            self._is_verified = True
            return None
        if self._verifying_since is None:
            self._verifying_since = now
        waited = now - self._verifying_since
        if conflicting is None:
            if waited >= _WATCH_TIMEOUT:
                raise ClaimConflict("timed out waiting for the watch of ResourceClaims")
            return max(_VERIFIED_EVERY, waited / 4)
        if waited < _CONFLICT_TIMEOUT and not any(each.was_first for each in conflicting):
            return max(_VERIFIED_EVERY, waited / 4)
        self._conflict = conflicting[0]
        self._to_give_up = [*dict.fromkeys(each.claim for each in conflicting)]
        raise await self._given_up_for(self._conflict)

    async def _given_up_for(self, conflict: ConflictingClaim) -> ClaimConflict:
        """Gives up the pod's claims; until that is done the pod must not be bound."""
        while self._to_give_up:
            await self._resource_claims.give_up(*self._to_give_up[0], self._bind.pod)
            del self._to_give_up[0]
        return ClaimConflict(str(conflict))

    # The pod

    async def _post(self) -> WriteResult:
        pod = self._bind.pod
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if self._version:
            metadata["resourceVersion"] = self._version
        if self._bind.annotations:
            metadata["annotations"] = dict(self._bind.annotations)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"kind": "Node", "name": self._bind.node},
        }
        try:
            await self._api.write("POST", path_of(POD, pod.namespace, pod.name, "binding"), body)
        except ApiError as error:
            if may_be_carried_out(error):
                self._errors += 1
                self._unsure_until = asyncio.get_running_loop().time() + self._api.latest
            if error.is_transient and self._errors < _SERVER_ERRORS:
                raise
            self._is_transient = error.is_transient or is_conflict(error)
            return await self._refuse(error.message or str(error), is_conflict(error))
        except Unreachable as error:
            if may_be_carried_out(error):
                self._unsure_until = asyncio.get_running_loop().time() + self._api.latest
            raise
        self._feed(BindConfirmed(pod.uid))
        return None

    async def _refuse(self, why: str, was_conflict: bool = False) -> WriteResult:
        """Feeds the scheduler the pod's actual state; if it has no node, that the bind failed."""
        pod = self._bind.pod
        try:
            if self._unsure_claim is not None:
                await self._resource_claims.feed_current(self._unsure_claim.claim)
                self._unsure_claim = None
            found = decode_pod_json(await self._api.read(path_of(POD, pod.namespace, pod.name)))
        except ApiError as error:
            if error.status == 404:
                self._gone()
                return None
            if error.is_transient:
                return wait_after(error, self._backoff)
        except InvalidObject:
            pass  # it is obsolete; the reflector delivers the change
        except TRANSIENT as error:
            return wait_after(error, self._backoff)
        else:
            if found.metadata.uid != pod.uid:
                self._gone()
                return None
            if not found.spec.node_name and found.metadata.deletion_timestamp is None:
                if was_conflict and self._may_try_again(found):
                    return 0.0
                if (wait := await self._make_sure(why)) is not None:
                    return wait
            self._feed(Updated(found))
            if found.spec.node_name:
                return None
        self._feed(BindRefused(pod.uid, why, self._is_transient))
        return None

    def _may_try_again(self, found: Pod) -> bool:
        """Whether the conflict was with a change of the pod that does not matter here."""
        version = found.metadata.resource_version
        if not self._version or version == self._version or self._conflicts >= _CONFLICTS:
            return False
        self._conflicts += 1
        self._version = version
        return True

    async def _make_sure(self, why: str) -> float | None:
        """None if the server can no longer execute any of our binds; else when to look again."""
        left = self._unsure_until - asyncio.get_running_loop().time()
        if left <= 0:
            return None
        if not self._is_withdrawn:
            pod = self._bind.pod
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulerError",
                "message": why,
                "lastProbeTime": format_time(self._wall()),
            }
            status: dict[str, Any] = {"conditions": [condition]}
            if self._bind.keeps_place:
                status["nominatedNodeName"] = self._bind.node
            patch = {"metadata": {"uid": pod.uid}, "status": status}
            path = path_of(POD, pod.namespace, pod.name, "status")
            with suppress(*TRANSIENT):
                await self._api.write("PATCH", path, patch, STRATEGIC)
                self._is_withdrawn = True
        self._given_up = why
        return max(left, 0.1) if self._is_withdrawn else min(left, self._backoff.next())

    def _gone(self) -> None:
        pod = self._bind.pod
        meta = ObjectMeta(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        self._feed(Deleted(Pod(metadata=meta)))
