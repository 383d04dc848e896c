"""Writes about ResourceClaims: allocations, reservations for pods, and claims the scheduler creates.

    finalizer written ─► allocation and reservation written in one status patch ─► (the pod is bound)
            │                         │
            └──────────┬──────────────┘ conflict: read the claim, look again whether it can be written
                       ▼
        deleted, or allocated elsewhere meanwhile: ClaimConflict, and the bind is refused

Each patch carries the resource version it was made for, so that no concurrent change is overwritten.
The first attempt starts from the claim in the scheduler's cache. What the server answers is fed to the
scheduler at once: a device must count as used by the claim from then on, whatever becomes of the pod.
"""

import asyncio
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS
from holdfast.api.names import CLAIM_FINALIZER, RESOURCE_API
from holdfast.api.resource_claims import ResourceClaim
from holdfast.api.times import format_time
from holdfast.kube.client import MERGE, POD, STRATEGIC, path_of
from holdfast.kube.errors import ApiError
from holdfast.kube.protobuf import PROTOBUF, with_protobuf_finalizer
from holdfast.kube.writer.write_queue import (
    ApiWriter,
    Lane,
    WriteQueue,
    is_conflict,
    persistent,
    version_of,
)
from holdfast.scheduler.cluster.claim_writes import (
    ClaimConflict,
    allocated_claim,
    as_json,
    deallocated_claim,
    held_claims,
    holder_metadata,
    new_claim,
    reserved_claim,
    with_finalizer,
    without_finalizer,
)
from holdfast.scheduler.cluster.decisions import (
    CreateClaim,
    CreateHolder,
    DeallocateClaim,
    DeleteClaim,
    HoldDevices,
    ObjectRef,
    ReserveClaim,
    UnreserveClaim,
    extended_resource_claim_status,
)
from holdfast.scheduler.cluster.events import Event, Updated, write_refused

RESOURCE_CLAIM = KINDS[RESOURCE_API, "ResourceClaim"]

_GONE_OR_RECREATED = (404, 409, 422)
_NOT_FOUND = 404
_INVALID = 422
_MOST_CONSUMERS = 256
"""That a claim can have."""


Raw = dict[str, Any]
Known = Mapping[tuple[str, str], Any]
"""The claims in the scheduler's cache, by namespace and name."""


