"""Planned reservations of host ports, exclusive CPUs, devices and volumes.

Each kind is a node that can serve one user at a time, though amounts would allow two.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from harness.claim_objects import claim_template, device_class, request, resource_slice
from harness.device_objects import device, gpu
from harness.numa_objects import topology
from harness.objects import Raw, node, pod, reservation
from harness.scenarios import Played, condition, play, step
from holdfast.api.times import format_time, parse_time

BEGIN = parse_time("2026-01-01T00:00:00Z")
HOUR = 3600
DISK = {"volumes": [{"name": "disk", "gcePersistentDisk": {"pdName": "disk"}}]}
CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]


class Kind(NamedTuple):
    """A particular resource: a node that has it, and what requests it."""

    node: Callable[[str], list[Raw]]
    spec: Raw
    requests: Raw
    common: list[Raw]


def agent(name: str, on: str, requests: Raw) -> Raw:
    """A pod that stays as long as its node."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "a", "controller": True}
    return pod(name, requests=requests, nodeName=on, metadata={"ownerReferences": [owner]})


def _half_gpus(name: str) -> list[Raw]:
    """A GPU has 40 % free, the other is free: 60 % fits once, though twice that is free."""
    first = agent(f"{name}-first", name, {"koordinator.sh/gpu": 60})
    return [node(name, 16), device(name, gpu(0), gpu(1)), first]


def _numa_nodes(name: str) -> list[Raw]:
    """One NUMA node has one cpu left, the other three: two fit once, though four are left."""
    first = agent(f"{name}-first", name, {"cpu": 2})
    listed = topology(name, cpus=6, numa=2, threads=1, policies=["SingleNUMANodePodLevel"])
    return [listed, node(name, 6), first]


KINDS = {
    "disk": Kind(lambda name: [node(name, 16)], DISK, {"cpu": 1}, []),
    "port": Kind(lambda name: [node(name, 16)], {"ports": [80]}, {"cpu": 1}, []),
    "device": Kind(_half_gpus, {}, {"koordinator.sh/gpu": 60}, []),
    "numa": Kind(_numa_nodes, {}, {"cpu": 2}, []),
    "claim": Kind(
        lambda name: [node(name, 16), resource_slice(name, 1)],
        {"resourceClaims": CLAIMS},
        {"cpu": 1},
        [device_class(), claim_template("gpu")],
    ),
}


class Case:
    """Scenarios with one kind of particular resource."""

    def __init__(self, name: str) -> None:
        self.kind = KINDS[name]

    def user(self, name: str, estimate: int | None = None, **more: Any) -> Raw:
        annotations = {} if estimate is None else {"holdfast.io/run-estimate": f"{estimate}m"}
        if estimate is not None:
            more.setdefault("runs_for", f"{estimate}m")
        if on := more.pop("on", ""):
            more["nodeSelector"] = {"kubernetes.io/hostname": on}
        return pod(
            name, annotations=annotations, **{"requests": self.kind.requests, **self.kind.spec, **more}
        )

    def window(self, name: str, start: int, length: int = 60, **more: Any) -> Raw:
        starts = {
            "holdfast.io/starts-at": format_time(BEGIN + start * 60),
            **more.pop("annotations", {}),
        }
        return reservation(
            name,
            app=name,
            requests=self.kind.requests,
            pod=self.kind.spec,
            annotations=starts,
            ttl=f"{length}m",
            **more,
        )

    def play(self, nodes: int, *given: Raw, until: int) -> Played:
        made = [raw for i in range(nodes) for raw in self.kind.node(f"n{i}")]
        return play(self.kind.common, made, list(given), until=until * 60)


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def plan(played: Played, name: str) -> tuple[str, str]:
    """The planned node, and the status of Feasible."""
    found = played.find("Reservation", name)
    return found["status"].get("nodeName") or "", condition(found, "Feasible")["status"]


def starts(played: Played, name: str) -> list[tuple[float, str]]:
    """Its phases, of each moment the last: devices by claim are held once their claim is written."""
    phases = played.events(f"Reservation/{name}", "Available", "Waiting", "Failed")
    return list(dict(phases).items())


def test_a_node_where_a_pod_without_a_known_end_uses_it_is_not_planned(case: Case) -> None:
    user = case.user("user", on="n0")
    played = case.play(2, user, case.window("w", 60, at="1m"), until=30)
    assert plan(played, "w") == ("n1", "True")


