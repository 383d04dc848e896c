"""Whether reservations are larger than the nodes, so that no window can exist."""

import numpy as np

from holdfast.api.similar_names import did_you_mean
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.scheduler import Scheduler
from holdfast.snapshot.cluster_snapshot import shown


def larger_than_nodes(scheduler: Scheduler, cls: PodClass, count: int) -> str:
    """Why so many reservations do not fit the nodes even while these are empty; empty if they do. Of
    the constraints on nodes only the node selector is regarded."""
    table = scheduler.cluster.nodes
    rows = [
        row
        for row, info in table.info.items()
        if table.alive[row] and cls.node_selector.items() <= info.labels.items()
    ]
    labels = ",".join(f"{key}={value}" for key, value in sorted(cls.node_selector.items()))
    whose = f" with {labels}" if labels else ""
    if not rows:
        return f"there is no node{whose}"
    asked = {slot: n for slot, n in cls.requests if n and slot != PODS}
    sizes = {slot: table.allocatable[slot, rows] for slot in asked}
    for slot, wanted in asked.items():
        name, most = table.slots.name(slot), int(sizes[slot].max())
        if not most:
            known = {each for row in rows for each in table.info[row].allocatable}
            return f"no node{whose} has the resource {name}{did_you_mean(name, known)}"
        if most < wanted:
            return (
                f"no node{whose} is large enough: {shown(name, wanted)} {name} are requested, and the "
                f"most a node has is {shown(name, most)}"
            )
    if not asked:
        return ""
    each = np.min([sizes[slot] // wanted for slot, wanted in asked.items()], axis=0)
    named = [(table.slots.name(slot), wanted) for slot, wanted in asked.items()]
    amounts = " and ".join(f"{shown(name, wanted)} {name}" for name, wanted in named)
    if not each.any():
        return f"no node{whose} is large enough: none has {amounts}"
    if (fit := int(each.sum())) < count:
        fitting = f"{fit} of {count} with {amounts} fit, even if all are empty"
        return f"the nodes{whose} are too small: {fitting}"
    return ""
