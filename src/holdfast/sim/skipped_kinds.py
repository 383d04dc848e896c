"""Kinds that scheduling does not read: skipped and counted, so that a dump of a cluster loads.

A kind is skipped if it is listed here, or if Holdfast reads nothing of its API group (custom
resources, and groups such as rbac.authorization.k8s.io). Any other kind of a group that Holdfast
reads is probably misspelt, and an error. So is one that resembles a kind that a plugin declares.
"""

from collections import Counter
from difflib import SequenceMatcher
from typing import Any

from holdfast.api.kinds import KINDS, NO_KINDS, KindInfo, Kinds, api_version_of
from holdfast.api.names import SIM_API, WORKLOAD_API

_UNREAD = {
    "": (
        "ComponentStatus",
        "ConfigMap",
        "Endpoints",
        "Event",
        "LimitRange",
        "PodTemplate",
        "ResourceQuota",
        "Secret",
        "ServiceAccount",
    ),
    "apps": ("ControllerRevision",),
    "coordination.k8s.io": ("Lease", "LeaseCandidate"),
    "events.k8s.io": ("Event",),
    "policy": ("PodSecurityPolicy",),
    "resource.k8s.io": ("PodSchedulingContext", "ResourceClass", "ResourcePoolStatusRequest"),
    "scheduling.k8s.io": ("PodGroup", "Workload"),
    "scheduling.koordinator.sh": ("PodMigrationPolicy",),
    "scheduling.sigs.k8s.io": ("ElasticQuota",),
    "storage.k8s.io": ("VolumeAttributesClass",),
}
_OLD_VERSIONS = tuple(
    f"resource.k8s.io/{each}" for each in ("v1alpha2", "v1alpha3", "v1beta1", "v1beta2")
)
"""In dumps of clusters before Kubernetes 1.34; their claims have another form."""
_DOTLESS = ("autoscaling", "extensions")
"""Kubernetes' own groups without a dot that nothing is read of; custom groups have a dot."""
_GROUPS = {info.group for info in KINDS.values()}
_OURS = SIM_API.partition("/")[0]
_MISSPELT = 0.75


def is_skipped(api_version: Any, kind: Any, declared: Kinds = NO_KINDS) -> bool:
    if not (isinstance(api_version, str) and isinstance(kind, str) and api_version and kind):
        return False
    if api_version == WORKLOAD_API:
        return False  # its kinds are skipped in other versions
    group = api_version.rpartition("/")[0]
    if any(_is_of_kind(group, kind, info) for info in declared.values()):
        return False
    if api_version in _OLD_VERSIONS:
        return True
    if group in _GROUPS or group == _OURS:
        return kind in _UNREAD.get(group, ())
    if "." not in group and group not in _DOTLESS:
        return False
    groups = {info.group for info in KINDS.values() if info.kind == kind}
    if group in _DOTLESS:
        return not groups
    return not any(_ratio(group, known) >= _MISSPELT for known in groups)


def _is_of_kind(group: str, kind: str, info: KindInfo) -> bool:
    """Whether the object is of the kind, in any version, or its group or kind is misspelt."""
    if info.group == group:
        return info.kind == kind or _ratio(info.kind, kind) >= _MISSPELT
    return info.kind == kind and bool(group) and _ratio(info.group, group) >= _MISSPELT


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def counted(skipped: Counter[tuple[str, str]]) -> str:
    """`31 ConfigMap, 12 Secret` from counts by group and kind, most frequent first."""
    by_name: Counter[str] = Counter()
    for (group, kind), count in skipped.items():
        read = api_version_of(kind)
        is_other = bool(read) and read.rpartition("/")[0] != group
        by_name[f"{kind}.{group}" if is_other else kind] += count
    ordered = sorted(by_name.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered)