def test_where_only_that_could_free_it_the_plan_is_unknown_and_names_the_pod(case: Case) -> None:
    played = case.play(1, case.user("user", on="n0"), case.window("w", 60, at="1m"), until=30)
    assert plan(played, "w") == ("n0", "Unknown")
    message = condition(played.find("Reservation", "w"), "Feasible")["message"]
    assert "not free at 2026-01-01T01:00:00Z, unless" in message
    assert "default/user" in message


@pytest.mark.parametrize(("length", "status"), [(120, "False"), (50, "Unknown")])
def test_the_end_of_an_owner_does_not_free_it_while_its_reservation_stays(
    length: int, status: str, case: Case
) -> None:
    given = [
        case.window("r", 1, length=length, allocateOnce=False),
        case.user("user", app="r", at="2m"),
    ]
    played = case.play(1, *given, case.window("w", 60, at="3m"), until=5)
    assert plan(played, "w")[1] == status
    message = condition(played.find("Reservation", "w"), "Feasible")["message"]
    if status == "False":
        assert "reservation r lasts until 2026-01-01T02:01:00Z" in message
    assert ("unless default/user ends by then" in message) is (status == "Unknown")


def test_beside_such_an_owner_the_pod_is_named_whose_end_frees_it() -> None:
    begins = {"holdfast.io/starts-at": format_time(BEGIN + HOUR)}
    played = play(
        node("n0", 8),
        reservation("r", 1, "user", pod={"ports": [80]}, ttl="2h", allocateOnce=False),
        pod("user", 1, "user", ports=[80], at="1m"),
        pod("x", 1, ports=[81], at="1m"),
        reservation("w", 1, annotations=begins, ttl="1h", at="2m", pod={"ports": [81]}),
        until=180,
    )
    message = condition(played.find("Reservation", "w"), "Feasible")["message"]
    assert message == "n0: ports not free at 2026-01-01T01:00:00Z, unless default/x ends by then"


def test_what_is_released_by_the_start_counts(case: Case) -> None:
    user = case.user("user", 40, on="n0")
    played = case.play(1, user, case.window("w", 60, at="1m"), until=70)
    assert starts(played, "w") == [(HOUR, "Available")]


def test_what_is_released_after_the_start_does_not(case: Case) -> None:
    user = case.user("user", 90, on="n0")
    played = case.play(1, user, case.window("w", 60, at="1m"), until=30)
    assert plan(played, "w") == ("", "False")
    message = condition(played.find("Reservation", "w"), "Feasible")["message"]
    assert "user runs until 2026-01-01T01:30:00Z" in message


def test_two_plans_do_not_share_it_at_the_same_time(case: Case) -> None:
    windows = [case.window("w0", 60), case.window("w1", 90, at="1m")]
    assert plan(case.play(1, *windows, until=30), "w1") == ("", "False")
    played = case.play(2, *windows, until=30)
    assert {plan(played, "w0"), plan(played, "w1")} == {("n0", "True"), ("n1", "True")}


def test_two_plans_share_it_one_after_the_other(case: Case) -> None:
    windows = [case.window("w0", 60), case.window("w1", 120, at="1m")]
    played = case.play(1, *windows, until=130)
    assert starts(played, "w0")[0] == (HOUR, "Available")
    assert starts(played, "w1") == [(2 * HOUR, "Available")]


def test_it_is_closed_to_pods_that_do_not_end_by_the_start(case: Case) -> None:
    pods = [case.user("endless", at="5m"), case.user("long", 90, at="5m")]
    played = case.play(1, case.window("w", 60), *pods, until=50)
    assert played.times("endless", "long") == [None, None]
    assert "1 node(s) had capacity planned for reservations that start later" in played.message("long")


def test_it_is_open_to_pods_that_end_by_the_start(case: Case) -> None:
    played = case.play(1, case.window("w", 60), case.user("short", 40, at="5m"), until=70)
    assert played.times("short") == [300]
    assert starts(played, "w") == [(HOUR, "Available")]


def test_before_a_drain_it_is_open_to_all(case: Case) -> None:
    drain = {"holdfast.io/before-start": "Drain", "holdfast.io/lead": "30m"}
    window = case.window("w", 60, annotations=drain)
    pods = [case.user("early", at="5m", delete_at="20m"), case.user("late", at="35m")]
    played = case.play(1, window, *pods, until=50)
    assert played.times("early", "late") == [300, None]


