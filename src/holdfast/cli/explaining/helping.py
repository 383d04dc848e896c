"""What would help a pod no node will do for."""

from collections.abc import Iterator

from holdfast.actions.scheduler import Scheduler
from holdfast.api.tolerations import find_untolerated
from holdfast.cli.asking.printing import shown
from holdfast.cli.explaining.placing import Placing
from holdfast.cli.explaining.report import few
from holdfast.core.decisions import Preempt
from holdfast.core.pods import PodRecord
from holdfast.core.slots import PODS

_FIT = "NodeResourcesFit"
_MOST = 5


def help_for(scheduler: Scheduler, pod: PodRecord, placing: Placing) -> list[str]:
    if not placing.message or placing.column.rejected is not None:
        return []
    return [
        *_preemption(scheduler, pod, placing),
        *_room(scheduler, pod, placing),
        *_cordoned(placing),
        *_taints(scheduler, pod, placing),
    ]


def _preemption(scheduler: Scheduler, pod: PodRecord, placing: Placing) -> Iterator[str]:
    nomination = scheduler.cycle.post_filter(placing.profile, pod, placing.column)
    victims = [each.pod for each in nomination.decisions if isinstance(each, Preempt)]
    if nomination.node and victims:
        names = ", ".join(str(victim) for victim in victims)
        yield f"it may take the place of less important pods on {nomination.node}: {names}"


def _room(scheduler: Scheduler, pod: PodRecord, placing: Placing) -> Iterator[str]:
    """How much is missing where least is, and who has it."""
    cluster = scheduler.cluster
    table = cluster.nodes
    asked = [(slot, amount) for slot, amount in (*pod.cls.requests, (PODS, 1)) if amount]
    nearest: tuple[float, str, int, list[tuple[int, int]]] | None = None
    blamed = [name for name, blame in placing.blames.items() if blame.plugin == _FIT]
    for name in blamed:
        row = table.row(name)
        assert row is not None
        missing = []
        for slot, amount in asked:
            lack = amount - (table.allocatable.item(slot, row) - table.claimed.item(slot, row))
            if lack > 0:
                missing.append((slot, lack))
        share = sum(lack / dict(asked)[slot] for slot, lack in missing)
        if missing and (nearest is None or (share, name) < nearest[:2]):
            nearest = (share, name, row, missing)
    if nearest is None:
        return
    _, name, row, missing = nearest
    slots = table.slots
    for slot, amount in asked:
        most = max(
            (table.allocatable.item(slot, at) for at in range(table.size) if table.alive[at]), default=0
        )
        if amount > most:
            resource = slots.name(slot)
            yield (
                f"no node is as big: it asks for {shown(resource, amount)} {resource}, the most a node "
                f"has is {shown(resource, most)}"
            )
            return
    texts = ", ".join(f"{shown(slots.name(slot), lack)} {slots.name(slot)}" for slot, lack in missing)
    yield f"least is missing on {name}: {texts}"
    if all(table.held.item(slot, row) >= lack for slot, lack in missing):
        holders = sorted(
            hold.pod.name
            for hold in cluster.ledger.holds.on(row)
            if any(hold.left(slot) for slot, _ in missing)
        )
        yield f"reservations hold as much there, for others: {', '.join(holders)}"


def _cordoned(placing: Placing) -> Iterator[str]:
    nodes = [name for name, blame in placing.blames.items() if blame.plugin == "NodeUnschedulable"]
    if nodes:
        yield f"nodes that are cordoned (kubectl uncordon): {few(sorted(nodes), _MOST)}"


def _taints(scheduler: Scheduler, pod: PodRecord, placing: Placing) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for name, blame in placing.blames.items():
        if blame.plugin != "TaintToleration":
            continue
        row = scheduler.cluster.nodes.row(name)
        assert row is not None
        taints = scheduler.cluster.nodes.info[row].taints
        keeping = [taint for taint in taints if taint.effect in ("NoSchedule", "NoExecute")]
        taint = find_untolerated(keeping, pod.cls.tolerations)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            found.setdefault(f"{taint.key}{value}:{taint.effect}", []).append(name)
    for text, nodes in sorted(found.items()):
        yield f"a toleration of {text} would open {few(sorted(nodes), _MOST)}"
