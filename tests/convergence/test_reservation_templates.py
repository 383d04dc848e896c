"""Who may use a virtual reservation, and the one that replaces it, is decided again on every edit."""

import json
from typing import Any

from harness.objects import Raw, node, pod
from harness.scenarios import Played, actions, play, step

KOORD = "scheduling.koordinator.sh/"
ID = KOORD + "reservation-id"
EXTERNAL = {"provisioner": "external", "provisionTimeout": "100s", "virtualRetention": "10s"}


def config(**settings: str) -> Raw:
    return actions("allocate") | {"dynamicReservation": EXTERNAL | settings}


def asking(name: str, cpu: int, id: str, at: str = "0s", label: str = "a", size: int = 8) -> Raw:
    template = {"owners": [_owner("a")], "recommendedSize": {"cpu": str(size)}}
    required = {"labels": {ID: id}, "resources": {"cpu": str(size)}}
    annotations = {
        KOORD + "reservation-template": json.dumps(template),
        KOORD + "new-reservation-requirement": json.dumps(required),
    }
    return pod(name, cpu, at=at, labels={"t": label}, annotations=annotations)


def answer(name: str, id: str, at: str, cpu: int = 8, label: str = "a", **spec: Any) -> Raw:
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "labels": {ID: id}, "annotations": {"sim.holdfast.io/at": at}},
        "spec": {
            "owners": [_owner(label)],
            "allocateOnce": False,
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
    }


def relabel(at: str, name: str, **labels: str) -> Raw:
    merge = {"metadata": {"labels": labels}}
    return step(at, patch={"kind": "Pod", "name": name, "namespace": "default", "merge": merge})


def _owner(label: str) -> Raw:
    return {"labelSelector": {"matchLabels": {"t": label}}}


def through(played: Played) -> dict[str, tuple[float, str]]:
    """When pods were bound, and through which reservation, by name."""
    return {
        entry.object.rpartition("/")[2]: (entry.t, entry.reservation)
        for entry in played.result.timeline
        if entry.event == "Bound"
    }


def test_a_sibling_that_is_relabelled_waits_no_more() -> None:
    given = [node("n1", 8), node("n2", 2), asking("p", 2, "id-p")]
    sibling = pod("s", 2, at="1s", labels={"t": "a"}, nodeSelector={})
    blocker = pod("b", 2, nodeName="n2", runs_for="5s")
    steps = [relabel("10s", "s", t="z"), answer("r", "id-p", "20s")]
    played = play(given, sibling, blocker, steps, config=config(), until=60)
    assert through(played) == {"p": (20.0, "r"), "s": (11.0, "")}


def test_a_sibling_that_ignores_reservations_waits_no_more() -> None:
    given = [node("n1", 8), asking("p", 2, "id-p"), pod("s", 2, at="1s", labels={"t": "a"})]
    ignored = step(
        "10s",
        patch={
            "kind": "Pod",
            "name": "s",
            "namespace": "default",
            "merge": {"metadata": {"labels": {KOORD + "reservation-ignored": "true"}}},
        },
    )
    bigger = step("20s", apply=node("n2", 4))
    played = play(given, ignored, bigger, answer("r", "id-p", "30s"), config=config(), until=60)
    assert through(played) == {"p": (30.0, "r"), "s": (20.0, "")}


def test_the_pod_that_asked_uses_its_reservation_whatever_its_labels() -> None:
    given = [node("n1", 8), asking("p", 2, "id-p"), relabel("10s", "p", t="z")]
    played = play(given, answer("r", "id-p", "20s"), config=config(), until=60)
    assert through(played) == {"p": (20.0, "r")}


def test_a_reservation_for_others_is_used_only_by_the_pod_that_requested_it() -> None:
    given = [node("n1", 8), asking("p", 2, "id-p"), pod("s", 2, at="1s", labels={"t": "a"})]
    played = play(given, answer("r", "id-p", "20s", label="z"), config=config(), until=60)
    assert through(played) == {"p": (20.0, "r")}


def test_a_reservation_allocated_once_goes_to_the_pod_that_asked() -> None:
    given = [node("n1", 8), asking("p", 2, "id-p"), pod("s", 2, at="1s", labels={"t": "a"})]
    once = answer("r", "id-p", "20s", allocateOnce=True)
    played = play(given, once, config=config(), until=60)
    assert through(played) == {"p": (20.0, "r"), "s": (21.0, "")}
    owners = played.find("Reservation", "r")["status"]["currentOwners"]
    assert [owner["name"] for owner in owners] == ["p"]


def test_a_restricted_reservation_takes_as_many_as_it_has_enough_for() -> None:
    sibling = pod("s", 6, at="1s", labels={"t": "a"})
    given = [node("n1", 10), asking("p", 4, "id-p"), sibling]
    strict = answer("r", "id-p", "20s", allocatePolicy="Restricted")
    played = play(given, strict, config=config(), until=60)
    assert through(played) == {"p": (20.0, "r")}


def test_pods_with_the_same_id_get_a_reservation_each() -> None:
    given = [node("n1", 8), node("n2", 8), asking("p", 5, "same"), asking("q", 5, "same", at="1s")]
    played = play(given, config=config(provisioner="builtin"), until=60)
    made = [raw["metadata"]["labels"][ID] for raw in played.all("Reservation")]
    assert len(made) == len(set(made)) == 2
    assert all(reservation for _, reservation in through(played).values())


def test_a_pod_without_its_template_is_an_ordinary_pod_at_once() -> None:
    merge = {"metadata": {"annotations": {KOORD + "reservation-template": None}}}
    gone = step("10s", patch={"kind": "Pod", "name": "p", "namespace": "default", "merge": merge})
    played = play(node("n1", 8), asking("p", 2, "id-p"), gone, config=config(), until=60)
    assert through(played) == {"p": (11.0, "")}


def test_another_that_waits_asks_where_the_one_that_asked_was_set_aside_elsewhere() -> None:
    """Neither uses its own virtual reservation; then both share one."""
    given = [node("n1", 8), node("n2", 8), asking("p", 3, "id-p"), asking("q", 3, "id-q", at="1s")]
    short = config(provisionTimeout="5s", virtualRetention="10m")
    gone = step("20s", delete={"kind": "Pod", "name": "p", "namespace": "default"})
    late = [answer("rq", "id-q", "40s"), answer("rp", "id-p", "41s")]
    played = play(given, gone, late, step("30s", restart="scheduler"), config=short, until=100)
    assert set(through(played)) == {"q"}


def test_a_restricted_reservation_with_too_little_is_not_used_by_the_pod_that_asked() -> None:
    """It was there before the pod, so it has a place of its own."""
    small = answer("r", "id-p", "0s", cpu=1, allocatePolicy="Restricted", label="z")
    played = play(node("n1", 8), small, asking("p", 2, "id-p", at="5s", size=4), until=60)
    assert through(played)["p"][1] not in ("", "r")


def test_a_requirement_that_is_removed_is_written_again() -> None:
    merge = {"metadata": {"annotations": {KOORD + "new-reservation-requirement": None}}}
    gone = step("10s", patch={"kind": "Pod", "name": "p", "namespace": "default", "merge": merge})
    given = [node("n1", 8), asking("p", 2, "id-p"), gone]
    before = play(given, config=config(), until=15).find("Pod", "p")["metadata"]["annotations"]
    assert json.loads(before[KOORD + "new-reservation-requirement"])["labels"][ID] == "id-p"
    played = play(given, answer("r", "id-p", "20s", label="z"), config=config(), until=60)
    assert through(played) == {"p": (20.0, "r")}
