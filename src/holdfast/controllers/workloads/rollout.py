"""How many pods of each ReplicaSet a Deployment wants next."""

from __future__ import annotations

from holdfast.api.errors import MalformedText
from holdfast.api.intorstring import scaled_value
from holdfast.controllers.workloads.actions import Raw
from holdfast.controllers.workloads.claims import Member
from holdfast.controllers.workloads.pods import created
from holdfast.controllers.workloads.replica_set import wanted_replicas

Sizes = dict[str, int]
"""ReplicaSet name to the replicas it is to have."""


def recreates(deployment: Raw) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type") == "Recreate")


def limits(deployment: Raw) -> tuple[int, int]:
    """How many pods more than asked for there may be, and how many fewer available."""
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
    """The replicas the newest ReplicaSet may have by now."""
    wanted, own = wanted_replicas(deployment), wanted_replicas(new) if new is not None else 0
    if recreates(deployment):
        return wanted
    room = wanted + limits(deployment)[0] - sum(wanted_replicas(each) for _, each in members)
    return own + max(0, min(room, wanted - own))


def roll(deployment: Raw, new: Member, old: list[Member]) -> Sizes:
    """One step of a rolling update: first the new ReplicaSet up, then the old ones down."""
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
