"""A Deployment that was scaled in the middle of a rollout: every ReplicaSet gets its share."""

from __future__ import annotations

from holdfast.api.label_selectors import as_integer
from holdfast.controllers.workloads.actions import Raw
from holdfast.controllers.workloads.claims import Member
from holdfast.controllers.workloads.pods import created
from holdfast.controllers.workloads.replica_set import wanted_replicas
from holdfast.controllers.workloads.revisions import DESIRED, MAXIMUM
from holdfast.controllers.workloads.rollout import Sizes, limits, recreates
from holdfast.controllers.workloads.view import annotations_of


def was_scaled(deployment: Raw, members: list[Member]) -> bool:
    """Whether some ReplicaSet was sized for another number of replicas."""
    wanted = wanted_replicas(deployment)
    for _, each in members:
        noted = as_integer(annotations_of(each).get(DESIRED, ""))
        if wanted_replicas(each) and noted is not None and noted != wanted:
            return True
    return False


def share(deployment: Raw, new: Member | None, old: list[Member]) -> Sizes:
    wanted = wanted_replicas(deployment)
    everyone = [*([new] if new is not None else []), *old]
    live = [each for each in everyone if wanted_replicas(each[1])]
    if len(live) <= 1:
        only = live[0] if live else new or _latest(old)
        return {only[0].name: wanted} if only is not None else {}
    if new is not None and _saturated(deployment, new[1]):
        return {ref.name: 0 for ref, _ in old}
    if recreates(deployment):
        return {}
    return _in_proportion(deployment, live)


def _in_proportion(deployment: Raw, live: list[Member]) -> Sizes:
    wanted, total = wanted_replicas(deployment), sum(wanted_replicas(each) for _, each in live)
    allowed = wanted + limits(deployment)[0] if wanted else 0
    to_add = allowed - total
    # The largest gets what is left over; of equal ones the newer when growing, the older otherwise.
    sign = -1 if to_add > 0 else 1
    live = sorted(live, key=lambda e: (-wanted_replicas(e[1]), sign * created(e[1]), e[0].name))
    sizes: Sizes = {}
    added = 0
    for ref, each in live:
        part = _portion(deployment, each, allowed, to_add - added) if to_add else 0
        sizes[ref.name] = wanted_replicas(each) + part
        added += part
    first = live[0][0].name
    sizes[first] = max(0, sizes[first] + to_add - added)
    return sizes


def _portion(deployment: Raw, replica_set: Raw, allowed: int, left: int) -> int:
    own = wanted_replicas(replica_set)
    if not wanted_replicas(deployment):
        fraction = -own
    else:
        noted = as_integer(annotations_of(replica_set).get(MAXIMUM, ""))
        before = noted or int((deployment.get("status") or {}).get("replicas") or 0)
        fraction = _rounded(own * allowed, before) - own if before else 0
    return min(fraction, left) if left > 0 else max(fraction, left)


def _rounded(part: int, whole: int) -> int:
    return (2 * part + whole) // (2 * whole)


def _latest(old: list[Member]) -> Member | None:
    return max(old, key=lambda each: (created(each[1]), each[0].name), default=None)


def _saturated(deployment: Raw, new: Raw) -> bool:
    wanted = wanted_replicas(deployment)
    noted = as_integer(annotations_of(new).get(DESIRED, ""))
    available = (new.get("status") or {}).get("availableReplicas") or 0
    return wanted_replicas(new) == noted == available == wanted
