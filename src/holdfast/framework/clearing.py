"""Which reservations would have to go from a row for a pod to fit there."""

from collections.abc import Callable

from holdfast.core.cluster import Cluster
from holdfast.core.fills import Amounts
from holdfast.core.pods import PodRecord
from holdfast.framework.interface import Need, Order

Gone = tuple[int, Amounts, list[PodRecord]]


def leave(cluster: Cluster, reserving: PodRecord) -> Gone:
    """A reservation gives up its room, and the pods that draw on it theirs; inside a transaction."""
    hold, promise = cluster.ledger.holds.get(reserving.uid), reserving.promise
    assert hold is not None and promise is not None
    row, amounts, drawing = hold.row, hold.amounts, cluster.promises.drawing(promise)
    for pod in drawing:
        cluster.ledger.remove(pod)
    cluster.ledger.release(reserving)
    return row, amounts, drawing


def come_back(cluster: Cluster, reserving: PodRecord, gone: Gone) -> None:
    row, amounts, drawing = gone
    cluster.ledger.hold(reserving, row, amounts)
    for pod in drawing:
        cluster.ledger.place(pod, row)


def to_go(
    cluster: Cluster,
    reserving: list[PodRecord],
    gone: list[PodRecord],
    spared_first: Order,
    fits: Callable[[], bool],
    blame: Callable[[], tuple[str, ...]],
) -> list[PodRecord] | tuple[str, ...]:
    """By trying."""
    with cluster.ledger.transaction():
        for each in gone:
            leave(cluster, each)
        left = {each.uid: leave(cluster, each) for each in reserving}
        if not fits():
            return blame()
        victims = []
        for each in spared_first(reserving):
            come_back(cluster, each, left[each.uid])
            if not fits():
                leave(cluster, each)
                victims.append(each)
    return victims


def to_go_for_amounts(
    cluster: Cluster,
    row: int,
    needs: tuple[Need, ...],
    reserving: list[PodRecord],
    gone: list[PodRecord],
    spared_first: Order,
) -> list[PodRecord] | tuple[str, ...]:
    """By arithmetic, where nothing but amounts matters."""
    ledger, slots = cluster.ledger, [need.slot for need in needs]

    def freed(each: PodRecord) -> dict[int, int]:
        hold, promise = ledger.holds.get(each.uid), each.promise
        assert hold is not None and promise is not None
        return ledger.freed(hold, cluster.promises.drawing(promise), slots)

    spare = ledger.spare(row, needs, (), ())
    claims = {each.uid: freed(each) for each in reserving}
    for amounts in (*claims.values(), *map(freed, gone)):
        for slot, amount in amounts.items():
            spare[slot] += amount
    lacking = tuple(need.text for need in needs if spare[need.slot] < 0)
    if lacking:
        return lacking
    victims = []
    for each in spared_first(reserving):
        claim = claims[each.uid]
        if all(spare[slot] >= amount for slot, amount in claim.items()):
            for slot, amount in claim.items():
                spare[slot] -= amount
        else:
            victims.append(each)
    return victims