def test_users_of_lower_priority_are_evicted_for_it(case: Case) -> None:
    preempt = {"holdfast.io/before-start": "Preempt", "holdfast.io/lead": "30m"}
    window = case.window("w", 60, at="1m", annotations=preempt)
    window["spec"]["template"]["spec"]["priority"] = 1000
    user, other = case.user("user", on="n0"), pod("other", 0)
    played = case.play(1, user, other, window, until=70)
    assert played.events("Pod/default/user", "Evicted") == [(HOUR / 2, "Evicted")]
    assert played.events("Pod/default/other", "Evicted") == []
    assert starts(played, "w") == [(HOUR, "Available")]


def test_at_its_start_it_waits_for_what_is_still_in_use(case: Case) -> None:
    user = case.user("user", on="n0", delete_at="80m")
    played = case.play(1, user, case.window("w", 60, at="1m"), until=90)
    assert starts(played, "w") == [(HOUR, "Waiting"), (80 * 60, "Available")]


def test_a_restart_keeps_the_plan(case: Case) -> None:
    step = {
        "apiVersion": "sim.holdfast.io/v1alpha1",
        "kind": "Step",
        "at": "20m",
        "restart": "scheduler",
    }
    windows = [case.window("w0", 60), case.window("w1", 90, at="1m")]
    before = case.play(2, *windows, until=15)
    after = case.play(2, *windows, step, until=30)
    assert [plan(before, each) for each in ("w0", "w1")] == [plan(after, each) for each in ("w0", "w1")]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("name", ["disk", "port"])
def test_late_it_waits_for_a_pod_that_may_end_at_any_time(name: str, restarts: bool) -> None:
    """Once the pod has exceeded its estimate. CPUs and devices are waited for from the start on."""
    case = Case(name)
    user = case.user("user", 60, runs_for="90m")
    restart = [step("61m", restart="scheduler")] if restarts else []
    window = case.window("w", 30, at="1m", length=300)
    played = case.play(1, user, window, *restart, until=100)
    assert starts(played, "w")[0] == (60 * 60, "Waiting")
    assert starts(played, "w")[-1] == (90 * 60, "Available")


@pytest.mark.parametrize("restarts", [False, True])
def test_late_on_a_node_that_is_feasible_later_it_waits_for_what_is_in_use(
    case: Case, restarts: bool
) -> None:
    nodes = [{"spec": {"unschedulable": is_set}} for is_set in (True, False)]
    patches = [{"kind": "Node", "name": "n0", "merge": each} for each in nodes]
    steps = [step("2m", patch=patches[0]), step("40m", patch=patches[1])]
    restart = [step("41m", restart="scheduler")] if restarts else []
    windows = [case.window(name, 30, at="1m", length=300) for name in ("w1", "w2")]
    played = case.play(1, case.user("user", runs_for="90m"), *windows, *steps, *restart, until=100)
    assert starts(played, "w1") == [(40 * 60, "Waiting"), (90 * 60, "Available")]
    assert starts(played, "w2") == []


def test_after_a_restart_the_pod_that_has_the_devices_by_claim_is_named() -> None:
    """With a claim for both devices the pod has the one of the reservation, too."""
    both = [node("n1", 16), resource_slice("n1", 2), claim_template("two", request(count=2))]
    user = pod("user", resourceClaims=[{"name": "d", "resourceClaimTemplateName": "two"}])
    annotations = {"holdfast.io/starts-at": "2026-01-01T00:10:00Z"}
    annotations["sim.holdfast.io/at"] = "20s"
    later = reservation("r", 1, annotations=annotations, pod={"resourceClaims": CLAIMS})
    common = KINDS["claim"].common
    restart = step("1m", restart="scheduler")
    played = play(common, both, user, later, restart, until=120)
    found = condition(played.find("Reservation", "r"), "Feasible")
    assert found["status"] == "Unknown"
    assert found["message"].endswith(", unless default/user ends by then")


# A claim that one pod of the cluster can use, on another node


