"""What must hold after every step, whatever the scenario."""

from collections.abc import Callable, Iterable

from holdfast.actions.scheduler import Scheduler
from holdfast.backends.embedded.objects import ENDED
from holdfast.core.cluster import Cluster
from holdfast.core.pods import Phase
from holdfast.core.validate import validate_state
from holdfast.sim.clock import since_start
from holdfast.store.store import Store

_STORY_LINES = 20


def broken(scheduler: Scheduler, store: Store, serves: Callable[[str], bool]) -> list[str]:
    """Every way in which the scheduler's state is wrong in itself or differs from the objects."""
    return [*validate_state(scheduler.cluster), *_differences(scheduler, store, serves)]


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
        if seen != node and pod.uid not in scheduler.cycle.waiting:
            yield f"{name}: is on {node or 'no node'}, the scheduler has it on {seen or 'none'}"
        waits = pod.phase is Phase.PENDING and serves(pod.scheduler)
        if waits and queue.place(pod.uid) is None:
            yield f"{name}: waits for a node, but is in no queue"
    for pod in known.values():
        yield f"{pod.ref}: the scheduler knows it, but it is gone"


def stories(cluster: Cluster, problems: Iterable[str]) -> list[str]:
    """What happened to the objects that problems name."""
    names = dict.fromkeys(
        word.rstrip(":,")
        for problem in problems
        for word in problem.split()
        if word.startswith(("Pod/", "Node/", "Reservation/"))
    )
    told = []
    for name in list(names)[:10]:
        lines = cluster.story(name)[-_STORY_LINES:]
        told.append(f"story of {name}:")
        told.extend(f"  {line._replace(time=since_start(line.time))}" for line in lines)
    return told
