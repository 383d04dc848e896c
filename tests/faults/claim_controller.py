"""What kube-controller-manager does about ResourceClaims, some time after each change.

Claims are created from the templates of pods; pods that ended or are gone are no consumers any more; a
claim that lost its last consumer is deallocated; claims whose owner is gone are deleted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from faults.model import CLAIMS, PODS, RESERVATIONS, TEMPLATES, Model, Raw

FINALIZER = "resource.kubernetes.io/delete-protection"
_KINDS = {"Pod": PODS, "Reservation": RESERVATIONS}
_ENDED = ("Succeeded", "Failed")


class ClaimController:
    def __init__(self, model: Model, later: Callable[..., None], rng: random.Random) -> None:
        """`later` calls a function after some seconds."""
        self._model = model
        self._later = later
        self._rng = rng

    def written(self, path: str, old: Raw | None, new: Raw | None) -> None:
        some = new or old
        assert some is not None
        name = some["metadata"]["name"]
        if path == PODS and some["spec"].get("resourceClaims"):
            self._soon(self._sync_pod, name)
            if new is None or _is_done(new):
                self._soon(self._sync_claims)
        elif path == CLAIMS or (path == RESERVATIONS and new is None):
            self._soon(self._sync_claims)

    def _soon(self, what: Callable[..., None], *args: Any) -> None:
        self._later(self._rng.choice((0.005, self._rng.uniform(0.01, 0.6))), what, *args)

    def _sync_pod(self, name: str) -> None:
        pod = self._model.find(PODS, name)
        if pod is None or pod["metadata"].get("deletionTimestamp") or _is_done(pod):
            return
        statuses = list(pod["status"].get("resourceClaimStatuses") or ())
        known = {each["name"] for each in statuses}
        for entry in pod["spec"]["resourceClaims"]:
            template = entry.get("resourceClaimTemplateName")
            if template is None or entry["name"] in known:
                continue
            found = self._model.find(TEMPLATES, template)
            if found is None:
                return
            claim = self._model.create(CLAIMS, _claim_of(pod, entry["name"], found))
            statuses.append({"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]})
        if len(statuses) != len(known):
            status = {**pod["status"], "resourceClaimStatuses": statuses}
            self._model.change(PODS, pod, status=status)

    def _sync_claims(self) -> None:
        for claim in self._model.all(CLAIMS):
            self._sync_claim(claim)

    def _sync_claim(self, claim: Raw) -> None:
        status = claim.get("status", {})
        consumers = status.get("reservedFor") or []
        left = [each for each in consumers if self._is_consumer(each)]
        is_protected = FINALIZER in (claim["metadata"].get("finalizers") or ())
        is_deleted = bool(claim["metadata"].get("deletionTimestamp"))
        if len(left) < len(consumers) or (is_deleted and not left and is_protected):
            rest = {key: value for key, value in status.items() if key != "reservedFor"}
            if left:
                rest["reservedFor"] = left
            else:
                rest.pop("allocation", None)
            meta = claim["metadata"]
            if not left:
                meta = {key: value for key, value in meta.items() if key != "finalizers"}
            if is_deleted and not left:
                self._model.remove(CLAIMS, claim)
                return
            self._model.change(CLAIMS, claim, metadata=meta, status=rest)
        owner = next(iter(claim["metadata"].get("ownerReferences") or ()), None)
        if owner is None or is_deleted or left:
            return
        namespace = "default" if owner["kind"] == "Pod" else ""
        found = self._model.find(_KINDS[owner["kind"]], owner["name"], namespace)
        is_gone = found is None or found["metadata"]["uid"] != owner["uid"]
        if is_gone or (owner["kind"] == "Pod" and found is not None and _is_done(found)):
            self._model.delete(CLAIMS, claim["metadata"]["name"])

    def _is_consumer(self, consumer: Raw) -> bool:
        pod = self._model.find(PODS, consumer["name"])
        return pod is not None and pod["metadata"]["uid"] == consumer["uid"] and not _is_done(pod)


def _is_done(pod: Raw) -> bool:
    is_deleted = pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName")
    return pod["status"].get("phase") in _ENDED or bool(is_deleted)


def _claim_of(pod: Raw, entry: str, template: Raw) -> Raw:
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{meta['name']}-{entry}-",
            "namespace": "default",
            "annotations": {"resource.kubernetes.io/pod-claim-name": entry},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": template["spec"]["spec"],
    }
