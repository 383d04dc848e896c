"""Helpers about pods for workload controllers: phase, readiness, availability, pods from templates."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.api.errors import TimeError
from holdfast.api.times import parse_time
from holdfast.local.workloads.lister import Raw, is_going, reference_to

_LONGEST_PREFIX = 58
"""The API server truncates the prefix of a generated name to leave space for its suffix."""


def phase(pod: Raw) -> str:
    return (pod.get("status") or {}).get("phase") or "Pending"


def ended(pod: Raw) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def active(pod: Raw) -> bool:
    """Whether the pod is neither finished nor terminating."""
    return not ended(pod) and not is_going(pod)


def condition(raw: Raw, type: str) -> Raw | None:
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == type:
            found: Raw = each
            return found
    return None


def ready(pod: Raw) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found.get("status") == "True"


def ready_since(pod: Raw) -> float | None:
    found = condition(pod, "Ready")
    if found is None or found.get("status") != "True":
        return None
    return moment(found.get("lastTransitionTime"))


def available_at(pod: Raw, min_ready: float) -> float | None:
    """When the pod has been ready long enough; None if it is not ready."""
    found = condition(pod, "Ready")
    if found is None or found.get("status") != "True":
        return None
    return (moment(found.get("lastTransitionTime")) or 0.0) + min_ready if min_ready else 0.0


def moment(text: str | None) -> float | None:
    """A timestamp in seconds; an invalid one is ignored."""
    if not text:
        return None
    try:
        return parse_time(text)
    except TimeError:
        return None


def created(raw: Raw) -> float:
    return moment(raw["metadata"].get("creationTimestamp")) or 0.0


def from_template(
    owner: Raw,
    template: Raw,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, object] | None = None,
    finalizers: tuple[str, ...] = (),
) -> Raw:
    """The pod that a controller creates: the template with the given additions. Without a name, one
    is generated from the owner's.
    """
    given = template.get("metadata") or {}
    metadata: Raw = {
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(given.get("labels") or {}), **(labels or {})},
        "annotations": {**(given.get("annotations") or {}), **(annotations or {})},
        "ownerReferences": [reference_to(owner)],
        "finalizers": [*(given.get("finalizers") or ()), *finalizers],
    }
    metadata = {key: value for key, value in metadata.items() if value}
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{owner['metadata']['name'][: _LONGEST_PREFIX - 1]}-"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**(template.get("spec") or {}), **(spec or {})},
    }


def with_condition(conditions: list[Raw], new: Raw, now: str) -> list[Raw]:
    """The conditions with this one set; the transition time changes only with the status."""
    before = next((each for each in conditions if each.get("type") == new["type"]), None)
    since = now
    if before is not None and before.get("status") == new["status"]:
        since = before.get("lastTransitionTime") or now
    placed = {**new, "lastTransitionTime": since}
    if before is None:
        return [*conditions, placed]
    return [placed if each is before else each for each in conditions]


def without_condition(conditions: list[Raw], type: str) -> list[Raw]:
    return [each for each in conditions if each.get("type") != type]
