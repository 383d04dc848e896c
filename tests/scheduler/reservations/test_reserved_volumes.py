"""Reservations reserve places among the volumes a node can have, for whatever volumes owners bring."""

import pytest

from harness.scenarios import events, find, joined, simulate, step_text

CLASS = """
    apiVersion: storage.k8s.io/v1
    kind: StorageClass
    metadata: {name: %s, annotations: {storageclass.kubernetes.io/is-default-class: "%s"}}
    provisioner: %s.example.com
    volumeBindingMode: WaitForFirstConsumer
"""
EPHEMERAL = "{name: %s, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], %s}}}}"


def storage_class(name: str, default: bool = False) -> str:
    return CLASS % (name, str(default).lower(), name)


def node(name: str = "n1", **limits: int) -> str:
    drivers = ", ".join(
        f"{{name: {driver}.example.com, nodeID: {name}, allocatable: {{count: {count}}}}}"
        for driver, count in limits.items()
    )
    return joined(
        f"{{apiVersion: v1, kind: Node, metadata: {{name: {name}}},"
        " status: {allocatable: {cpu: '8', pods: '20'}}}",
        f"{{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {{name: {name}}},"
        f" spec: {{drivers: [{drivers}]}}}}",
    )


def claim(name: str, storage_class: str = "fast") -> str:
    return (
        f"{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{"
        f"accessModes: [ReadWriteOnce], storageClassName: {storage_class},"
        " resources: {requests: {storage: 1Gi}}}}"
    )


def of(*claims: str) -> str:
    return ", ".join(f"{{name: v{c}, persistentVolumeClaim: {{claimName: {c}}}}}" for c in claims)


def ephemeral(*names: str, storage_class: str | None = "fast") -> str:
    spec = "resources: {requests: {storage: 1Gi}}"
    spec += f", storageClassName: {storage_class}" if storage_class is not None else ""
    return ", ".join(EPHEMERAL % (name, spec) for name in names)


def _spec(volumes: str) -> str:
    return (
        "{containers: [{name: c, resources: {requests: {cpu: '1'}}}],"
        f" terminationGracePeriodSeconds: 0, volumes: [{volumes}]}}"
    )


def pod(name: str, volumes: str, app: str = "", at: str = "5s", priority: int = 0) -> str:
    spec = _spec(volumes)[:-1] + f", priority: {priority}}}"
    return (
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: '{app}'}},"
        f" annotations: {{sim.holdfast.io/at: {at}}}}}, spec: {spec}}}"
    )


def reservation(name: str, volumes: str, spec: str = "", at: str = "0s") -> str:
    more = f", {spec}" if spec else ""
    return (
        "{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Reservation,"
        f" metadata: {{name: {name}, annotations: {{sim.holdfast.io/at: {at}}}}}, spec: {{"
        f"owners: [{{labelSelector: {{matchLabels: {{app: {name}}}}}}}],"
        f" template: {{spec: {_spec(volumes)}}}{more}}}}}"
    )


CLAIMS = joined(storage_class("fast"), *(claim(name) for name in "abcdef"))
REUSABLE = "allocateOnce: false"


def placed(*objects: str, until: float = 30) -> dict[str, str]:
    """Which reservation each pod that was bound was bound through."""
    result = simulate(joined(*objects), until=until)
    return {
        entry.object.rpartition("/")[2]: entry.reservation
        for entry in result.timeline
        if entry.event == "Bound"
    }


