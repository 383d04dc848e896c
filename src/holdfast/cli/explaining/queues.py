"""What the queue of pods has against them, in figures."""

from collections import Counter

from holdfast.cli.asking.picture import Picture
from holdfast.cli.asking.printing import shown
from holdfast.core.pods import PodRecord


def over_capability(picture: Picture, pods: list[PodRecord]) -> tuple[str, bool] | None:
    """Which queue has too little for all of the pods at once, and whether it has even when it is empty;
    None if all of them have a place in it."""
    queues, slots = picture.cluster.jobs.queues, picture.cluster.nodes.slots
    queues.refresh()
    asked: Counter[int] = Counter()
    for pod in pods:
        asked.update(pod.cls.amounts)
    found: tuple[str, bool] | None = None
    for record in queues.path(queues.of(pods[0])) if pods else ():
        for slot, limit in (record.capability or {}).items():
            used = record.allocated.get(slot, 0)
            if not asked[slot] or used + asked[slot] <= limit:
                continue
            name = slots.name(slot)
            text = (
                f"queue {record.name} uses {shown(name, used)} of the {shown(name, limit)} {name} of "
                f"its capability, and {shown(name, asked[slot])} {name} are asked for"
            )
            never = asked[slot] > limit
            if found is None or (never and not found[1]):
                found = (text, never)
    return found
