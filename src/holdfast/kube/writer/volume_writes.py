"""Writes volume bindings before a pod is bound, and waits until the claims are bound."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.api import names
from holdfast.api.decode import convert
from holdfast.api.errors import HoldfastError
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.kube.http.client import CLAIM, MERGE, VOLUME, path_of
from holdfast.kube.informers.reflector import is_older
from holdfast.kube.writer.write_queue import ApiWriter
from holdfast.scheduler.cluster.decisions import BindVolume, SelectNode

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


async def write(api: ApiWriter, decision: BindVolume | SelectNode) -> str:
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
    metadata: dict[str, Any] = {"resourceVersion": volume.metadata.resource_version}
    if ref is not None:
        if (ref.namespace, ref.name) != (claim.namespace, claim.name) or ref.uid not in ("", claim.uid):
            raise ClaimFailed(f'volume "{decision.volume.name}" is bound to another claim')
        if ref.uid == claim.uid:
            return
    else:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
    }
    await api.write("PATCH", path, {"metadata": metadata, "spec": {"claimRef": reference}}, MERGE)


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
    patch = {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "annotations": {names.SELECTED_NODE_ANNOTATION: decision.node},
        }
    }
    answer = await api.write("PATCH", path, patch, MERGE)
    return convert(msgspec.json.decode(answer), PersistentVolumeClaim).metadata.resource_version


Key = tuple[str, str]
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


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
        """Whether the claim is fully bound. `written` is the version our own write made: anything
        older says nothing. With `node`, a volume is being made for that node."""
        claim: PersistentVolumeClaim | None = self._known.get(key)
        if claim is None:
            raise ClaimFailed(f'persistentvolumeclaim "{key[1]}" not found')
        meta = claim.metadata
        if is_older(meta.resource_version, written):
            return False
        if node is not None and meta.annotations.get(names.SELECTED_NODE_ANNOTATION) != node:
            raise ClaimFailed(f'provisioning failed for PVC "{key[1]}"')
        return bool(claim.spec.volume_name) and BIND_COMPLETED in meta.annotations

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
