"""What the dashboard is sent: a snapshot, and changes that lead to the same."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from harness.claim_objects import (
    DRIVER,
    allocation,
    claim_template,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.device_objects import device, gpu
from harness.objects import node, pod, queue
from holdfast.api.names import HOLD_LABEL
from holdfast.api.times import format_time
from holdfast.local.store import Key, node_key, pod_key
from holdfast.web import live_view, node_columns, row_tables
from holdfast.web.live_view import MAX_VIEWERS, TooManyViewers
from holdfast.web.object_details import node_details, pod_details
from web.viewed_cluster import BrowserCopy, Json, ViewedCluster, reservation

WEB = {"app": "web"}


def reservation_key(name: str) -> Key:
    return Key("scheduling.koordinator.sh", "Reservation", "", name)


def named(snapshot: Json, part: str) -> dict[str, dict[str, Any]]:
    """Rows by name, each by field."""
    table = snapshot[part]
    rows = (dict(zip(table["fields"], row, strict=True)) for row in table["put"].values())
    return {row["name"]: row for row in rows}


def amounts(snapshot: Json, node: str, resource: str = "cpu") -> dict[str, int]:
    columns, index = snapshot["nodes"], snapshot["resources"].index(resource)
    at = columns["name"].index(node)
    return {name: columns[name][index][at] for name in node_columns.AMOUNTS}


def hold(name: str, cpu: str) -> Json:
    raw = reservation(name, cpu)
    raw["metadata"]["labels"] = {HOLD_LABEL: "any"}
    return raw


def owner(name: str, cpu: str) -> Json:
    raw = pod(name, cpu, labels=WEB, schedulerName="default-scheduler")
    raw["metadata"]["namespace"] = "default"
    return {**raw, "status": {"phase": "Pending"}}


def test_a_node_shows_pods_reservations_and_what_owners_use() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(reservation("peak", "4", WEB, allocateOnce=False))
    cluster.create_pod("plain", "1")
    cluster.create(owner("web-1", "3"))
    found = cluster.snapshot()
    assert amounts(found, "n1") == {
        "allocatable": 8000,
        "requested": 4000,
        "used": 3000,
        "reserved": 1000,
        "held": 0,
    }
    row = named(found, "reservations")["peak"]
    assert row["phase"] == "Available"
    assert row["node"] == "n1"
    assert row["pods"] == ["default/web-1"]
    assert row["amounts"]["cpu"] == [4000, 3000]
    assert row["owners"] == ["app=web"]
    assert row["expires"] == row["created"] + 3600


def test_pod_slots_of_holds_are_held_and_those_of_other_reservations_reserved() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(reservation("peak", "4", allocateOnce=False))
    cluster.create(hold("hold", "2"))
    cluster.create_pod("plain", "1")
    found = cluster.snapshot()
    assert {**amounts(found, "n1"), "allocatable": 0} == {
        "allocatable": 0,
        "requested": 1000,
        "used": 0,
        "reserved": 4000,
        "held": 2000,
    }
    assert {**amounts(found, "n1", "pods"), "allocatable": 0} == {
        "allocatable": 0,
        "requested": 1,
        "used": 0,
        "reserved": 1,
        "held": 1,
    }


def test_a_planned_reservation_has_its_node_and_holds_nothing_before_its_start() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    start = cluster.clock.epoch() + 600
    raw = reservation("night", "4")
    raw["metadata"]["annotations"] = {
        "holdfast.io/starts-at": format_time(start),
        "holdfast.io/lead": "5m",
    }
    cluster.create(raw)
    found = cluster.snapshot()
    row = named(found, "reservations")["night"]
    assert (row["phase"], row["state"], row["node"]) == ("Pending", "Planned", "n1")
    assert (row["starts"], row["expires"]) == (start, start + 3600)
    assert amounts(found, "n1")["reserved"] == 0
    details = node_details(cluster.cluster.world.scheduler, "n1")
    assert details is not None
    assert (details["planned"], details["reservations"]) == (["night"], [])
    cluster.after(400)
    assert named(cluster.snapshot(), "reservations")["night"]["state"] == "Draining"
    cluster.after(300)
    found = cluster.snapshot()
    row = named(found, "reservations")["night"]
    assert (row["phase"], row["state"], row["starts"]) == ("Available", "", start)
    assert amounts(found, "n1")["reserved"] == 4000


def test_a_planned_reservation_that_fits_nowhere_says_why() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    raw = reservation("large", "40")
    later = format_time(cluster.clock.epoch() + 600)
    raw["metadata"]["annotations"] = {"holdfast.io/starts-at": later}
    cluster.create(raw)
    row = named(cluster.snapshot(), "reservations")["large"]
    assert (row["state"], row["node"]) == ("NotPlanned", "")
    assert "cpu" in row["message"]


def test_a_pending_pod_has_its_reason() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")
    cluster.create_pod("huge", "40")
    found = cluster.snapshot()
    row = named(found, "pending")["huge"]
    assert row["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert row["reasons"] == ["Insufficient cpu"]
    assert row["place"] == "unschedulable"
    assert row["requests"]["cpu"] == 40000
    assert found["pending"]["total"] == 1
    assert any(event["reason"] == "FailedScheduling" for event in found["events"])


def test_a_gated_pod_says_why() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")
    cluster.create_pod("gated", schedulingGates=[{"name": "example.com/quota"}])
    cluster.create_pod("claims", resourceClaims=[{"name": "x", "resourceClaimName": "none"}])
    rows = named(cluster.snapshot(), "pending")
    assert {row["place"] for row in rows.values()} == {"gated"}
    assert rows["gated"]["message"] == "waiting for scheduling gates: [example.com/quota]"
    assert rows["claims"]["message"] == 'could not find ResourceClaim "default/none"'
    details = pod_details(cluster.cluster.world.scheduler, "default", "claims")
    assert details is not None
    assert (details["message"], details["gated"]) == ("", rows["claims"]["message"])


def test_a_pod_of_another_scheduler_is_not_served() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")
    cluster.create_pod("theirs", schedulerName="another")
    assert cluster.snapshot()["pending"]["total"] == 0
    details = pod_details(cluster.cluster.world.scheduler, "default", "theirs")
    assert details is not None
    assert details["place"] == "notServed"


def test_a_reservation_that_is_allocated_once_ends_and_its_history_stays_when_it_is_deleted() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(reservation("once", "2"))
    cluster.after(5)
    cluster.create(owner("web-1", "1500m"))
    row = named(cluster.snapshot(), "reservations")["once"]
    assert row["phase"] == "Succeeded"
    assert row["ended"] == cluster.clock.t
    assert row["amounts"]["cpu"] == [2000, 1500], "what its pod used of it"
    cluster.delete(reservation_key("once"))
    row = named(cluster.snapshot(), "reservations")["once"]
    assert row["deleted"] == cluster.clock.t


def test_only_the_latest_deleted_reservations_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tables, "MAX_PAST", 2)
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    for name in ("a", "b", "c"):
        cluster.create(reservation(name, "1"))
        cluster.snapshot()
        cluster.delete(reservation_key(name))
    assert set(named(cluster.snapshot(), "reservations")) == {"b", "c"}


def test_flags_labels_and_taints() -> None:
    cluster = ViewedCluster()
    raw = node("n1", "4", "8Gi", labels={"topology.kubernetes.io/zone": "a"}, unschedulable=True)
    raw["spec"]["taints"] = [
        {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
        {"key": "spot", "effect": "NoSchedule"},
    ]
    cluster.create(raw)
    copy = BrowserCopy(cluster.snapshot())
    (found,) = copy.nodes.values()
    assert found["flags"] & node_columns.CORDONED
    assert found["flags"] & node_columns.TAINTED
    assert "dedicated=ml:NoSchedule" in found["taints"]
    assert "topology.kubernetes.io/zone=a" in found["labels"]
    details = node_details(cluster.cluster.world.scheduler, "n1")
    assert details is not None
    assert {"dedicated=ml:NoSchedule", "spot:NoSchedule"} <= {*details["taints"]}


def test_gpus_are_shown_by_their_share() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(device("n1", gpu(0), gpu(1), gpu(2), gpu(3, health=False)))
    whole = reservation("gpu", "1", allocateOnce=False)
    requests = whole["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    requests["koordinator.sh/gpu"] = "100"
    cluster.create(whole)
    raw = owner("half", "1")
    raw["metadata"]["labels"] = {"app": "other"}
    raw["spec"]["containers"][0]["resources"]["requests"]["koordinator.sh/gpu"] = "50"
    cluster.create(raw)
    (found,) = BrowserCopy(cluster.snapshot()).nodes.values()
    healthy = [cell[:3] for cell in found["gpus"] if cell[3]]
    assert len(found["gpus"]) == 4
    assert sorted(healthy) == [[0, 0, 0], [0, 100, 0], [50, 0, 0]]


def test_a_gpu_that_is_shared_or_held_is_not_free() -> None:
    cluster = ViewedCluster()
    raw = node("n1", "8", "8Gi")
    raw["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    cluster.create(raw)
    cluster.create(device("n1", *map(gpu, range(4))))
    for raw, requested in (
        (reservation("kept", "1", allocateOnce=False), {"nvidia.com/gpu": "1"}),
        (hold("hold", "1"), {"koordinator.sh/gpu": "100"}),
    ):
        requests = raw["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
        requests |= requested
        cluster.create(raw)
    raw = owner("half", "1")
    raw["metadata"]["labels"] = {"app": "other"}
    raw["spec"]["containers"][0]["resources"]["requests"]["koordinator.sh/gpu"] = "50"
    cluster.create(raw)
    found = cluster.snapshot()
    assert [name for name in found["resources"] if "gpu" in name] == ["nvidia.com/gpu"]
    assert amounts(found, "n1", "nvidia.com/gpu") == {
        "allocatable": 4,
        "requested": 1,
        "used": 0,
        "reserved": 1,
        "held": 1,
    }
    (found,) = BrowserCopy(found).nodes.values()
    assert sorted(found["gpus"]) == [[0, 0, 0, 1], [0, 0, 100, 1], [0, 100, 0, 1], [50, 0, 0, 1]]


def test_queues_have_their_shares() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(queue("team", weight=3))
    cluster.create_pod("p", "2")
    row = named(cluster.snapshot(), "queues")["team"]
    assert row["weight"] == 3
    assert row["state"] == "Open"
    assert row["capability"] is None


def test_queues_show_what_pods_that_are_not_admitted_request() -> None:
    """No pods of several queues compete, so that the scheduler has no reason to compute shares."""
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(queue("small", capability={"cpu": "2"}))
    annotations = {"scheduling.volcano.sh/queue-name": "small"}
    over = pod("over", "4", annotations=annotations, schedulerName="default-scheduler")
    cluster.create({**over, "status": {"phase": "Pending"}})
    row = named(cluster.snapshot(), "queues")["small"]
    assert row["requested"]["cpu"] == 4000
    assert row["deserved"]["cpu"] == 2000
    assert row["allocated"].get("cpu", 0) == 0
    assert row["share"] == 0


def test_devices_of_claims_are_shown_by_driver() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create_node("n2", "8")
    cluster.create(device_class())
    cluster.create(resource_slice("n1", 2))
    assert amounts(cluster.snapshot(), "n1", f"{DRIVER}/devices")["allocatable"] == 2
    uses = [{"resource": "pods", "name": "p", "uid": "pod-p"}]
    theirs = resource_claim("c", request(), allocation=allocation("n1", "gpu-0"), reservedFor=uses)
    cluster.create(theirs)
    shown = amounts(cluster.snapshot(), "n1", f"{DRIVER}/devices")
    assert (shown["allocatable"], shown["requested"], shown["reserved"]) == (2, 1, 0)
    assert amounts(cluster.snapshot(), "n2", f"{DRIVER}/devices")["allocatable"] == 0


def test_devices_of_claims_that_holds_keep_are_held_and_those_of_other_reservations_reserved() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(device_class())
    cluster.create(resource_slice("n1", 4))
    cluster.create(claim_template("two", request(count=2)))
    cluster.create(claim_template("one", request()))
    for raw, template in ((reservation("kept", "1"), "two"), (hold("hold", "1"), "one")):
        entry = {"name": "x", "resourceClaimTemplateName": template}
        raw["spec"]["template"]["metadata"] = {"namespace": "default"}
        raw["spec"]["template"]["spec"]["resourceClaims"] = [entry]
        cluster.create(raw)
    assert amounts(cluster.snapshot(), "n1", f"{DRIVER}/devices") == {
        "allocatable": 4,
        "requested": 0,
        "used": 0,
        "reserved": 2,
        "held": 1,
    }


def test_a_pod_shows_the_devices_of_its_claims() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create(device_class())
    cluster.create(resource_slice("n1", 2))
    cluster.create(resource_claim("c", request(count=2)))
    cluster.create_pod("p", resourceClaims=[{"name": "x", "resourceClaimName": "c"}])
    cluster.snapshot()
    found = pod_details(cluster.cluster.world.scheduler, "default", "p")
    assert found is not None
    assert found["node"] == "n1"
    assert found["requests"] == {"cpu": 1000, f"{DRIVER}/devices": 2}


def test_changes_lead_to_what_a_new_browser_is_sent() -> None:
    """The same lives of objects, seen by one that follows and by one that comes at the end."""
    random_ = random.Random(7)
    cluster = ViewedCluster()
    cluster.create_node("n0", "8")
    copy = BrowserCopy(cluster.snapshot())
    keys: list[Key] = []
    for number in range(120):
        _do_something(cluster, random_, number, keys)
        if random_.random() < 0.5:
            continue
        cluster.snapshot()  # refreshes
        changes = cluster.view.changes_after(copy.stream, copy.sequence)
        if changes is None:
            copy = BrowserCopy(cluster.snapshot())  # a resource came or went: other columns
            continue
        for change in changes:
            copy.apply(msgspec.json.decode(change.text))
        assert copy.content() == BrowserCopy(cluster.snapshot()).content(), number


def _do_something(cluster: ViewedCluster, random_: random.Random, number: int, keys: list[Key]) -> None:
    match random_.randrange(7):
        case 0:
            keys.append(cluster.create_node(f"n{number}", random_.choice(["4", "8"])))
        case 1 | 2:
            keys.append(cluster.create_pod(f"p{number}", random_.choice(["1", "3", "20"])))
        case 3:
            cluster.create(owner(f"w{number}", "1"))
            keys.append(pod_key("default", f"w{number}"))
        case 4:
            once = random_.random() < 0.5
            cluster.create(reservation(f"r{number}", "2", WEB, allocateOnce=once))
            keys.append(reservation_key(f"r{number}"))
        case 5 if keys:
            key = keys.pop(random_.randrange(len(keys)))
            if key in cluster.store:
                cluster.delete(key)
        case 6:
            nodes = [key for key in keys if key.kind == "Node" and key in cluster.store]
            if nodes:
                cluster.update(nodes[0], spec={"unschedulable": random_.random() < 0.5})
        case _:
            cluster.after(1)


def test_a_node_of_the_same_name_again_is_the_new_one() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")
    copy = BrowserCopy(cluster.snapshot())
    cluster.delete(node_key("n1"))
    cluster.create_node("n1", "16")
    cluster.snapshot()
    for change in cluster.view.changes_after(copy.stream, copy.sequence) or ():
        copy.apply(msgspec.json.decode(change.text))
    assert [node["allocatable"][0] for node in copy.nodes.values()] == [16000]


def test_nothing_changes_without_a_change() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")
    before = cluster.snapshot()
    assert cluster.snapshot()["sequence"] == before["sequence"]


def test_many_pending_pods_are_counted_and_some_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tables, "MAX_PENDING", 20)
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")
    for number in range(50):
        raw = owner(f"huge-{number}", "40")
        cluster.cluster.world.objects.create(raw)
    cluster.settle()
    found = cluster.snapshot()
    assert found["pending"]["total"] == 50
    assert 1 <= len(found["pending"]["put"]) <= 20
    assert {row["like"] for row in named(found, "pending").values()} == {50}


def test_large_clusters_are_sent_without_single_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_columns, "MAX_PODS_IN_BARS", 2)
    cluster = ViewedCluster()
    cluster.create_node("n1", "8")
    cluster.create_pod("a")
    first = cluster.snapshot()
    assert first["nodes"]["pods"] == [[["default/a", [1000, 0, 1], ""]]]
    for name in ("b", "c", "d"):
        cluster.create_pod(name)
    second = cluster.snapshot()
    assert "pods" not in second["nodes"]
    assert second["stream"] != first["stream"]


def test_a_browser_that_was_away_too_long_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "_KEPT_CHANGES", 2)
    cluster = ViewedCluster()
    first = cluster.snapshot()
    for number in range(4):
        cluster.create_node(f"n{number}", "4")
        cluster.snapshot()
    stream, sequence = first["stream"], first["sequence"]
    assert cluster.view.changes_after(stream, sequence) is None
    assert cluster.view.changes_after(stream, sequence + 4) == []
    assert len(cluster.view.changes_after(stream, sequence + 2) or ()) == 2
    assert cluster.view.changes_after("another", sequence) is None
    assert cluster.view.changes_after(stream, sequence + 99) is None


def test_another_scheduler_is_another_stream() -> None:
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")
    first = cluster.snapshot()
    cluster.watched.attach(None)
    assert asyncio.run(cluster.view.snapshot()) == b""
    cluster.cluster.world.restart_scheduler()
    cluster.watched.attach(cluster.cluster.world.scheduler)
    second = cluster.snapshot()
    assert second["stream"] != first["stream"]
    assert second["nodes"]["name"] == ["n1"]


def test_nothing_is_read_without_browsers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "_PAUSE", 0.001)
    monkeypatch.setattr(live_view, "_FORGET", 0.01)
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")
    assert cluster.view.is_idle

    async def come_and_go() -> None:
        await cluster.view.snapshot()
        assert not cluster.view.is_idle
        async with asyncio.timeout(10):
            while not cluster.view.is_idle:
                await asyncio.sleep(0.002)

    asyncio.run(come_and_go())


def test_followers_get_changes_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "_PAUSE", 0.001)
    cluster = ViewedCluster()
    cluster.create_node("n1", "4")

    async def follow() -> list[Json]:
        first: Json = msgspec.json.decode(await cluster.view.snapshot())
        changes = cluster.view.follow(first["stream"], first["sequence"])
        assert await anext(changes) == (0, b"")
        cluster.cluster.world.objects.create(node("n2", "4", "8Gi"))
        async with asyncio.timeout(10):
            sequence, text = await anext(changes)
        assert sequence == first["sequence"] + 1
        await changes.aclose()
        assert cluster.view.viewers == 0
        await cluster.view.close()
        return [msgspec.json.decode(text)]

    (found,) = asyncio.run(follow())
    assert found["nodes"]["name"] == ["n2"]


def test_there_is_a_limit_to_followers() -> None:
    cluster = ViewedCluster()

    async def follow() -> None:
        first: Json = msgspec.json.decode(await cluster.view.snapshot())
        streams = [cluster.view.follow(first["stream"], 0) for _ in range(MAX_VIEWERS + 1)]
        for stream in streams[:-1]:
            await anext(stream)
        with pytest.raises(TooManyViewers):
            await anext(streams[-1])
        for stream in streams:
            await stream.aclose()
        await cluster.view.close()

    asyncio.run(follow())
