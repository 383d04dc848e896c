"""Jobs, queues, holds, preemption and restarts at random.

The simulation checks after every step that the state is right, that nothing is sold twice, and that
nothing is held for who does not wait any more. Here it is checked besides that no job runs with fewer
than it needs by our doing, and that nobody has to go who must not.
"""

from collections import Counter
from itertools import groupby
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.objects import Raw, gang, in_queue, node, pod, pod_group, queue
from harness.scenarios import Played, actions, play, step

END = 300
TIMES = st.integers(0, 150).map(lambda t: f"{t}s")
LENGTHS = st.integers(1, 80).map(lambda t: f"{t}s")
CORES = st.sampled_from(("0", "1", "2"))
QUEUES = ("", "a", "b")


@st.composite
def plain_pod(draw: st.DrawFn, number: int) -> Raw:
    annotations = {}
    if draw(st.booleans()):
        annotations["holdfast.io/run-estimate"] = draw(LENGTHS)
    name = draw(st.sampled_from(QUEUES))
    made = pod(
        f"p{number}",
        draw(st.integers(0, 4)),
        at=draw(TIMES),
        priority=draw(st.sampled_from((0, 0, 10))),
        annotations=annotations | (in_queue(name) if name else {}),
    )
    return _ending(draw, made)


@st.composite
def job(draw: st.DrawFn, number: int) -> list[Raw]:
    name, count = f"g{number}", draw(st.integers(1, 4))
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["queue"] = draw(st.sampled_from(("a", "b")))
    tasks = [draw(st.sampled_from(("", "ps", "worker"))) for _ in range(count)]
    needed = {task: draw(st.integers(1, tasks.count(task))) for task in sorted({*tasks} - {""})}
    if draw(st.booleans()) and needed:
        spec["minTaskMember"] = needed
    made = pod_group(name, draw(st.integers(1, count)), at=draw(TIMES), **spec)
    if draw(st.integers(0, 5)) == 0:
        made["metadata"]["annotations"]["sim.holdfast.io/delete-at"] = f"{draw(st.integers(151, 250))}s"
    cpu, at, priority = draw(st.integers(0, 4)), draw(TIMES), draw(st.sampled_from((0, 5, 20)))
    members = gang(name, count, cpu, at=at, priority=priority)
    for member, task in zip(members, tasks, strict=True):
        notes = member["metadata"]["annotations"]
        if task:
            notes["volcano.sh/task-spec"] = task
        if draw(st.integers(0, 4)) == 0:
            notes["volcano.sh/preemptable"] = "false"
    return [made, *(_ending(draw, member) for member in members)]


def _ending(draw: st.DrawFn, made: Raw) -> Raw:
    end = draw(st.sampled_from(("runs-for", "runs-for", "delete-at", "")))
    if draw(st.booleans()):
        made["metadata"]["annotations"]["sim.holdfast.io/stops-in"] = draw(LENGTHS)
    if end:
        made["metadata"]["annotations"][f"sim.holdfast.io/{end}"] = (
            draw(LENGTHS) if end == "runs-for" else f"{draw(st.integers(151, 250))}s"
        )
    return made


@st.composite
def scenario(draw: st.DrawFn) -> tuple[list[Raw], Raw]:
    given: list[Raw] = [node(f"n{i}", draw(st.integers(1, 5))) for i in range(draw(st.integers(1, 3)))]
    given += [
        queue("top"),
        queue("a", draw(st.integers(1, 3)), parent=draw(st.sampled_from(("", "top")))),
    ]
    given.append(queue("b", capability={"cpu": "4"}, guarantee={"resource": {"cpu": draw(CORES)}}))
    given += [draw(plain_pod(i)) for i in range(draw(st.integers(1, 8)))]
    for i in range(draw(st.integers(0, 3))):
        given += draw(job(i))
    for i in range(draw(st.integers(0, 3))):
        at = f"{draw(st.integers(60, 200))}s"
        given.append(pod(f"v{i}", draw(st.integers(1, 3)), at=at, priority=100))
    for _ in range(draw(st.integers(0, 2))):
        given.append(step(draw(TIMES), restart="scheduler"))
    if draw(st.booleans()):
        given.append(step(draw(TIMES), apply=node("late", draw(st.integers(1, 5)))))
    if draw(st.booleans()):
        cordon = {"kind": "Node", "name": "n0", "merge": {"spec": {"unschedulable": True}}}
        given.append(step(draw(TIMES), patch=cordon))
    if draw(st.booleans()):
        given.append(step("160s", delete={"kind": "Node", "name": "n0"}))
    reserve = {
        "starvingJobTimeThreshold": draw(st.sampled_from((0, 5, 40))),
        "reservedNodePercent": draw(st.sampled_from((30, 50, 100))),
        "hold": draw(st.sampled_from(("node", "amount"))),
        "backfill": draw(st.booleans()),
    }
    others = draw(st.sampled_from(((), ("preempt",), ("preempt", "reclaim"))))
    config = actions("allocate", "backfill", **reserve)
    config["actions"] += [{"name": name} for name in others]
    return given, config


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(scenario())
def test_random_lives(scenario: tuple[list[Raw], Raw]) -> None:
    given, config = scenario
    played = play(given, config=config, until=END)
    _no_job_is_cut(given, played)
    _who_is_spared_stays(given, played)
    _nothing_is_held_in_vain(played)


