"""Annotations on pods: they are there before the pod is bound, or the core hears why not."""

from __future__ import annotations

import pytest

from harness.builders import make_pod
from harness.fake_api import Fault
from harness.virtual_time import run
from holdfast.scheduler.cluster.decisions import AnnotatePod, Bind
from holdfast.scheduler.cluster.events import AnnotateRefused, BindConfirmed, write_refused
from kube.writer.writer_fixture import PODS, desk, ref


@pytest.mark.parametrize(
    ("faults", "refusals", "written"),
    [
        pytest.param([], [], {"kept": "1", "new": "2"}, id="granted"),
        pytest.param([Fault("PATCH", status=503, times=3)], [], {"kept": "1", "new": "2"}, id="late"),
        pytest.param(
            [Fault("PATCH", cut="after")], [], {"kept": "1", "new": "2"}, id="there was no answer"
        ),
        pytest.param(
            [Fault("PATCH", status=403)], ["403: scripted"], {"kept": "1", "old": "0"}, id="refused"
        ),
    ],
)
def test_they_are_written_or_the_core_hears_why_not(
    faults: list[Fault], refusals: list[str], written: dict[str, str]
) -> None:
    async def story() -> None:
        async with desk() as d:
            raw = make_pod("p").raw()
            raw["metadata"]["annotations"] = {"kept": "1", "old": "0"}
            pod = d.api.create(raw)
            d.api.faults += faults
            decision = AnnotatePod(ref(pod), {"new": "2", "old": None})
            await d.do(decision)
            assert d.fed == [write_refused(decision, why) for why in refusals]
            [found] = d.api.all(PODS)
            assert found["metadata"]["annotations"] == written

    run(story())


def test_a_recreated_pod_is_not_annotated() -> None:
    async def story() -> None:
        async with desk() as d:
            gone = ref(d.api.create(make_pod("p").raw()))
            d.api.delete(d.api.all(PODS)[0])
            another = make_pod("p").raw()
            another["metadata"]["uid"] = "another"
            d.api.create(another)
            await d.do(AnnotatePod(gone, {"new": "2"}))
            assert [type(event) for event in d.fed] == [AnnotateRefused]
            assert not d.api.all(PODS)[0]["metadata"].get("annotations")

    run(story())


def test_they_come_before_the_bind() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(Fault("PATCH", status=503, times=2))
            await d.do(AnnotatePod(ref(pod), {"new": "2"}), Bind(ref(pod), "n1"))
            assert [type(event) for event in d.fed] == [BindConfirmed]
            methods = [method for method, _, _ in d.api.bodies]
            assert methods.index("POST") > methods.index("PATCH")

    run(story())
