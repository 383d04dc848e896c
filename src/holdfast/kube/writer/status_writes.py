"""Writes the status of reservations and PodMigrationJobs to the newest version of them that is known.

A write whose answer was lost may be carried out late. It must not undo a later one: a reservation that
has failed because its node is gone would be Available again. So each write is for one version, and the
server refuses it once there is another. If that is a change of somebody else, the object is read, and
the status is written to the version that was read; but an object that has ended stays so.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from holdfast.api.kinds import KindInfo
from holdfast.api.meta import ObjectMeta
from holdfast.kube.client import JSON_PATCH, MERGE, path_of
from holdfast.kube.errors import ApiError
from holdfast.kube.reflector import is_older
from holdfast.kube.writer.write_queue import ApiWriter, version_of
from holdfast.scheduler.cluster.decisions import ObjectRef

_CONFLICTS = (409, 422)
"""It is not the version that the write is for, or not the same object."""
_MOST_CONFLICTS = 10


class StatusWriter:
    """`version` returns the version of an object that the watch has delivered, or nothing."""

    def __init__(self, api: ApiWriter, version: Callable[[ObjectRef], str]) -> None:
        self._api = api
        self._seen_version = version
        self._versions: dict[str, str] = {}
        """By uid, versions that answers to our writes and reads had, until the watch delivers them."""

    def seen(self, meta: ObjectMeta) -> None:
        """The watch delivered the object."""
        if not is_older(meta.resource_version, self._versions.get(meta.uid, "")):
            self._versions.pop(meta.uid, None)

    def gone(self, uid: str) -> None:
        """The watch delivered that it is deleted."""
        self._versions.pop(uid, None)

    def answered(self, ref: ObjectRef, answer: bytes) -> str:
        """Takes note of the version that the answer to a write has, and returns it."""
        version = self._versions[ref.uid] = version_of(answer)
        return version

    async def write(
        self,
        info: KindInfo,
        ref: ObjectRef,
        status: dict[str, Any],
        final: Collection[str],
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Writes the status as a whole, and before it changes of the metadata. An object in a `final`
        phase does not get another phase. Raises the errors of `ApiWriter`."""
        path = path_of(info, ref.namespace, ref.name)
        for attempt in range(_MOST_CONFLICTS):
            version = self._version(ref)
            try:
                if metadata:
                    body = {"metadata": {**_expected(ref, version), **metadata}}
                    answer = await self._api.write("PATCH", path, body, MERGE)
                    version = self.answered(ref, answer)
                patch = _patch(ref, version, status)
                answer = await self._api.write("PATCH", f"{path}/status", patch, JSON_PATCH)
                self.answered(ref, answer)
                return
            except ApiError as error:
                if not version or error.status not in _CONFLICTS or attempt == _MOST_CONFLICTS - 1:
                    raise
                if await self._is_written(info, ref, status, final, version, error):
                    return

    async def _is_written(
        self,
        info: KindInfo,
        ref: ObjectRef,
        status: dict[str, Any],
        final: Collection[str],
        version: str,
        error: ApiError,
    ) -> bool:
        """Reads an object that has another version. Returns whether it has the status: an earlier
        attempt was carried out. Raises the error if the version was not the reason for it, or an error
        that says so if the object has ended."""
        found = msgspec.json.decode(await self._api.read(path_of(info, ref.namespace, ref.name)))
        meta, known = found["metadata"], found.get("status") or {}
        if meta["uid"] != ref.uid or meta["resourceVersion"] == version:
            raise error
        self._versions[ref.uid] = meta["resourceVersion"]
        if known == status:
            return True
        phase = known.get("phase", "")
        if phase in final and status.get("phase") not in final:
            message = f'{info.plural} "{ref.name}" has ended: {phase}'
            raise ApiError(409, "Conflict", message) from error
        return False

    def _version(self, ref: ObjectRef) -> str:
        """The newest version that is known; empty if none is."""
        seen, answered = self._seen_version(ref), self._versions.get(ref.uid, "")
        return answered if answered and not is_older(answered, seen) else seen


def _expected(ref: ObjectRef, version: str) -> dict[str, str]:
    return {"uid": ref.uid} | ({"resourceVersion": version} if version else {})


def _patch(ref: ObjectRef, version: str, status: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the object with this uid and, if it is known, in this version."""
    tests = [
        {"op": "test", "path": f"/metadata/{name}", "value": value}
        for name, value in _expected(ref, version).items()
    ]
    return [*tests, {"op": "add", "path": "/status", "value": status}]
