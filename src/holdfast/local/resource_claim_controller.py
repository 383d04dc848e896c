"""The resource claim controller: creates claims from templates, and releases those that are not used.

    pod with a template      a claim for each entry, owned by the pod; its name in the pod's status
    PodGroup with a template the same for the group; its members get the name in their status too
    pod ended or deleted,    it leaves `reservedFor`; without any entry left, the claim is deallocated
    PodGroup deleted         and loses its finalizer; a claim made for it is deleted
    pod bound by others      the pod, or its PodGroup, is added to `reservedFor` of its allocated claims

A pod that belongs to a PodGroup gets its claims when the group exists.

A claim that is allocated but was never reserved keeps its allocation. Kubernetes leaves claims of
deleted pods to the garbage collector; here this controller deletes them, since a simulation may run
without one.
"""

from __future__ import annotations

from holdfast.api import names
from holdfast.api.errors import HoldfastError
from holdfast.api.raw_objects import Key, Raw
from holdfast.local.claim_references import (
    CLAIM,
    GROUP,
    POD_GROUP,
    TEMPLATE,
    claim_key,
    claim_names,
    entries,
    group_key,
    has_claims,
    is_group,
    is_owned_by,
    is_reserved_for,
    is_shared,
    owner_key,
    owner_of,
    owner_reference,
    references,
    used_claims,
)
from holdfast.local.component import ENDED, ObjectWriter, Steps, has_ended
from holdfast.local.store.objects import POD, AlreadyExists, StoreChange, pod_key
from holdfast.local.stored_events import StoredEvents
from holdfast.machinery.status import StatusError
from holdfast.scheduler.cluster.claim_writes import consumer, without_finalizer
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

_NAMESPACE = ("", "Namespace")
_SOURCE = "resource_claim"
_LONGEST_NAME = 57
"""Of a generated name without its random end."""


