"""Network cards whose virtual functions are given one by one."""

from harness.device_objects import allocated, card, device, minors
from harness.objects import Raw, node, pod, reservation
from harness.world import World

RDMA = "koordinator.sh/rdma"
HINT = "scheduling.koordinator.sh/device-allocate-hint"


def functions(*groups: tuple[str, int]) -> list[Raw]:
    return [
        {
            "labels": {"type": kind},
            "vfs": [{"minor": i, "busID": f"{kind}-{i}"} for i in range(count)],
        }
        for kind, count in groups
    ]


def world(*cards: list[tuple[str, int]]) -> World:
    found = [card("rdma", i, vfGroups=functions(*groups)) for i, groups in enumerate(cards)]
    return World(node("n1"), device("n1", *found))


def asks(name: str, kind: str = "general", percent: str = "1", app: str = "") -> Raw:
    hint = f'{{"rdma": {{"vfSelector": {{"matchLabels": {{"type": "{kind}"}}}}}}}}'
    meta = {"annotations": {HINT: hint}, "labels": {"app": app} if app else {}}
    return pod(name, requests={RDMA: percent}, metadata=meta)


def bus(it: World, name: str, kind: str = "Pod") -> list[str]:
    found = allocated(it, name, kind).get("rdma", [])
    return [vf["busID"] for each in found for vf in each.get("extension", {}).get("vfs", [])]


def test_every_pod_gets_a_function_of_its_own() -> None:
    it = world([("general", 2), ("fast", 1)])
    it.put(asks("a")).put(asks("b")).put(asks("c")).put(asks("d", "fast"))
    assert (bus(it, "a"), bus(it, "b"), bus(it, "d")) == (["general-0"], ["general-1"], ["fast-0"])
    assert "1 Insufficient rdma devices" in it.message("c")
    it.delete("Pod", "a")
    assert bus(it, "c") == ["general-0"]


def test_one_function_of_each_card() -> None:
    it = world([("general", 1)], [("general", 1)]).put(asks("a", percent="200"))
    assert (minors(it, "a", of="rdma"), bus(it, "a")) == ([0, 1], ["general-0", "general-0"])


def test_a_card_without_functions_has_none_to_give() -> None:
    it = world([]).put(asks("a"), pod("b", requests={RDMA: "1"}))
    assert "1 Insufficient rdma VirtualFunctions" in it.message("a")
    assert (it.node_of("b"), bus(it, "b")) == ("n1", [])


def test_a_restart_knows_who_has_which_function() -> None:
    it = world([("general", 2)]).put(asks("a"))
    it.restart()
    it.settle()
    assert bus(it.put(asks("b")), "b") == ["general-1"]


def test_a_reserved_function_is_its_owners() -> None:
    it = world([("general", 2)])
    template = asks("x", app="own")
    held = reservation("r", app="own", template={k: template[k] for k in ("metadata", "spec")})
    held["spec"]["template"]["metadata"] = {"annotations": template["metadata"]["annotations"]}
    held["spec"]["allocateOnce"] = False
    it.put(held)
    assert bus(it, "r", "Reservation") == ["general-0"]
    it.put(asks("stranger")).put(asks("late"))
    assert (bus(it, "stranger"), it.node_of("late")) == (["general-1"], "")
    it.put(asks("owner", app="own"))
    assert (bus(it, "owner"), it.reservation_of("owner")) == (["general-0"], "r")
    it.put(asks("second", app="own"))
    assert it.node_of("second") == ""
