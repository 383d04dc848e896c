"""Conditions of pods that have no node."""

from __future__ import annotations

import asyncio

from harness.builders import make_pod
from harness.fake_api import Fault
from harness.virtual_time import run, until
from holdfast.api.decode import decode
from holdfast.scheduler.cluster.decisions import Bind, Nominate, SetPodScheduled
from holdfast.scheduler.cluster.events import Updated
from kube.writer.writer_fixture import PODS, desk, ref


def test_nomination_and_condition_go_in_one_patch() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            await d.do(
                Nominate(ref(pod), "n"), SetPodScheduled(ref(pod), "Unschedulable", "no capacity")
            )
            assert d.api.count("PATCH") == 1
            status = d.api.get(PODS, "p")["status"]
            assert status["nominatedNodeName"] == "n"
            (condition,) = status["conditions"]
            assert condition == {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "no capacity",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            await d.do(Nominate(ref(pod), ""))
            assert "nominatedNodeName" not in d.api.get(PODS, "p")["status"]

    run(story())


def test_an_unchanged_condition_is_not_written_again() -> None:
    async def story() -> None:
        async with desk() as d:
            made = make_pod("p").condition("PodScheduled", "False", "Unschedulable", "no").raw()
            pod = d.api.create(made)
            d.writer.saw(Updated(decode(pod)))  # as after a restart
            await d.do(SetPodScheduled(ref(pod), "Unschedulable", "no"))
            assert d.api.count("PATCH") == 0
            await d.do(SetPodScheduled(ref(pod), "Unschedulable", "still no"))
            (condition,) = d.api.get(PODS, "p")["status"]["conditions"]
            assert condition["message"] == "still no"
            assert "lastTransitionTime" not in condition, "only the reason changed, not the status"
            # News from before our write does not make us forget it.
            d.writer.saw(Updated(decode(pod)))
            await d.do(SetPodScheduled(ref(pod), "Unschedulable", "no"))
            (condition,) = d.api.get(PODS, "p")["status"]["conditions"]
            assert condition["message"] == "no"

    run(story())


def test_a_pod_about_to_be_bound_gets_no_unschedulable_condition() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(f"p{i}").raw()) for i in range(100)]
            refs = [ref(pod) for pod in pods]
            d.writer.carry_out([Bind(r, "n") for r in refs[:50]])  # fills the slots
            d.writer.carry_out([SetPodScheduled(r, "Unschedulable", "no") for r in refs[50:]])
            d.writer.carry_out([Bind(r, "n") for r in refs[50:]])
            await until(lambda: len(d.writer.queue) == 0)
            assert d.api.count("PATCH") == 0
            assert len(d.api.binds) == 100

    run(story())


def test_the_last_word_wins_where_the_server_was_slow() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(Fault("PATCH", status=503, times=2))
            d.writer.carry_out([SetPodScheduled(ref(pod), "Unschedulable", "one")])
            await asyncio.sleep(0.1)
            await d.do(SetPodScheduled(ref(pod), "Unschedulable", "two"), Nominate(ref(pod), "n"))
            status = d.api.get(PODS, "p")["status"]
            assert status["conditions"][0]["message"] == "two"
            assert status["nominatedNodeName"] == "n"

    run(story())