class ResourceClaimController:
    def __init__(self, objects: ObjectWriter, recorder: StoredEvents) -> None:
        self._objects = objects
        self._recorder = recorder
        self._stale: dict[Key, None] = {}
        """Pods and PodGroups that may need a claim, or a reservation of one."""
        self._claims: dict[Key, None] = {}
        self._left: dict[str, None] = {}
        """UIDs of deleted pods and PodGroups, whose claims are deleted."""
        self._users: dict[Key, dict[Key, None]] = {}
        """Pods and PodGroups by the claims and templates that they name, and pods by their PodGroup."""
        self._named: dict[Key, tuple[Key, ...]] = {}
        """The reverse of it."""
        self._owned: dict[str, dict[Key, None]] = {}
        """Generated claims by the UID of their pod or PodGroup."""
        self._failed: dict[str, dict[Key, None]] = {}
        """By namespace, pods and PodGroups for which a claim could not be created."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == POD:
            pod = after if after is not None else before
            assert pod is not None
            if has_claims(pod):
                self._pod_changed(key, pod, gone=after is None)
        elif key[:2] == POD_GROUP:
            group = after if after is not None else before
            assert group is not None
            self._group_changed(key, group, gone=after is None)
        elif key[:2] == CLAIM:
            self._claim_changed(key, before, after)
        elif key[:2] == TEMPLATE and after is not None:
            self._stale.update(self._users.get(key, {}))
        elif key[:2] == _NAMESPACE and key.name in self._failed:
            self._stale.update(self._failed.pop(key.name))

    def _group_changed(self, key: Key, group: Raw, *, gone: bool) -> None:
        for member in self._users.get(key, ()):
            self._requeue(member)
        if not entries(group):
            return
        self._index(key, () if gone else references(group))
        if gone:
            self._left[group["metadata"]["uid"]] = None
            self._stale.pop(key, None)
            for name, _ in used_claims(group):
                self._claims[claim_key(key.namespace, name)] = None
        elif self._needs_work(key, group):
            self._stale[key] = None

    def _pod_changed(self, key: Key, pod: Raw, *, gone: bool) -> None:
        group = group_key(pod)
        named = references(pod) if group is None else (*references(pod), group)
        self._index(key, () if gone else named)
        if gone or _is_done(pod):
            for name, _ in used_claims(pod):
                self._claims[claim_key(key.namespace, name)] = None
        if gone:
            self._left[pod["metadata"]["uid"]] = None
            self._stale.pop(key, None)
        elif self._needs_work(key, pod):
            self._stale[key] = None

    def _requeue(self, key: Key) -> None:
        user = self._objects.get(key)
        if user is not None and self._needs_work(key, user):
            self._stale[key] = None

    def _index(self, key: Key, named: tuple[Key, ...]) -> None:
        known = self._named.get(key, ())
        if known == named:
            return
        for each in known:
            users = self._users[each]
            users.pop(key, None)
            if not users:
                del self._users[each]
        for each in named:
            self._users.setdefault(each, {})[key] = None
        if named:
            self._named[key] = named
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
            self._requeue(each)

    def _needs_work(self, key: Key, user: Raw) -> bool:
        """Whether a claim must be created for a pod or PodGroup, or reserved for a pod that another
        scheduler bound."""
        is_pod = key[:2] == POD
        if user["metadata"].get("deletionTimestamp") or (is_pod and _is_done(user)):
            return False
        for entry, name, known in claim_names(user):
            if not known:
                return True
            claim = self._objects.get(claim_key(key.namespace, name)) if name is not None else None
            generated = entry.get("resourceClaimName") is None
            if claim is None:
                if generated and name is not None:
                    return True
            elif not is_pod or (generated and not is_owned_by(claim, user)):
                continue
            elif _must_be_reserved(claim, user):
                return True
        return False

    def settle(self) -> Steps:
        while self._claims or self._stale or self._left:
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
            stale, self._stale = self._stale, {}
            for key in stale:
                if key[:2] == POD:
                    self._sync_pod(key)
                else:
                    self._sync_group(key)
                yield None

    # Pods and PodGroups

    def _sync_pod(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        belongs_to = group_key(pod)
        group = self._objects.get(belongs_to) if belongs_to is not None else None
        if belongs_to is not None and group is None:
            return  # tried again when the group exists
        created: dict[str, str] = {}
        for entry, name, _ in claim_names(pod):
            if entry.get("resourceClaimTemplateName") is None or self._exists(pod, name):
                continue
            if group is not None and is_shared(entry, group):
                made = self._made_for(group, entry["name"])
                if made:
                    created[entry["name"]] = made
            elif not self._create(key, pod, entry, created):
                return
        if created:
            pod = self._objects.update(key, _with_claims(pod, created))
        if pod["spec"].get("nodeName"):
            self._reserve(pod, group)

    def _sync_group(self, key: Key) -> None:
        group = self._objects.get(key)
        if group is None or group["metadata"].get("deletionTimestamp"):
            return
        created: dict[str, str] = {}
        for entry, name, _ in claim_names(group):
            claim = self._objects.get(claim_key(key.namespace, name)) if name is not None else None
            owner = owner_of(claim)
            exists = owner is not None and owner.get("uid") == group["metadata"]["uid"]
            if entry.get("resourceClaimTemplateName") is None or exists:
                continue
            if not self._create(key, group, entry, created):
                return
        if created:
            self._objects.update(key, _with_claims(group, created))

    def _exists(self, pod: Raw, name: str | None) -> bool:
        """Whether the pod's status names a claim of the pod. One that was deleted is made again."""
        if name is None:
            return False
        claim = self._objects.get(claim_key(pod["metadata"]["namespace"], name))
        return claim is not None and is_owned_by(claim, pod)

    def _create(self, key: Key, user: Raw, entry: Raw, created: dict[str, str]) -> bool:
        """Adds the claim of an entry of a pod or PodGroup to those created; False if it cannot be."""
        try:
            created[entry["name"]] = self._created(key, user, entry)
        except ClaimNotCreated as error:
            self._failed.setdefault(key.namespace, {})[key] = None
            text = f"{key.kind}ResourceClaim {entry['name']}: {error}"
            event = Emit(_reference(key, user), "Warning", "FailedResourceClaimCreation", text)
            self._recorder.emit(event, _SOURCE)
            return False
        return True

    def _created(self, key: Key, user: Raw, entry: Raw) -> str:
        """The name of the claim for an entry; one that an earlier attempt has made is used. Raises
        ClaimNotCreated."""
        template = entry["resourceClaimTemplateName"]
        if made := self._made_for(user, entry["name"]):
            return made
        found = self._objects.get(Key(*TEMPLATE, key.namespace, template))
        if found is None:
            missing = f'resourceclaimtemplate.{GROUP} "{template}" not found'
            raise ClaimNotCreated(f'resource claim template "{template}": {missing}')
        owner = owner_reference(key[:2], user)
        try:
            claim = self._objects.submit(_claim_of(key, owner, entry["name"], found))
        except (StatusError, AlreadyExists) as error:
            raise ClaimNotCreated(f"create ResourceClaim : {error}") from None
        return str(claim["metadata"]["name"])

    def _made_for(self, user: Raw, entry: str) -> str:
        """The claim that was created for an entry of a pod or PodGroup; empty if there is none."""
        for key in self._owned.get(user["metadata"]["uid"], ()):
            claim = self._objects.get(key)
            annotations = ((claim or {}).get("metadata") or {}).get("annotations") or {}
            if annotations.get(names.POD_CLAIM_NAME_ANNOTATION) == entry:
                return key.name
        return ""

    def _reserve(self, pod: Raw, group: Raw | None) -> None:
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
                user = _reference(pod_key(*key[2:]), pod)
                if group is not None and is_shared(entry, group):
                    user = _reference(Key(*POD_GROUP, *key[2:]), group)
                reserved = [*(status.get("reservedFor") or ()), consumer(user)]
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
        """Whether the claim stays reserved: for a pod that may run, for a PodGroup that exists, or for
        an unknown kind."""
        if is_group(consumer):
            group = self._objects.get(Key(*POD_GROUP, namespace, consumer.get("name", "")))
            return group is not None and group["metadata"]["uid"] == consumer.get("uid")
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        pod = self._objects.get(pod_key(namespace, consumer.get("name", "")))
        return pod is not None and pod["metadata"]["uid"] == consumer.get("uid") and not _is_done(pod)

    def _is_unneeded(self, namespace: str, claim: Raw) -> bool:
        """Whether it was made for a pod that ended, or was replaced by another of its name."""
        owner = owner_of(claim)
        key = owner_key(namespace, owner) if owner is not None else None
        if owner is None or key is None or key[:2] != POD:
            return False
        pod = self._objects.get(key)
        return pod is not None and (pod["metadata"]["uid"] != owner.get("uid") or _is_done(pod))