class _ClaimLine:
    """The pods that wait until a claim is reserved for them. One after the other writes it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.waiting: list[ReserveClaim] = []
        self.latest: Raw | None = None
        """The version that was written last, if nothing went wrong since."""

    def has(self, decision: ReserveClaim) -> bool:
        return any(each is decision for each in self.waiting)

    def remove(self, decisions: list[ReserveClaim]) -> None:
        gone = {id(each) for each in decisions}
        self.waiting = [each for each in self.waiting if id(each) not in gone]


class ResourceClaimWriter:
    """Writes the ResourceClaims of binds, and those that are written by themselves."""

    def __init__(
        self,
        api: ApiWriter,
        queue: WriteQueue,
        feed: Callable[[Event], None],
        known: Known,
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._queue = queue
        self._feed = feed
        self._known = known
        self._wall = wall
        self._created: dict[int, Raw] = {}
        """Claims that were created and not allocated yet, by the id of their decision."""
        self._lines: dict[str, _ClaimLine] = {}
        """By the uid of a claim that is being reserved."""
        self._holds: dict[tuple[str, str], HoldDevices | CreateHolder] = {}
        """By the name of a claim with which a reservation holds devices, what was decided last."""
        self._hold_locks: dict[tuple[str, str], asyncio.Lock] = {}

    # Of a bind

    def holds(self, decision: HoldDevices | CreateHolder) -> None:
        """To be called for each decision, in order, before it is carried out."""
        claim = decision.claim
        about = claim.metadata if isinstance(claim, ResourceClaim) else claim
        self._holds[about.namespace, about.name] = decision

    async def write(self, decision: ReserveClaim | CreateClaim | HoldDevices, again: bool) -> str:
        """Writes a claim before its pod is bound. With `again` the claim is read first. Returns the
        resource version of the pod if that was written too; else "". Raises ClaimConflict if the claim
        has changed since the decision, and the errors of `ApiWriter`."""
        if isinstance(decision, CreateClaim):
            return await self._create(decision)
        if isinstance(decision, ReserveClaim):
            await self._reserve(decision, again)
        else:
            await self._hold(decision)
        return ""

    async def _hold(self, decision: HoldDevices) -> None:
        """Writes what was decided last about the claim: owners that are bound at the same time each
        take some of its devices, in any order, and none may put back what another one takes."""
        ref = decision.claim
        key = ref.namespace, ref.name
        async with self._hold_locks.setdefault(key, asyncio.Lock()):
            claim = await self._read(ref)
            if claim["metadata"]["uid"] == ref.uid:
                await self._allocate_holder(claim, self._holds.get(key, decision))

    async def _allocate_holder(self, claim: Raw, decision: HoldDevices | CreateHolder) -> None:
        """Writes the devices that a reservation holds to its claim."""
        for version in held_claims(claim, decision, format_time(self._wall())):
            allocation = version["status"].get("allocation")
            status = {"allocation": allocation} if allocation else {"allocation": None, "devices": None}
            claim = await self._patch(claim, {"status": status}, "status")
            self._saw(claim)

    async def give_up(self, namespace: str, name: str, pod: ObjectRef) -> None:
        """Deallocates a claim of a pod that is not bound, unless others use it."""
        try:
            claim = await self._read(ObjectRef("ResourceClaim", namespace, name, ""))
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return
            raise
        ref = ObjectRef("ResourceClaim", namespace, name, claim["metadata"]["uid"])
        with suppress(ClaimConflict):
            if deallocated_claim(claim, DeallocateClaim(ref, pod)) is not None:
                cleared = {"allocation": None, "reservedFor": None, "devices": None}
                self._saw(await self._patch(claim, {"status": cleared}, "status"))

    async def feed_current(self, ref: ObjectRef) -> None:
        """Feeds the scheduler the claim as it is, after a write that may have arrived."""
        try:
            self._saw(await self._read(ref))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise

    async def _reserve(self, decision: ReserveClaim, again: bool) -> None:
        uid = decision.claim.uid
        line = self._lines.setdefault(uid, _ClaimLine())
        line.users += 1
        line.waiting.append(decision)
        try:
            async with line.lock:
                if line.has(decision):  # else it was written along with another
                    await self._reserve_in_line(line, decision, again)
        finally:
            line.users -= 1
            line.remove([decision])
            if not line.users:
                del self._lines[uid]

    async def _reserve_in_line(self, line: "_ClaimLine", decision: ReserveClaim, again: bool) -> None:
        """Reserves a claim for a pod, and for the others that wait to reserve it: pods that share a
        claim are often decided together, and each write of its own would be a conflict for the rest."""
        ref = decision.claim
        known, line.latest = line.latest, None
        claim = await self._read(ref) if again else known or self._cached(ref)
        now = format_time(self._wall())
        reserved = reserved_claim(claim, decision, now)
        if reserved is None or claim is None:
            if again and claim is not None:
                self._saw(claim)  # an earlier write arrived, and its answer did not
            return
        if decision.allocation is not None and (protected := with_finalizer(claim)) is not None:
            finalizers = {"finalizers": protected["metadata"]["finalizers"]}
            try:
                claim = await self._patch(claim, {"metadata": finalizers})
            except ApiError as error:
                if error.status != _INVALID:
                    raise
                claim = await self._protect(ref)
                reserved = reserved_claim(claim, decision, now)
                if reserved is None:
                    return
        along = [decision]
        for other in line.waiting:
            if len(reserved["status"]["reservedFor"]) >= _MOST_CONSUMERS:
                break
            with suppress(ClaimConflict):  # it finds out for itself
                reserved = reserved_claim(reserved, other, now) or reserved
                along.append(other)
        status = reserved["status"]
        written = {name: status[name] for name in ("allocation", "reservedFor")}
        line.latest = await self._patch(claim, {"status": written}, "status")
        line.remove(along)
        self._saw(line.latest)

    async def write_holder(self, decision: CreateHolder) -> None:
        """Creates the claim with which a reservation holds devices, or brings the existing one in line.
        Raises ClaimConflict if that cannot be, and the errors of `ApiWriter`."""
        meta = decision.claim.metadata
        async with self._hold_locks.setdefault((meta.namespace, meta.name), asyncio.Lock()):
            await self._write_holder(decision)

    async def _write_holder(self, decision: CreateHolder) -> None:
        raw = new_claim(decision)
        meta = raw["metadata"]
        try:
            claim = await self._read(ObjectRef("ResourceClaim", meta["namespace"], meta["name"], ""))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            path = path_of(RESOURCE_CLAIM, meta["namespace"])
            claim = msgspec.json.decode(await self._api.write("POST", path, raw))
        if (changed := holder_metadata(claim, decision)) is not None:
            fields = ("annotations", "finalizers")
            patch = {name: changed["metadata"][name] for name in fields}
            claim = await self._patch(claim, {"metadata": patch})
        self._saw(claim)
        latest = self._holds.get((meta["namespace"], meta["name"]), decision)
        await self._allocate_holder(claim, latest)

    async def _protect(self, ref: ObjectRef) -> Raw:
        """Adds the finalizer without a patch; returns the new version.

        The server keeps the parameters that a claim has for drivers byte by byte. A patch compacts
        them: if they were not compact, the server takes that for a change of the spec, which it
        refuses. In binary form they stay as they are.
        """
        path = path_of(RESOURCE_CLAIM, ref.namespace, ref.name)
        content = await self._api.read(path, PROTOBUF)
        if CLAIM_FINALIZER.encode() in content:
            return await self._read(ref)
        content = with_protobuf_finalizer(content, CLAIM_FINALIZER)
        claim: Raw = msgspec.json.decode(await self._api.write("PUT", path, content, PROTOBUF))
        return claim

    async def _create(self, decision: CreateClaim) -> str:
        """Creates a claim for a pod and names it in the pod's status; returns the pod's version."""
        pod = decision.pod
        claim = self._created.get(id(decision))
        if claim is not None:  # somebody else may have written it meanwhile
            meta = claim["metadata"]
            ref = ObjectRef("ResourceClaim", meta["namespace"], meta["name"], meta["uid"])
            claim = await self._read(ref)
        else:
            raw = new_claim(decision)
            path = path_of(RESOURCE_CLAIM, raw["metadata"]["namespace"])
            claim = msgspec.json.decode(await self._api.write("POST", path, raw))
            self._created[id(decision)] = claim
        if not (claim.get("status") or {}).get("allocation"):
            status = allocated_claim(claim, decision, format_time(self._wall()))["status"]
            claim = self._created[id(decision)] = await self._patch(claim, {"status": status}, "status")
            self._saw(claim)
        status = extended_resource_claim_status(claim["metadata"]["name"], decision)
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        path = path_of(POD, pod.namespace, pod.name, "status")
        answer = await self._api.write("PATCH", path, patch, STRATEGIC)
        del self._created[id(decision)]
        return version_of(answer)

    # By themselves

    def reserve(self, decision: ReserveClaim) -> None:
        """Reserves a claim for a pod that is bound later, when its devices are ready."""
        again = False

        async def send() -> None:
            nonlocal again
            first, again = again, True
            for last in (False, False, True):
                try:
                    await self.write(decision, first)
                    return
                except ApiError as error:
                    if last or not is_conflict(error):
                        raise
                    first = True
                except ClaimConflict as error:
                    self._feed(write_refused(decision, str(error)))
                    return

        self._submit(decision.pod.uid, send, decision)

    def create_holder(self, decision: CreateHolder) -> None:
        """Creates a claim with which a reservation holds devices, apart from a bind."""

        async def send() -> None:
            try:
                await self.write_holder(decision)
            except ClaimConflict as error:
                self._feed(write_refused(decision, str(error)))

        self._submit(decision.reservation.uid, send, decision)

    def hold(self, decision: HoldDevices) -> None:
        """Writes the devices that a reservation holds, apart from a bind."""

        async def send() -> None:
            await self._hold(decision)

        self._submit(decision.claim.uid, send, decision, settled=(_NOT_FOUND,))

    def unreserve(self, decision: UnreserveClaim) -> None:
        ref = decision.claim
        # Other consumers are not read, and not overwritten.
        patch = {
            "metadata": {"uid": ref.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": decision.pod.uid}]},
        }

        async def send() -> None:
            path = path_of(RESOURCE_CLAIM, ref.namespace, ref.name, "status")
            self._saw(msgspec.json.decode(await self._api.write("PATCH", path, patch, STRATEGIC)))

        # In order with the binds of the pod: the next one may reserve the claim again.
        write = persistent(self._api, send, lambda _: None, settled=_GONE_OR_RECREATED)
        self._queue.submit(Lane.BIND, decision.pod.uid, write)

    def deallocate(self, decision: DeallocateClaim) -> None:
        async def send() -> None:
            claim = await self._read(decision.claim)
            try:
                if deallocated_claim(claim, decision) is None:
                    return
            except ClaimConflict as error:
                self._feed(write_refused(decision, str(error)))
                return
            cleared = {"allocation": None, "reservedFor": None, "devices": None}
            self._saw(await self._patch(claim, {"status": cleared}, "status"))

        self._submit(decision.pod.uid, send, decision)

    def delete(self, decision: DeleteClaim) -> None:
        ref = decision.claim

        async def send() -> None:
            claim = await self._read(ref)
            if claim["metadata"]["uid"] != ref.uid:
                return
            if (unprotected := without_finalizer(claim)) is not None:
                finalizers = unprotected["metadata"].get("finalizers")
                claim = await self._patch(claim, {"metadata": {"finalizers": finalizers}})
            path = path_of(RESOURCE_CLAIM, ref.namespace, ref.name)
            await self._api.write("DELETE", path, {"preconditions": {"uid": ref.uid}})

        self._holds.pop((ref.namespace, ref.name), None)
        self._hold_locks.pop((ref.namespace, ref.name), None)
        # In order with the bind of the reservation, which may create a claim of this name.
        self._submit(decision.reservation or ref.uid, send, decision, settled=(_NOT_FOUND,))

    def _submit(
        self,
        key: str,
        send: Callable[[], Any],
        decision: ReserveClaim | DeallocateClaim | CreateHolder | HoldDevices | DeleteClaim,
        settled: Container[int] = (),
    ) -> None:
        def refused(error: Exception) -> None:
            self._feed(write_refused(decision, str(error)))

        self._queue.submit(Lane.BIND, key, persistent(self._api, send, refused, settled))

    # Objects

    def _cached(self, ref: ObjectRef) -> Raw | None:
        known: ResourceClaim | None = self._known.get((ref.namespace, ref.name))
        return None if known is None else as_json(known)

    async def _read(self, ref: ObjectRef) -> Raw:
        path = path_of(RESOURCE_CLAIM, ref.namespace, ref.name)
        claim: Raw = msgspec.json.decode(await self._api.read(path))
        return claim

    async def _patch(self, claim: Raw, patch: Raw, subresource: str = "") -> Raw:
        """Patches the claim unless it has changed; returns the new version."""
        meta = claim["metadata"]
        version = {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]}
        patch = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
        path = path_of(RESOURCE_CLAIM, meta["namespace"], meta["name"], subresource)
        answer: Raw = msgspec.json.decode(await self._api.write("PATCH", path, patch, MERGE))
        return answer

    def _saw(self, claim: Raw) -> None:
        named = {**claim, "apiVersion": RESOURCE_CLAIM.api_version, "kind": RESOURCE_CLAIM.kind}
        with suppress(InvalidObject):  # the reflector reports it
            self._feed(Updated(convert(named, ResourceClaim)))
