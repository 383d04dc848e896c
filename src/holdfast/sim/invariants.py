"""Invariants that hold after every step of a simulation."""

from collections.abc import Callable, Iterable

from holdfast.api.names import HOLD_LABEL, RESERVATION_API, STARVATION
from holdfast.local.component import ENDED
from holdfast.local.store.store import Store
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster
from holdfast.scheduler.state.recount import validate_state
from holdfast.sim.clock import VirtualClock

RESERVATION_GROUP = RESERVATION_API.partition("/")[0]
_STORY_LINES = 20


def broken(scheduler: Scheduler, store: Store, serves: Callable[[str], bool]) -> list[str]:
    """All inconsistencies within the scheduler's state, and between it and the objects."""
    return [
        *validate_state(scheduler.cluster),
        *_differences(scheduler, store, serves),
        *_held_for_none(scheduler.cluster, store),
    ]


def _differences(scheduler: Scheduler, store: Store, serves: Callable[[str], bool]) -> Iterable[str]:
    cluster, queue = scheduler.cluster, scheduler.queue
    known = dict(cluster.pods)
    for raw in store.scan("", "Pod"):
        if raw["status"].get("phase") in ENDED:
            continue
        metadata = raw["metadata"]
        name = f"Pod/{metadata['namespace']}/{metadata['name']}"
        pod = known.pop(metadata["uid"], None)
        node = raw["spec"].get("nodeName") or ""
        if pod is None:
            if node:
                yield f"{name}: is on {node}, but the scheduler does not know it"
            continue
        seen = cluster.nodes.name(pod.row) if pod.row >= 0 else ""
        if seen != node and pod.uid not in scheduler.binding.waiting:
            yield f"{name}: is on {node or 'no node'}, the scheduler has it on {seen or 'none'}"
        waits = pod.phase is Phase.PENDING and serves(pod.scheduler)
        if waits and queue.place(pod.uid) is None:
            yield f"{name}: waits for a node, but is in no queue"
    for pod in known.values():
        yield f"{pod.ref}: the scheduler has it, but it no longer exists"


def _held_for_none(cluster: Cluster, store: Store) -> Iterable[str]:
    """A starvation hold must be for a pending pod of a job that exists."""
    if not cluster.reservations.starvation_holds:
        return
    for raw in store.scan(RESERVATION_GROUP, "Reservation"):
        metadata = raw["metadata"]
        live = raw.get("status", {}).get("phase", "Pending") not in ("Succeeded", "Failed")
        if not live or (metadata.get("labels") or {}).get(HOLD_LABEL) != STARVATION:
            continue
        name = f"Reservation/{metadata['name']}"
        pod = cluster.pods.get(raw["spec"]["owners"][0]["object"]["uid"])
        if pod is None:
            yield f"{name}: its capacity is for a pod that no longer exists"
        elif pod.row >= 0:
            yield f"{name}: its capacity is for {pod.ref}, which is placed"
        elif (job := cluster.jobs.of(pod)) is not None and not job.is_known:
            yield f"{name}: its capacity is for {job.name}, which does not exist"


def stories(cluster: Cluster, clock: VirtualClock, problems: Iterable[str]) -> list[str]:
    """The history of the objects that problems name."""
    names = dict.fromkeys(
        word.rstrip(":,")
        for problem in problems
        for word in problem.split()
        if word.startswith(("Pod/", "Node/", "Reservation/"))
    )
    shown = []
    for name in list(names)[:10]:
        lines = cluster.story(name)[-_STORY_LINES:]
        shown.append(f"story of {name}:")
        shown.extend(f"  {line._replace(time=clock.since_start(line.time))}" for line in lines)
    return shown