class ClaimNotCreated(HoldfastError):
    """A claim could not be created from its template."""


def _reference(key: Key, user: Raw) -> ObjectRef:
    """A reference to a pod or PodGroup."""
    metadata = user["metadata"]
    version = names.WORKLOAD_API if key[:2] == POD_GROUP else ""
    return ObjectRef(key.kind, metadata["namespace"], metadata["name"], metadata["uid"], version)


def _is_done(pod: Raw) -> bool:
    """Whether no container runs or will run."""
    deleted = "deletionTimestamp" in pod["metadata"]
    return pod["status"].get("phase") in ENDED or (deleted and not pod["spec"].get("nodeName"))


def _must_be_reserved(claim: Raw, pod: Raw) -> bool:
    allocated = (claim.get("status") or {}).get("allocation") is not None
    return allocated and bool(pod["spec"].get("nodeName")) and not is_reserved_for(claim, pod)


def _owner_uid(claim: Raw | None) -> str:
    owner = owner_of(claim)
    return str(owner.get("uid", "")) if owner is not None else ""


def _released(claim: Raw) -> Raw:
    """Without the allocation, what drivers reported about its devices, and the finalizer."""
    status = claim.get("status") or {}
    kept = {name: part for name, part in status.items() if name not in ("allocation", "devices")}
    claim = {**claim, "status": kept}
    return without_finalizer(claim) or claim


def _claim_of(key: Key, owner: Raw, entry: str, template: Raw) -> Raw:
    spec = template["spec"]
    given = spec.get("metadata") or {}
    annotations = {
        **(given.get("annotations") or {}),
        names.POD_CLAIM_NAME_ANNOTATION: entry,
    }
    made = {
        "namespace": key.namespace,
        "generateName": generated_name(key.name, entry),
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    if given.get("labels"):
        made["labels"] = given["labels"]
    return {
        "apiVersion": names.RESOURCE_API,
        "kind": "ResourceClaim",
        "metadata": made,
        "spec": spec.get("spec") or {},
    }


def generated_name(user: str, entry: str) -> str:
    """The beginning of a claim's name. If it is too long, both parts are cut in proportion."""
    name = f"{user}-{entry}-"
    length = len(name)
    if length <= _LONGEST_NAME:
        return name
    parts = (part[: len(part) * _LONGEST_NAME // length] for part in (user, entry))
    return "-".join(parts)


def _with_claims(user: Raw, created: dict[str, str]) -> Raw:
    status = user.get("status") or {}
    known = {
        each["name"]: each["resourceClaimName"]
        for each in status.get("resourceClaimStatuses") or ()
        if each.get("resourceClaimName") is not None
    }
    statuses = [
        {"name": entry, "resourceClaimName": name}
        for entry, name in sorted({**known, **created}.items())
    ]
    return {**user, "status": {**status, "resourceClaimStatuses": statuses}}