def shared_claim() -> list[Raw]:
    mode = ["ReadWriteOncePod"]
    size = {"storage": "1Gi"}
    named = {"name": "c", "namespace": "default"}
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "v"},
            "spec": {
                "accessModes": mode,
                "capacity": size,
                "claimRef": {"kind": "PersistentVolumeClaim", **named},
                "csi": {"driver": "disk.example.com", "volumeHandle": "v"},
            },
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**named, "annotations": bound},
            "spec": {"accessModes": mode, "volumeName": "v", "resources": {"requests": size}},
            "status": {"phase": "Bound"},
        },
    ]


def claimant(name: str, on: str, minutes: int | None = None, **more: Any) -> Raw:
    """A pod with the claim that can only be on this node."""
    if minutes is not None:
        run = f"{minutes}m"
        more |= {"annotations": {"holdfast.io/run-estimate": run}, "runs_for": run}
    return pod(name, 1, **claiming(on), **more)


def claiming(on: str) -> Raw:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    return {"nodeSelector": {"kubernetes.io/hostname": on}, "volumes": [volume]}


def claim_plan(name: str, on: str, start: int = 60, **terms: str) -> Raw:
    annotations = {"holdfast.io/starts-at": format_time(BEGIN + start * 60)}
    annotations |= {f"holdfast.io/{key.replace('_', '-')}": value for key, value in terms.items()}
    return reservation(name, 4, name, annotations=annotations, ttl="1h", pod=claiming(on), at="1m")


TWO = [node("n0", 8), node("n1", 8), *shared_claim()]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("minutes", "planned", "message", "started"),
    [
        (None, ("n1", "Unknown"), "volumes not free at {}, unless default/p ends by then", None),
        (30, ("n1", "True"), "", HOUR),
        (65, ("", "False"), "volumes not free at {}; p runs until 2026-01-01T01:05:00Z", HOUR + 300),
    ],
)
def test_a_plan_waits_for_the_end_of_a_pod_elsewhere_that_uses_its_claim(
    minutes: int | None, planned: tuple[str, str], message: str, started: int | None, restarts: bool
) -> None:
    given = [*TWO, claimant("p", "n0", minutes), claim_plan("w", "n1")]
    restart = [step("5m", restart="scheduler")] if restarts else []
    played = play(given, restart, until=600)
    assert plan(played, "w") == planned
    says = condition(played.find("Reservation", "w"), "Feasible").get("message", "")
    assert says == (f"n1: {message.format('2026-01-01T01:00:00Z')}" if message else "")
    found = starts(play(given, restart, until=70 * 60), "w")
    assert found == ([] if started is None else [(started, "Available")])


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("minutes", "bound"), [(None, None), (30, 300), (90, None)])
def test_a_claim_that_a_reservation_needs_later_is_closed_on_all_nodes(
    minutes: int | None, bound: int | None, restarts: bool
) -> None:
    """But to pods that end by its start."""
    restart = [step("3m", restart="scheduler")] if restarts else []
    given = [*TWO, claim_plan("w", "n1"), claimant("p", "n0", minutes, at="5m")]
    played = play(given, restart, until=61 * 60)
    assert played.times("p") == [bound]
    assert starts(played, "w") == [(HOUR, "Available")]


@pytest.mark.parametrize(("at", "bound"), [("5m", 300), ("55m", None)])
def test_a_claim_that_a_drain_is_to_free_is_open_before_it(at: str, bound: int | None) -> None:
    drained = claim_plan("w", "n1", before_start="Drain", lead="10m")
    played = play(TWO, drained, claimant("p", "n0", at=at), until=59 * 60)
    assert played.times("p") == [bound]
    assert plan(played, "w")[1] == ("True" if bound is None else "Unknown")


@pytest.mark.parametrize(("start", "planned"), [(60, ""), (130, "n0")])
def test_two_plans_on_two_nodes_share_a_claim_one_after_the_other(start: int, planned: str) -> None:
    played = play(TWO, claim_plan("w1", "n1"), claim_plan("w2", "n0", start), until=600)
    assert plan(played, "w1") == ("n1", "True")
    assert plan(played, "w2") == (planned, "True" if planned else "False")


def test_a_plan_waits_for_the_end_of_a_reservation_elsewhere_that_has_its_claim() -> None:
    for length, status in ((50, "True"), (120, "False")):
        other = reservation("r", 1, "r", ttl=f"{length}m", pod=claiming("n0"))
        assert plan(play(TWO, other, claim_plan("w", "n1"), until=600), "w")[1] == status
