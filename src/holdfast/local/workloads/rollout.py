"""Rolling updates: how many pods each ReplicaSet of a Deployment should have next."""

from __future__ import annotations

from holdfast.api.errors import MalformedText
from holdfast.api.selectors import as_integer
from holdfast.api.workloads import scaled_value
from holdfast.local.workloads.lister import Member, Raw, annotations_of
from holdfast.local.workloads.pods import created
from holdfast.local.workloads.replica_set import wanted_replicas
from holdfast.local.workloads.revisions import DESIRED, MAXIMUM

Sizes = dict[str, int]
"""ReplicaSet name to the replicas it is to have."""


def recreates(deployment: Raw) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type") == "Recreate")


def limits(deployment: Raw) -> tuple[int, int]:
    """How many pods over the replica count may exist (maxSurge), and how many fewer available
    (maxUnavailable).
    """
    if recreates(deployment):
        return 0, 0
    replicas = wanted_replicas(deployment)
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = _scaled(rolling.get("maxSurge", "25%"), replicas, round_up=True)
    unavailable = _scaled(rolling.get("maxUnavailable", "25%"), replicas, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1  # or nothing could ever move
    return surge, min(unavailable, replicas)


def first_size(deployment: Raw, members: list[Member], new: Raw | None) -> int:
    """The number of replicas that the newest ReplicaSet may have now."""
    wanted, own = wanted_replicas(deployment), wanted_replicas(new) if new is not None else 0
    if recreates(deployment):
        return wanted
    surge = wanted + limits(deployment)[0] - sum(wanted_replicas(each) for _, each in members)
    return own + max(0, min(surge, wanted - own))


def roll(deployment: Raw, new: Member, old: list[Member]) -> Sizes:
    """One step of a rolling update: scales the new ReplicaSet up, then the old ones down."""
    wanted, own = wanted_replicas(deployment), wanted_replicas(new[1])
    if own > wanted:
        return {new[0].name: wanted}
    grown = first_size(deployment, [new, *old], new[1])
    if grown != own:
        return {new[0].name: grown}
    return _shrink(deployment, new[1], old)


def _shrink(deployment: Raw, new: Raw, old: list[Member]) -> Sizes:
    everyone = [new, *(each for _, each in old)]
    least = wanted_replicas(deployment) - limits(deployment)[1]
    missing = wanted_replicas(new) - _available(new)
    may_go = sum(map(wanted_replicas, everyone)) - least - missing
    if may_go <= 0 or not any(wanted_replicas(each) for _, each in old):
        return {}
    sizes: Sizes = {}
    by_age = sorted(old, key=lambda each: (created(each[1]), each[0].name))
    # Those that do no good anyway go first: they could block the way for ever.
    for ref, each in by_age:
        sick = wanted_replicas(each) - _available(each)
        gone = max(0, min(sick, may_go))
        sizes[ref.name] = wanted_replicas(each) - gone
        may_go -= gone
    spare = sum(map(_available, everyone)) - least
    for ref, _ in by_age:
        gone = max(0, min(sizes[ref.name], spare, may_go))
        sizes[ref.name] -= gone
        spare -= gone
        may_go -= gone
    return sizes


def _available(replica_set: Raw) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas") or 0)


def _scaled(value: int | str, total: int, *, round_up: bool) -> int:
    try:
        return scaled_value(value, total, round_up=round_up)
    except MalformedText:
        return 0


# Proportional scaling during a rollout


def was_scaled(deployment: Raw, members: list[Member]) -> bool:
    """Whether a ReplicaSet was sized for another number of replicas."""
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
