"""What must be written about volumes before their pod can be bound."""

from typing import Any

import msgspec

from holdfast.api import names
from holdfast.api.decode import convert
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.backends.kubernetes.http.client import MERGE
from holdfast.backends.kubernetes.http.paths import CLAIM, VOLUME, path_of
from holdfast.backends.kubernetes.writing.claims import ClaimFailed
from holdfast.backends.kubernetes.writing.sender import Sender
from holdfast.core.decisions import BindVolume, SelectNode

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


async def write(sender: Sender, decision: BindVolume | SelectNode) -> str:
    """Carries the decision out; the version of the claim after that, if it was written.

    Raises ClaimFailed where things are not as they were when this was decided, and what `Sender` does.
    The object's version goes along, so nothing that changed meanwhile is overwritten.
    """
    if isinstance(decision, BindVolume):
        await _bind_volume(sender, decision)
        return ""
    return await _select_node(sender, decision)


async def _bind_volume(sender: Sender, decision: BindVolume) -> None:
    path = path_of(VOLUME, "", decision.volume.name)
    volume = convert(msgspec.json.decode(await sender.read(path)), PersistentVolume)
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
    await sender.write("PATCH", path, {"metadata": metadata, "spec": {"claimRef": reference}}, MERGE)


async def _select_node(sender: Sender, decision: SelectNode) -> str:
    path = path_of(CLAIM, decision.claim.namespace, decision.claim.name)
    claim = convert(msgspec.json.decode(await sender.read(path)), PersistentVolumeClaim)
    meta = claim.metadata
    if decision.claim.uid and meta.uid != decision.claim.uid:
        raise ClaimFailed(f'persistentvolumeclaim "{decision.claim.name}" is another one by now')
    selected = meta.annotations.get(names.SELECTED_NODE_ANNOTATION)
    if selected == decision.node:
        return meta.resource_version
    if selected:
        raise ClaimFailed(f'persistentvolumeclaim "{meta.name}" has its volume made for another node')
    patch = {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "annotations": {names.SELECTED_NODE_ANNOTATION: decision.node},
        }
    }
    answer = await sender.write("PATCH", path, patch, MERGE)
    return convert(msgspec.json.decode(answer), PersistentVolumeClaim).metadata.resource_version
