"""Objects that only plugins read, on an API server that may not have, or not show, their kind."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from harness.fake_api import FakeApi, Fault, Raw
from harness.fake_client import FakeClient
from harness.objects import node, own_pod
from harness.runner_cluster import running
from harness.team_quotas import QUOTA, TeamQuotas, quota
from harness.virtual_time import run, until
from holdfast.api.raw_objects import ObjectKind, RawObject
from holdfast.kube.client import path_of
from holdfast.kube.decoding import WATCHED, Broken, decode_frame, decode_page, read_by_plugins
from holdfast.kube.reflector import Reflector
from holdfast.scheduler.cluster.events import Added, Deleted, Event, Updated

PATH = "/apis/example.com/v1/teamquotas"
INFO = QUOTA.info()
FOREVER = float("inf")


def of_team(name: str, team: str = "a") -> Raw:
    raw = own_pod(name)
    raw["metadata"]["labels"] = {"team": team}
    return raw


def known_paths() -> set[str]:
    return {path_of(each.info) for each in WATCHED} | {"/apis/events.k8s.io/v1/events"}


class Logged:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, event: str, **particulars: Any) -> None:
        self.lines.append({"event": event, **particulars})

    def of(self, event: str) -> list[dict[str, Any]]:
        about = "teamquotas.v1.example.com"
        return [line for line in self.lines if line["event"] == event and line["resource"] == about]


def test_a_plugin_reads_its_objects_from_the_server() -> None:
    async def story() -> None:
        api = FakeApi()
        api.create(node("n"))
        made = api.create(quota("a", closed=True))
        api.create(of_team("p"))
        api.create(own_pod("free"))
        async with running(api, plugins=(TeamQuotas,)) as cluster:
            await cluster.quiet()
            assert api.pods() == {"p": "", "free": "n"}
            api.change({**made, "spec": {"maxCPU": 4}})
            await until(lambda: api.pods()["p"] == "n")
            api.delete(made)
            api.create(of_team("later"))
            await cluster.quiet()
            (condition,) = api.get("/api/v1/pods", "later")["status"]["conditions"]
            assert "no TeamQuota a" in condition["message"]
            api.create(quota("a", maxCPU=9))
            await until(lambda: api.pods()["later"] == "n")

    run(story())


def test_a_kind_the_server_does_not_have_counts_as_empty_and_is_looked_for_again() -> None:
    async def story() -> None:
        api, log = FakeApi(), Logged()
        api.served = known_paths()
        api.create(node("n"))
        api.create(of_team("p"))
        api.create(own_pod("free"))
        async with running(api, plugins=(TeamQuotas,), log=log) as cluster:
            await cluster.quiet()
            assert cluster.runner.unsynced() == []
            assert api.pods() == {"p": "", "free": "n"}
            await asyncio.sleep(300)
            asked = api.count("GET", PATH)
            assert 8 <= asked <= 20
            [line] = log.of("reflector absent")
            assert (
                "plugin TeamQuotas reads it, and sees no objects until the server has it"
                in line["detail"]
            )
            assert cluster.scheduler.cluster.reservations.are_kept
            # Its definition is installed.
            api.served.add(PATH)
            made = api.create(quota("a"))
            await until(lambda: api.pods()["p"] == "n")
            # And deleted again, with all objects, and made again.
            api.served.discard(PATH)
            api.delete(made)
            api.end_watches()
            api.create(of_team("q"))
            await cluster.quiet()
            assert api.pods()["q"] == ""
            await until(lambda: len(log.of("reflector absent")) == 2)
            api.served.add(PATH)
            api.create(quota("a", maxCPU=9))
            await until(lambda: api.pods()["q"] == "n")

    run(story())


def test_a_forbidden_list_is_reported_with_the_missing_rule() -> None:
    async def story() -> None:
        api, log = FakeApi(), Logged()
        api.create(node("n"))
        api.create(own_pod("free"))
        message = 'teamquotas.example.com is forbidden: User "x" cannot list resource'
        fault = Fault("", PATH, status=403, reason="Forbidden", message=message, times=FOREVER)
        api.faults.append(fault)
        async with running(api, plugins=(TeamQuotas,), log=log) as cluster:
            await asyncio.sleep(120)
            # A plugin that sees none of its objects may let pods pass that it should not.
            assert api.pods() == {"free": ""}
            [problem] = cluster.runner.unsynced()
            assert problem.startswith(f"teamquotas.v1.example.com: 403 Forbidden: {message}; plugin ")
            [line] = log.of("reflector failed")
            assert line["level"] == "warning"
            assert (
                "plugin TeamQuotas reads it, so the ClusterRole of the scheduler needs a rule with "
                'apiGroups ["example.com"], resources [teamquotas], verbs [get, list, watch]'
            ) in line["detail"]
            fault.times = 0
            await until(lambda: api.pods() == {"free": "n"})

    run(story())


def test_what_was_read_before_a_permission_is_lost_stays_known() -> None:
    async def story() -> None:
        api, log = FakeApi(), Logged()
        api.create(node("n"))
        api.create(quota("a", maxCPU=9))
        async with running(api, plugins=(TeamQuotas,), log=log) as cluster:
            await cluster.quiet()
            api.faults.append(Fault("", PATH, status=403, reason="Forbidden", times=FOREVER))
            api.end_watches()
            await asyncio.sleep(60)
            assert sum("Forbidden" in line["detail"] for line in log.of("reflector failed")) == 1
            api.create(of_team("p"))
            await until(lambda: api.pods() == {"p": "n"})

    run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_objects_come_as_the_server_has_them(stream: bool) -> None:
    async def story() -> None:
        api = FakeApi()
        api.streams = stream
        kept = quota("a", note=None, nested={"deep": [1, {"x": 2.5}]})
        made = api.create({**kept, "metadata": {**kept["metadata"], "managedFields": [{"a": 1}]}})
        heard: list[Event] = []
        [watched] = read_by_plugins({QUOTA: ("TeamQuotas",)})
        reflector = Reflector(
            FakeClient(api), watched, heard.append, stream=stream, rng=random.Random(1)
        )
        task = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        [first] = heard
        assert isinstance(first, Added) and isinstance(first.object, RawObject)
        del made["metadata"]["managedFields"]
        assert first.object.raw == made
        api.change({**made, "spec": {}})
        api.delete(made)
        await until(lambda: len(heard) == 3)
        assert [type(event) for event in heard] == [Added, Updated, Deleted]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(story())


@pytest.mark.parametrize(
    ("item", "name"),
    [
        (b'{"metadata": {"name": "b", "namespace": "x", "labels": 5}}', "b"),
        (b'{"metadata": "none"}', ""),
        (b"17", ""),
        (b"[" * 600 + b"]" * 600, ""),
    ],
)
def test_an_invalid_object_affects_no_other(item: bytes, name: str) -> None:
    good = b'{"metadata": {"name": "a", "namespace": "x"}, "spec": {"b": null}}'
    page = decode_page(
        INFO, b'{"metadata": {"resourceVersion": "7"}, "items": [%b, %b]}' % (item, good)
    )
    broken, found = page.items
    assert isinstance(broken, Broken) and isinstance(found, RawObject)
    assert (broken.event.api_version, broken.event.name) == ("example.com/v1", name)
    assert found.raw["spec"] == {"b": None} and page.resource_version == "7"
    frame = decode_frame(INFO, b'{"type": "ADDED", "object": %b}' % item)
    assert isinstance(frame.object, Broken)


def test_names_of_what_is_watched_are_unique_and_plain() -> None:
    kinds = {
        QUOTA: ("A", "B"),
        ObjectKind("", "v1", "Service", "services"): ("A",),
        ObjectKind("example.com", "v1beta1", "TeamQuota", "teamquotas"): ("A",),
    }
    watched = read_by_plugins(kinds)
    names = [each.name for each in (*WATCHED, *watched)]
    assert len(names) == len(set(names))
    assert [each.name for each in watched] == [
        "teamquotas.v1.example.com",
        "services.v1",
        "teamquotas.v1beta1.example.com",
    ]
    assert watched[0].remedy.startswith("plugins A and B read it")
