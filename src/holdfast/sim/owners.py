"""Owner references of a scenario's objects.

A reference may say no uid, and an owner may have none yet: the two are then matched by name. Where both
have one and they differ, the reference is to another object of that name.
"""

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from holdfast.api import names
from holdfast.api.kinds import NO_KINDS, Kinds, is_cluster_scoped
from holdfast.backends.embedded.objects import key_of
from holdfast.sim.happenings import Apply, Create, Happening
from holdfast.sim.skipped_kinds import counted
from holdfast.sim.workloads import makes_pods
from holdfast.store.objects import Key, Raw

_UIDS = uuid.UUID("5a0c5a2e-6f0b-5d6c-9d5e-4d3c1f0b7a21")
_OWNERS = (
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("batch.volcano.sh", "Job"),
)
"""Kinds that have pods in a cluster."""


def with_owner_uids(happenings: Sequence[Happening], declared: Kinds = NO_KINDS) -> list[Happening]:
    """With the uids that references and owners lack."""
    created = [h.action.raw for h in happenings if isinstance(h.action, Create | Apply)]
    uids = {
        key_of(raw, declared): str(raw["metadata"].get("uid") or "") for raw in created if _name(raw)
    }
    lacking = {key for key, uid in uids.items() if not uid}
    given: dict[Key, str] = {}
    for happening in happenings:
        for key, reference in _references(happening):
            if key in lacking:
                known = given.get(key, "")
                given[key] = known or reference.get("uid") or ""
    for key, uid in given.items():
        uids[key] = uid or str(uuid.uuid5(_UIDS, str(key)))
    return [_completed(happening, uids, declared) for happening in happenings]


def owners_without_pods(happenings: Sequence[Happening], declared: Kinds = NO_KINDS) -> Iterator[str]:
    """A line about owners that no controller makes pods for, and no pod refers to."""
    referred = {key for happening in happenings for key, _ in _references(happening)}
    found: Counter[tuple[str, str]] = Counter()
    for happening in happenings:
        if isinstance(happening.action, Create | Apply):
            raw = happening.action.raw
            key = key_of(raw, declared)
            if key[:2] in _OWNERS and not makes_pods(key.group, raw) and key not in referred:
                found[key[:2]] += 1
    if found:
        yield f"no pods are made for: {counted(found)}"


def _references(happening: Happening) -> Iterator[tuple[Key, dict[str, Any]]]:
    if not isinstance(happening.action, Create | Apply):
        return
    metadata = happening.action.raw["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        kind = reference.get("kind") or ""
        namespace = "" if is_cluster_scoped(kind) else _namespace(metadata)
        group = (reference.get("apiVersion") or "").rpartition("/")[0]
        yield Key(group, kind, namespace, reference.get("name") or ""), reference


def _completed(happening: Happening, uids: dict[Key, str], declared: Kinds) -> Happening:
    action = happening.action
    if not isinstance(action, Create | Apply):
        return happening
    metadata: Raw = action.raw["metadata"]
    changes: Raw = {}
    uid = uids[key_of(action.raw, declared)] if _name(action.raw) else ""
    if uid and not metadata.get("uid"):
        changes["uid"] = uid
    references = [
        {**reference, "uid": uids[key]} if not reference.get("uid") and uids.get(key) else reference
        for key, reference in _references(happening)
    ]
    if references != (metadata.get("ownerReferences") or []):
        changes["ownerReferences"] = references
    if not changes:
        return happening
    raw = {**action.raw, "metadata": {**metadata, **changes}}
    return replace(happening, action=replace(action, raw=raw))


def _name(raw: Raw) -> str:
    return str(raw["metadata"].get("name") or "")


def _namespace(metadata: Raw) -> str:
    return metadata.get("namespace") or names.DEFAULT_NAMESPACE