@pytest.mark.parametrize("restart", [(), (step_text("3s", "restart: scheduler"),)])
@pytest.mark.parametrize(
    ("limit", "reserved", "pods", "expected"),
    [
        pytest.param(1, of("a"), [("o", of("b"), "r")], {"o": "r"}, id="another claim"),
        pytest.param(1, of("a"), [("o", of("a"), "r")], {"o": "r"}, id="the same claim"),
        pytest.param(1, of("a"), [("s", of("b"), "")], {}, id="a stranger"),
        pytest.param(
            2,
            of("a"),
            [("s", of("b"), ""), ("t", of("c"), ""), ("o", of("d"), "r")],
            {"s": "", "o": "r"},
            id="two of two",
        ),
        pytest.param(2, of("a", "b"), [("o", of("c", "d"), "r")], {"o": "r"}, id="two others"),
        pytest.param(2, of("a", "b"), [("o", of("b", "c"), "r")], {"o": "r"}, id="one of them"),
        pytest.param(1, of("a"), [("o", of("a", "b"), "r")], {}, id="more than reserved"),
        pytest.param(2, of("a"), [("o", of("c", "d"), "r")], {"o": "r"}, id="one from the node"),
        pytest.param(1, ephemeral("x"), [("o", of("a"), "r")], {"o": "r"}, id="ephemeral, claim"),
        pytest.param(1, of("a"), [("o", ephemeral("x"), "r")], {"o": "r"}, id="claim, ephemeral"),
        pytest.param(
            1, ephemeral("x"), [("s", ephemeral("x"), ""), ("o", ephemeral("y"), "r")], {"o": "r"},
            id="ephemeral",
        ),
        pytest.param(1, ephemeral("x", "y"), [("s", of("a"), "")], {"s": ""}, id="too many ephemeral"),
    ],
)  # fmt: skip
def test_places_are_for_owners(
    limit: int,
    reserved: str,
    pods: list[tuple[str, str, str]],
    expected: dict[str, str],
    restart: tuple[str, ...],
) -> None:
    made = [pod(name, volumes, app, f"{5 + at}s") for at, (name, volumes, app) in enumerate(pods)]
    found = placed(CLAIMS, node(fast=limit), reservation("r", reserved), *restart, *made)
    assert found == expected


def test_owners_of_a_reusable_reservation_share_its_places() -> None:
    owners = [pod(f"o{name}", of(name), "r", f"{at + 5}s") for at, name in enumerate("bcd")]
    strangers = [pod("s", of("f"), at="4s"), pod("t", of("e"), at="9s")]
    r = reservation("r", of("a") + ", " + ephemeral("x"), REUSABLE)
    result = simulate(joined(CLAIMS, node(fast=3), r, *owners, *strangers), until=20)
    bound = {e.object.rpartition("/")[2]: e.reservation for e in result.timeline if e.event == "Bound"}
    assert bound == {"s": "", "ob": "r", "oc": "r"}


def test_an_owner_that_goes_gives_its_place_back_to_the_reservation() -> None:
    r = reservation("r", of("a"), REUSABLE)
    gone = step_text("8s", "delete: {kind: Pod, name: o}")
    found = placed(
        CLAIMS, node(fast=1), r, pod("o", of("b"), "r"), gone, pod("s", of("c"), at="10s"),
        pod("o2", of("d"), "r", "12s"),
    )  # fmt: skip
    assert found == {"o": "r", "o2": "r"}


def test_one_that_is_used_up_reserves_nothing_more() -> None:
    objects = node(fast=2), reservation("r", of("a", "b")), pod("o", of("c"), "r", "5s")
    assert placed(CLAIMS, *objects, pod("s", of("d"), at="7s")) == {"o": "r", "s": ""}


def test_drivers_have_places_of_their_own() -> None:
    both = joined(CLAIMS, storage_class("slow"), *(claim(c, "slow") for c in "xyz"))
    objects = both, node(fast=1, slow=1), reservation("r", of("a"), REUSABLE)
    assert placed(*objects, pod("o", of("x"), "r"), pod("s", of("y"), at="7s")) == {"o": "r"}
    reserved = both, node(fast=1, slow=1), reservation("r", of("a", "x"), REUSABLE)
    assert placed(*reserved, pod("s", of("z")), pod("o", of("b", "y"), "r", "6s")) == {"o": "r"}


