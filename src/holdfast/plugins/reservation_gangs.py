"""Which reservations make room together: those of one gang.

A reservation names its gang as a pod would, by annotations of its own or by a PodGroup. All members
have to be there: how many that are is the gang's total, or its minimum, which are taken to be the same.
"""

from typing import NamedTuple

from holdfast.api import names
from holdfast.api.jobs import PodGroup
from holdfast.api.label_selectors import as_integer
from holdfast.api.meta import ObjectMeta
from holdfast.core.cluster import Cluster
from holdfast.core.pods import Phase, PodRecord
from holdfast.core.promises.promise import Promise


class GangName(NamedTuple):
    namespace: str
    name: str


def gang_of(metadata: ObjectMeta, namespace: str) -> GangName | None:
    labels, annotations = metadata.labels, metadata.annotations
    for key in (names.GANG_NAME, *names.POD_GROUP_KEYS):
        name = annotations.get(key) or labels.get(key)
        if name:
            return GangName(namespace, name)
    return None


def members_of(cluster: Cluster, promise: Promise) -> tuple[list[PodRecord], str]:
    """The reserve pods that need room together with this one's, itself among them, the most important
    first; and what is missing, if not all members are there."""
    assert promise.pod is not None
    gang = gang_of(promise.object.metadata, promise.pod.namespace)
    if gang is None:
        return [promise.pod], ""
    members = [
        each
        for each in cluster.promises.known.values()
        if each.pod is not None
        and gang_of(each.object.metadata, each.pod.namespace) == gang
        and not each.leaving
    ]
    wanted = max((_wanted(each.object.metadata) for each in members), default=0)
    wanted = wanted or _wanted_by_group(cluster, gang)
    if not wanted:
        return [], f"nobody says how many reservations gang {gang.name} has"
    if len(members) < wanted:
        return [], f"gang {gang.name} has {len(members)} of {wanted} reservations"
    waiting = [each.pod for each in members if each.pod is not None and each.pod.phase is Phase.PENDING]
    waiting.sort(key=lambda pod: (-pod.cls.priority, pod.started or 0.0, pod.name))
    return waiting, ""


def _wanted(metadata: ObjectMeta) -> int:
    """As its annotations say; 0 if they leave it to a PodGroup."""
    given = metadata.annotations
    least = as_integer(given.get(names.GANG_MIN_AVAILABLE, "")) or 0
    total = as_integer(given.get(names.GANG_TOTAL_NUMBER, "")) or 0
    return max(least, total, 0)


def _wanted_by_group(cluster: Cluster, gang: GangName) -> int:
    found = [objects.get((gang.namespace, gang.name)) for objects in cluster.objects.values()]
    return max((each.spec.min_member for each in found if isinstance(each, PodGroup)), default=0)
