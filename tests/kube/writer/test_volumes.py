"""What must be so of volumes before their pod is bound."""

from __future__ import annotations

import asyncio
from typing import Any

from harness.builders import make_pod
from harness.fake_api import Fault, Raw
from harness.virtual_time import run, until
from holdfast.scheduler.cluster.decisions import Bind, BindVolume, SelectNode
from kube.writer.writer_fixture import CLAIMS, desk, ref


def claim(name: str = "c") -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
    }


def volume(name: str = "v", **spec: Any) -> Raw:
    meta: Raw = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def bound(raw: Raw, to: str) -> Raw:
    annotations = {**raw["metadata"].get("annotations", {}), "pv.kubernetes.io/bind-completed": "yes"}
    return {
        **raw,
        "metadata": {**raw["metadata"], "annotations": annotations},
        "spec": {**raw["spec"], "volumeName": to},
    }


def test_a_pod_is_bound_once_its_claim_is() -> None:
    async def story() -> None:
        async with desk() as d:
            pod, v, c = d.api.create(make_pod("p").raw()), d.api.create(volume()), d.api.create(claim())
            d.claim_changed(c)
            d.writer.carry_out([BindVolume(ref(v), ref(c)), Bind(ref(pod), "n")])
            await asyncio.sleep(100)
            written = d.api.get("/api/v1/persistentvolumes", "v", "")
            assert written["spec"]["claimRef"]["uid"] == c["metadata"]["uid"]
            assert written["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
            assert d.api.binds == []
            d.claim_changed(d.api.change(bound(c, "v")))
            await until(lambda: d.api.binds)
            assert d.fed_events() == ["BindConfirmed"]

    run(story())


def test_a_volume_that_named_its_claim_is_not_marked() -> None:
    async def story() -> None:
        async with desk() as d:
            c = d.api.create(claim())
            v = d.api.create(volume(claimRef={"namespace": "default", "name": "c"}))
            pod = d.api.create(make_pod("p").raw())
            d.claim_changed(d.api.change(bound(c, "v")))
            await d.do(BindVolume(ref(v), ref(c)), Bind(ref(pod), "n"))
            written = d.api.get("/api/v1/persistentvolumes", "v", "")
            assert written["spec"]["claimRef"]["uid"] == c["metadata"]["uid"]
            assert "annotations" not in written["metadata"]

    run(story())


def test_a_volume_taken_by_another_claim_fails_the_bind() -> None:
    async def story() -> None:
        async with desk() as d:
            c, pod = d.api.create(claim()), d.api.create(make_pod("p").raw())
            theirs = {"namespace": "default", "name": "other", "uid": "x"}
            v = d.api.create(volume(claimRef=theirs))
            await d.do(BindVolume(ref(v), ref(c)), Bind(ref(pod), "n"))
            assert d.fed_events() == ["Updated", 'BindRefused: volume "v" is bound to another claim']
            assert d.api.binds == []

    run(story())


def test_a_claim_whose_volume_cannot_be_made_fails_the_bind() -> None:
    async def story() -> None:
        async with desk() as d:
            c, pod = d.api.create(claim()), d.api.create(make_pod("p").raw())
            d.claim_changed(c)
            d.writer.carry_out([SelectNode(ref(c), "n"), Bind(ref(pod), "n")])
            await asyncio.sleep(1)
            selected = d.api.get(CLAIMS, "c")
            assert selected["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n"}
            d.claim_changed(c)  # an old version: not an answer to our write
            await asyncio.sleep(1)
            assert d.fed == []
            d.claim_changed(selected)
            await asyncio.sleep(1)
            given_up = {**selected, "metadata": {**selected["metadata"], "annotations": {}}}
            d.claim_changed(d.api.change(given_up))
            await until(lambda: len(d.writer.queue) == 0)
            assert d.fed_events() == ["Updated", 'BindRefused: provisioning failed for PVC "c"']

    run(story())


def test_claims_are_not_waited_for_for_ever() -> None:
    async def story() -> None:
        async with desk() as d:
            c, pod = d.api.create(claim()), d.api.create(make_pod("p").raw())
            d.claim_changed(c)
            await d.do(SelectNode(ref(c), "n"), Bind(ref(pod), "n"))
            assert d.fed_events() == ["Updated", "BindRefused: timed out waiting for the condition"]
            assert 600 <= asyncio.get_running_loop().time() < 610
            assert len(d.writer.claims) == 0

    run(story())


def test_a_conflict_on_a_volume_is_looked_at_again() -> None:
    async def story() -> None:
        async with desk() as d:
            c, v = d.api.create(claim()), d.api.create(volume())
            pod = d.api.create(make_pod("p").raw())
            d.claim_changed(d.api.change(bound(c, "v")))
            d.api.faults.append(Fault("PATCH", "persistentvolumes", status=409, reason="Conflict"))
            await d.do(BindVolume(ref(v), ref(c)), Bind(ref(pod), "n"))
            assert d.fed_events() == ["BindConfirmed"]

    run(story())