def test_reservations_that_name_one_claim_reserve_one_place_for_both() -> None:
    two = [reservation("r1", of("a"), REUSABLE), reservation("r2", of("a"), REUSABLE)]
    found = placed(CLAIMS, node(fast=1), *two, pod("o", of("b"), "r1"), pod("p", of("a"), "r2", "6s"))
    assert found == {"p": "r2"}


def test_an_ephemeral_volume_without_a_class_has_the_default_one() -> None:
    objects = joined(storage_class("fast", default=True), claim("a"), node(fast=1))
    r = reservation("r", ephemeral("x", storage_class=None))
    assert placed(objects, r, pod("s", of("a")), pod("o", ephemeral("x"), "r", "6s")) == {"o": "r"}


def test_a_reservation_creates_no_claims() -> None:
    result = simulate(joined(CLAIMS, node(fast=1), reservation("r", ephemeral("x"))), until=9)
    assert find(result, "Reservation", "r")["status"]["phase"] == "Available"
    claims = [raw for raw in result.objects if raw["kind"] == "PersistentVolumeClaim"]
    assert sorted(raw["metadata"]["name"] for raw in claims) == sorted("abcdef")


def test_a_pod_with_an_ephemeral_volume_is_moved() -> None:
    job = """
        apiVersion: scheduling.koordinator.sh/v1alpha1
        kind: PodMigrationJob
        metadata: {name: m, annotations: {sim.holdfast.io/at: 10s}}
        spec:
          podRef: {namespace: default, name: o}
          reservationOptions: {template: {metadata: {name: room}}}
    """
    late = step_text("6s", "apply: {apiVersion: v1, kind: Node, metadata: {name: n2},"
                " status: {allocatable: {cpu: '8', pods: '20'}}}")  # fmt: skip
    moved = simulate(joined(CLAIMS, node(fast=1), pod("o", ephemeral("x")), late, job), until=20)
    assert (10.0, "Deleted") in events(moved, "Pod/default/o")
    assert find(moved, "Reservation", "room")["status"]["nodeName"] == "n2"


def test_a_preemptor_with_an_ephemeral_volume_gets_the_place_it_made() -> None:
    stops = "annotations: {sim.holdfast.io/stops-in: 9s, "
    slow = pod("low", of("a"), at="0s").replace("annotations: {", stops)
    slow = slow.replace("terminationGracePeriodSeconds: 0", "terminationGracePeriodSeconds: 30")
    objects = CLAIMS, node(fast=1), slow, pod("high", ephemeral("x"), priority=10)
    assert set(placed(*objects, pod("s", of("b"), at="7s"))) == {"low", "high"}


EMPTY = "{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {pods: '20'}}}"


@pytest.mark.parametrize(
    "meanwhile",
    [(), (step_text("8s", f"apply: {EMPTY}"),), (step_text("8s", "restart: scheduler"),)],
    ids=["nothing", "another node", "restart"],
)
def test_a_preemption_hold_waits_for_the_volume_count_its_victim_has(
    meanwhile: tuple[str, ...],
) -> None:
    """And the preemptor with it, though the hold names its volume."""
    low = pod("low", of("a"), at="1s").replace(
        "terminationGracePeriodSeconds: 0", "terminationGracePeriodSeconds: 30"
    )
    low = low.replace("sim.holdfast.io/at: 1s", "sim.holdfast.io/at: 1s, sim.holdfast.io/stops-in: 10s")
    result = simulate(
        joined(
            storage_class("fast"),
            node(fast=1),
            claim("a"),
            claim("b"),
            low,
            pod("high", of("b"), at="5s", priority=10),
            *meanwhile,
        ),
        until=60.0,
    )
    held = next(e.object for e in result.timeline if e.object.startswith("Reservation/preempted-for"))
    assert events(result, held) == [
        (5.0, "Created"),
        (5.0, "Waiting"),
        (15.0, "Available"),
        (15.0, "Succeeded"),
    ]
    assert (15.0, "Bound") in events(result, "Pod/default/high")