class _Life:
    """How many of a job run, or have done their work, by task."""

    def __init__(self, spec: Raw) -> None:
        self.least = spec["minMember"]
        self.tasks: dict[str, int] = spec.get("minTaskMember", {})
        if sum(self.tasks.values()) > self.least:
            self.tasks = {}  # as in Volcano they do not count then
        self.running: dict[str, str] = {}
        self.done: dict[str, str] = {}

    @property
    def is_whole(self) -> bool:
        have = Counter([*self.running.values(), *self.done.values()])
        enough = have.total() >= self.least
        return enough and all(have[task] >= needed for task, needed in self.tasks.items())


def _no_job_is_cut(given: list[Raw], played: Played) -> None:
    """Once what happened at one time has happened, no job that we did something to runs in part."""
    lives = {raw["metadata"]["name"]: _Life(raw["spec"]) for raw in given if raw["kind"] == "PodGroup"}
    tasks = {
        f"Pod/default/{raw['metadata']['name']}": raw["metadata"]["annotations"].get(
            "volcano.sh/task-spec", ""
        )
        for raw in given
        if raw["kind"] == "Pod"
    }
    gone_at = {
        entry.object.rpartition("/")[2]: entry.t
        for entry in played.result.timeline
        if entry.event == "Deleted" and entry.object.startswith("PodGroup/")
    }
    for t, entries in groupby(played.result.timeline, key=lambda entry: entry.t):
        ours = set()
        for entry in entries:
            job = entry.object.rpartition("/")[2].rpartition("-")[0]
            life = lives.get(job)
            if not entry.object.startswith("Pod/") or life is None:
                continue
            if entry.event == "Bound":
                life.running[entry.object] = tasks[entry.object]
            elif entry.event == "Succeeded":
                life.running.pop(entry.object, None)  # it may have been asked to go before
                life.done[entry.object] = tasks[entry.object]
            elif entry.event in ("Preempted", "Evicted", "Deleted", "Failed"):
                life.running.pop(entry.object, None)
            if entry.event in ("Bound", "Preempted", "Evicted"):
                ours.add(job)
        for job in ours:
            if t >= gone_at.get(job, END):
                continue  # nothing says any more how many it needs
            life = lives[job]
            assert life.is_whole or not life.running, (t, job, life.running, life.done)


def _who_is_spared_stays(given: list[Raw], played: Played) -> None:
    spared = {
        f"Pod/default/{raw['metadata']['name']}"
        for raw in given
        if raw["kind"] == "Pod" and "volcano.sh/preemptable" in raw["metadata"]["annotations"]
    }
    taken = {e.object for e in played.result.timeline if e.event in ("Preempted", "Evicted")}
    assert not spared & taken


def _nothing_is_held_in_vain(played: Played) -> None:
    waiting = {raw["metadata"]["uid"] for raw in played.all("Pod") if not raw["spec"].get("nodeName")}
    for raw in played.all("Reservation"):
        if raw["metadata"].get("labels", {}).get("holdfast.io/hold") != "starvation":
            continue
        if raw["status"]["phase"] in ("Pending", "Waiting", "Available"):
            assert raw["spec"]["owners"][0]["object"]["uid"] in waiting, raw
