"""Jobs, queues, holds, preemption and restarts at random.

The simulation checks after every step that the state is right and that nothing is sold twice. Here it
is checked besides that no job runs with fewer than it needs by our doing, and that nothing is held for
who does not wait any more.
"""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.stage import Played, Raw, actions, gang, group, in_queue, node, play, pod, queue, step

END = 300
TIMES = st.integers(0, 150).map(lambda t: f"{t}s")
LENGTHS = st.integers(1, 80).map(lambda t: f"{t}s")
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
    made = group(name, draw(st.integers(1, count)), at=draw(TIMES), **spec)
    cpu, at, priority = draw(st.integers(0, 4)), draw(TIMES), draw(st.sampled_from((0, 5, 20)))
    return [made, *(_ending(draw, p) for p in gang(name, count, cpu, at=at, priority=priority))]


def _ending(draw: st.DrawFn, made: Raw) -> Raw:
    end = draw(st.sampled_from(("runs-for", "runs-for", "delete-at", "")))
    if end:
        made["metadata"]["annotations"][f"sim.holdfast.io/{end}"] = (
            draw(LENGTHS) if end == "runs-for" else f"{draw(st.integers(151, 250))}s"
        )
    return made


@st.composite
def scenario(draw: st.DrawFn) -> tuple[list[Raw], Raw]:
    given: list[Raw] = [node(f"n{i}", draw(st.integers(1, 5))) for i in range(draw(st.integers(1, 3)))]
    given += [queue("a", draw(st.integers(1, 3))), queue("b", capability={"cpu": "4"})]
    given += [draw(plain_pod(i)) for i in range(draw(st.integers(1, 8)))]
    for i in range(draw(st.integers(0, 3))):
        given += draw(job(i))
    for _ in range(draw(st.integers(0, 2))):
        given.append(step(draw(TIMES), restart="scheduler"))
    if draw(st.booleans()):
        given.append(step(draw(TIMES), apply=node("late", draw(st.integers(1, 5)))))
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
    _nothing_is_held_in_vain(played)


def _no_job_is_cut(given: list[Raw], played: Played) -> None:
    least = {
        raw["metadata"]["name"]: raw["spec"]["minMember"] for raw in given if raw["kind"] == "PodGroup"
    }
    running: Counter[str] = Counter()
    done: Counter[str] = Counter()
    timeline = played.result.timeline
    for i, entry in enumerate(timeline):
        job = entry.object.rpartition("/")[2].rpartition("-")[0]
        if not entry.object.startswith("Pod/") or job not in least:
            continue
        if entry.event == "Bound":
            running[job] += 1
        elif entry.event == "Succeeded":
            running[job] -= 1
            done[job] += 1
        elif entry.event in ("Preempted", "Evicted", "Failed") or (
            entry.event == "Deleted" and not _was_told_to_go(timeline[:i], entry.object)
        ):
            running[job] -= bool(entry.node)
        same = [e for e in timeline[i + 1 : i + 20] if e.t == entry.t and f"/{job}-" in e.object]
        if entry.event in ("Bound", "Preempted", "Evicted") and not any(
            e.event in ("Bound", "Preempted", "Evicted") for e in same
        ):
            assert running[job] + done[job] >= least[job] or running[job] <= 0, (entry, running)


def _was_told_to_go(before: list[Any], name: str) -> bool:
    ended = ("Preempted", "Evicted", "Succeeded", "Failed")
    return any(entry.object == name and entry.event in ended for entry in before)


def _nothing_is_held_in_vain(played: Played) -> None:
    waiting = {raw["metadata"]["uid"] for raw in played.all("Pod") if not raw["spec"].get("nodeName")}
    for raw in played.all("Reservation"):
        if raw["metadata"].get("labels", {}).get("holdfast.io/hold") != "starvation":
            continue
        if raw["status"]["phase"] in ("Pending", "Waiting", "Available"):
            assert raw["spec"]["owners"][0]["object"]["uid"] in waiting, raw
