"""The resource claim controller: creates claims from templates, and releases those that are not used.

    pod with a template      a claim for each entry, owned by the pod; its name in the pod's status
    pod ended or deleted     the pod leaves `reservedFor`; without any entry left, the claim is
                             deallocated and loses its finalizer; a claim made for the pod is deleted
    pod bound by others      the pod is added to `reservedFor` of its allocated claims

A claim that is allocated but was never reserved keeps its allocation. Kubernetes leaves claims of
deleted pods to the garbage collector; here this controller deletes them, since a simulation may run
without one.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.api import names
from holdfast.api.errors import HoldfastError
from holdfast.api.raw_objects import Key, Raw
from holdfast.local.component import ENDED, ObjectWriter, Steps, has_ended
from holdfast.local.store.objects import POD, AlreadyExists, StoreChange, pod_key
from holdfast.local.stored_events import StoredEvents
from holdfast.machinery.status import StatusError
from holdfast.scheduler.cluster.claim_writes import consumer, without_finalizer
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

GROUP = names.RESOURCE_API.partition("/")[0]
CLAIM = (GROUP, "ResourceClaim")
TEMPLATE = (GROUP, "ResourceClaimTemplate")
SLICE = (GROUP, "ResourceSlice")
RULE = (GROUP, "DeviceTaintRule")
_NAMESPACE = ("", "Namespace")
_SOURCE = "resource_claim"
_LONGEST_NAME = 57
"""Of a generated name without its random end."""


def claim_key(namespace: str, name: str) -> Key:
    return Key(*CLAIM, namespace, name)


def has_claims(pod: Raw) -> bool:
    return bool(pod["spec"].get("resourceClaims")) or "extendedResourceClaimStatus" in pod["status"]


def claim_names(pod: Raw) -> Iterator[tuple[Raw, str | None, bool]]:
    """The entries of a pod's `resourceClaims` with the name of the claim, and whether it is known:
    one of a template is created later, or is not needed and then has no name."""
    made = {
        each["name"]: each.get("resourceClaimName")
        for each in pod["status"].get("resourceClaimStatuses") or ()
    }
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName")
        if name is not None:
            yield entry, name, True
        else:
            yield entry, made.get(entry["name"]), entry["name"] in made


def used_claims(pod: Raw) -> Iterator[tuple[str, bool]]:
    """The names of the claims of a pod, and whether each must be owned by it."""
    for entry, name, _ in claim_names(pod):
        if name is not None:
            yield name, entry.get("resourceClaimName") is None
    extended = pod["status"].get("extendedResourceClaimStatus")
    if extended is not None:
        yield extended.get("resourceClaimName", ""), True


def is_owned_by(claim: Raw, pod: Raw) -> bool:
    return bool(_owner_uid(claim) == pod["metadata"]["uid"])


def is_reserved_for(claim: Raw, pod: Raw) -> bool:
    consumers = (claim.get("status") or {}).get("reservedFor") or ()
    return any(each.get("uid") == pod["metadata"]["uid"] for each in consumers)


class ResourceClaimController:
    def __init__(self, objects: ObjectWriter, recorder: StoredEvents) -> None:
        self._objects = objects
        self._recorder = recorder
        self._pods: dict[Key, None] = {}
        self._claims: dict[Key, None] = {}
        self._left: dict[str, None] = {}
        """UIDs of deleted pods, whose claims are deleted."""
        self._users: dict[Key, dict[Key, None]] = {}
        """Pods by the claims and templates that they name."""
        self._named: dict[Key, tuple[Key, ...]] = {}
        """Claims and templates by the pod that names them."""
        self._owned: dict[str, dict[Key, None]] = {}
        """Generated claims by the UID of their pod."""
        self._failed: dict[str, dict[Key, None]] = {}
        """By namespace, pods for which a claim could not be created."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == POD:
            pod = after if after is not None else before
            assert pod is not None
            if has_claims(pod):
                self._pod_changed(key, pod, gone=after is None)
        elif key[:2] == CLAIM:
            self._claim_changed(key, before, after)
        elif key[:2] == TEMPLATE and after is not None:
            self._pods.update(self._users.get(key, {}))
        elif key[:2] == _NAMESPACE and key.name in self._failed:
            self._pods.update(self._failed.pop(key.name))

    def _pod_changed(self, key: Key, pod: Raw, *, gone: bool) -> None:
        self._index(key, () if gone else self._references(pod))
        if gone or _is_done(pod):
            for name, _ in used_claims(pod):
                self._claims[claim_key(key.namespace, name)] = None
        if gone:
            self._left[pod["metadata"]["uid"]] = None
            self._pods.pop(key, None)
        elif self._needs_work(key, pod):
            self._pods[key] = None

    def _references(self, pod: Raw) -> tuple[Key, ...]:
        namespace = pod["metadata"]["namespace"]
        claims = [claim_key(namespace, name) for name, _ in used_claims(pod)]
        templates = [
            Key(*TEMPLATE, namespace, entry["resourceClaimTemplateName"])
            for entry in pod["spec"].get("resourceClaims") or ()
            if entry.get("resourceClaimTemplateName") is not None
        ]
        return tuple(dict.fromkeys((*claims, *templates)))

    def _index(self, key: Key, references: tuple[Key, ...]) -> None:
        known = self._named.get(key, ())
        if known == references:
            return
        for each in known:
            users = self._users[each]
            users.pop(key, None)
            if not users:
                del self._users[each]
        for each in references:
            self._users.setdefault(each, {})[key] = None
        if references:
            self._named[key] = references
        else:
            del self._named[key]

    def _claim_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        owner = _owner_uid(after if after is not None else before)
        if after is not None:
            self._claims[key] = None
            if owner:
                self._owned.setdefault(owner, {})[key] = None
        elif owner:
            claims = self._owned.get(owner, {})
            claims.pop(key, None)
            if not claims:
                self._owned.pop(owner, None)
        for each in self._users.get(key, ()):
            pod = self._objects.get(each)
            if pod is not None and self._needs_work(each, pod):
                self._pods[each] = None

    def _needs_work(self, key: Key, pod: Raw) -> bool:
        """Whether a claim must be created, or reserved for a pod that another scheduler bound."""
        if pod["metadata"].get("deletionTimestamp") or _is_done(pod):
            return False
        for entry, name, known in claim_names(pod):
            if not known:
                return True
            claim = self._objects.get(claim_key(key.namespace, name)) if name is not None else None
            generated = entry.get("resourceClaimName") is None
            if claim is None:
                if generated and name is not None:
                    return True
            elif (not generated or is_owned_by(claim, pod)) and _must_be_reserved(claim, pod):
                return True
        return False

    def settle(self) -> Steps:
        while self._claims or self._pods or self._left:
            left, self._left = self._left, {}
            for uid in left:
                for key in [*self._owned.get(uid, ())]:
                    self._sync_claim(key)
                    self._objects.end(key)
                    yield None
            claims, self._claims = self._claims, {}
            for key in claims:
                self._sync_claim(key)
                yield None
            pods, self._pods = self._pods, {}
            for key in pods:
                self._sync_pod(key)
                yield None

    # Pods

    def _sync_pod(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        created: dict[str, str] = {}
        for entry, name, _ in claim_names(pod):
            template = entry.get("resourceClaimTemplateName")
            if template is None or self._exists(pod, name):
                continue
            try:
                created[entry["name"]] = self._created(pod, entry["name"], template)
            except ClaimNotCreated as error:
                self._failed.setdefault(key.namespace, {})[key] = None
                text = f"PodResourceClaim {entry['name']}: {error}"
                event = Emit(_reference(pod), "Warning", "FailedResourceClaimCreation", text)
                self._recorder.emit(event, _SOURCE)
                return
        if created:
            pod = self._objects.update(key, _with_claims(pod, created))
        if pod["spec"].get("nodeName"):
            self._reserve(pod)

    def _exists(self, pod: Raw, name: str | None) -> bool:
        """Whether the pod's status names a claim of the pod. One that was deleted is made again."""
        if name is None:
            return False
        claim = self._objects.get(claim_key(pod["metadata"]["namespace"], name))
        return claim is not None and is_owned_by(claim, pod)

    def _created(self, pod: Raw, entry: str, template: str) -> str:
        """The name of the pod's claim for an entry; one that an earlier attempt has made is used.
        Raises ClaimNotCreated."""
        metadata = pod["metadata"]
        for key in self._owned.get(metadata["uid"], ()):
            claim = self._objects.get(key)
            annotations = ((claim or {}).get("metadata") or {}).get("annotations") or {}
            if annotations.get(names.POD_CLAIM_NAME_ANNOTATION) == entry:
                return key.name
        found = self._objects.get(Key(*TEMPLATE, metadata["namespace"], template))
        if found is None:
            missing = f'resourceclaimtemplate.{GROUP} "{template}" not found'
            raise ClaimNotCreated(f'resource claim template "{template}": {missing}')
        try:
            made = self._objects.submit(_claim_of(pod, entry, found))
        except (StatusError, AlreadyExists) as error:
            raise ClaimNotCreated(f"create ResourceClaim : {error}") from None
        return str(made["metadata"]["name"])

    def _reserve(self, pod: Raw) -> None:
        metadata = pod["metadata"]
        for entry, name, _ in claim_names(pod):
            if name is None:
                continue
            key = claim_key(metadata["namespace"], name)
            claim = self._objects.get(key)
            generated = entry.get("resourceClaimName") is None
            if claim is None or (generated and not is_owned_by(claim, pod)):
                return
            if _must_be_reserved(claim, pod):
                status = claim["status"]
                reserved = [*(status.get("reservedFor") or ()), consumer(_reference(pod))]
                self._objects.update(key, {**claim, "status": {**status, "reservedFor": reserved}})

    # Claims

    def _sync_claim(self, key: Key) -> None:
        claim = self._objects.get(key)
        if claim is None:
            return
        status = claim.get("status") or {}
        consumers = status.get("reservedFor") or []
        left = [each for each in consumers if self._is_consumer(key.namespace, each)]
        protected = names.CLAIM_FINALIZER in (claim["metadata"].get("finalizers") or ())
        if len(left) < len(consumers):
            status = {name: value for name, value in status.items() if name != "reservedFor"}
            changed = {**claim, "status": {**status, "reservedFor": left} if left else status}
            if not left and protected:
                changed = _released(changed)
            claim = self._put(key, changed)
        elif protected and not left and claim["metadata"].get("deletionTimestamp"):
            claim = self._put(key, _released(claim))
        if not left and key in self._objects and self._is_unneeded(key.namespace, claim):
            self._objects.end(key)

    def _put(self, key: Key, claim: Raw) -> Raw:
        if has_ended(claim):
            self._objects.delete(key)
            return claim
        return self._objects.update(key, claim)

    def _is_consumer(self, namespace: str, consumer: Raw) -> bool:
        """Whether the claim stays reserved: for a pod that may run, or for an unknown kind."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        pod = self._objects.get(pod_key(namespace, consumer.get("name", "")))
        return pod is not None and pod["metadata"]["uid"] == consumer.get("uid") and not _is_done(pod)

    def _is_unneeded(self, namespace: str, claim: Raw) -> bool:
        """Whether it was made for a pod that ended, or was replaced by another of its name."""
        owner = _owner(claim)
        if owner is None:
            return False
        pod = self._objects.get(pod_key(namespace, owner.get("name", "")))
        return pod is not None and (pod["metadata"]["uid"] != owner.get("uid") or _is_done(pod))


class ClaimNotCreated(HoldfastError):
    """A claim could not be created from its template."""


def _reference(pod: Raw) -> ObjectRef:
    metadata = pod["metadata"]
    return ObjectRef("Pod", metadata["namespace"], metadata["name"], metadata["uid"])


def _is_done(pod: Raw) -> bool:
    """Whether no container runs or will run."""
    deleted = "deletionTimestamp" in pod["metadata"]
    return pod["status"].get("phase") in ENDED or (deleted and not pod["spec"].get("nodeName"))


def _must_be_reserved(claim: Raw, pod: Raw) -> bool:
    allocated = (claim.get("status") or {}).get("allocation") is not None
    return allocated and bool(pod["spec"].get("nodeName")) and not is_reserved_for(claim, pod)


def _owner(claim: Raw) -> Raw | None:
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("apiVersion") == "v1" and owner.get("kind") == "Pod":
            found: Raw = owner
            return found
    return None


def _owner_uid(claim: Raw | None) -> str:
    owner = _owner(claim) if claim is not None else None
    return str(owner.get("uid", "")) if owner is not None else ""


def _released(claim: Raw) -> Raw:
    """Without the allocation, what drivers reported about its devices, and the finalizer."""
    status = claim.get("status") or {}
    kept = {name: part for name, part in status.items() if name not in ("allocation", "devices")}
    claim = {**claim, "status": kept}
    return without_finalizer(claim) or claim


def _claim_of(pod: Raw, entry: str, template: Raw) -> Raw:
    metadata, spec = pod["metadata"], template["spec"]
    given = spec.get("metadata") or {}
    annotations = {
        **(given.get("annotations") or {}),
        names.POD_CLAIM_NAME_ANNOTATION: entry,
    }
    made = {
        "namespace": metadata["namespace"],
        "generateName": generated_name(metadata["name"], entry),
        "annotations": annotations,
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
                "controller": True,
            }
        ],
    }
    if given.get("labels"):
        made["labels"] = given["labels"]
    return {
        "apiVersion": names.RESOURCE_API,
        "kind": "ResourceClaim",
        "metadata": made,
        "spec": spec.get("spec") or {},
    }


def generated_name(pod: str, entry: str) -> str:
    """The beginning of a claim's name. If it is too long, both parts are cut in proportion."""
    name = f"{pod}-{entry}-"
    length = len(name)
    if length <= _LONGEST_NAME:
        return name
    return (
        f"{pod[: len(pod) * _LONGEST_NAME // length]}-{entry[: len(entry) * _LONGEST_NAME // length]}"
    )


def _with_claims(pod: Raw, created: dict[str, str]) -> Raw:
    status = pod["status"]
    known = {
        each["name"]: each["resourceClaimName"]
        for each in status.get("resourceClaimStatuses") or ()
        if each.get("resourceClaimName") is not None
    }
    statuses = [
        {"name": entry, "resourceClaimName": name}
        for entry, name in sorted({**known, **created}.items())
    ]
    return {**pod, "status": {**status, "resourceClaimStatuses": statuses}}
