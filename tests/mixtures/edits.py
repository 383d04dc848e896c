"""What is done to the objects of a life while it goes on."""

import json

from mixtures import parts
from mixtures.making import KOORD, TEAMS, Making, Raw


def restart(making: Making) -> None:
    making.step(making.time(0.05, 0.95), restart="scheduler")


def cordon(making: Making) -> None:
    name, at = making.pick(making.nodes), making.time()
    making.patch(at, "Node", name, {"spec": {"unschedulable": True}})
    if making.chance(0.7):
        later = at + making.some(0, 100)
        making.patch(later, "Node", name, {"spec": {"unschedulable": False}})


def taint(making: Making) -> None:
    name, at = making.pick(making.nodes), making.time()
    effect = making.pick(("NoSchedule", "NoExecute"))
    merge = {"spec": {"taints": [{"key": "dedicated", "value": "x", "effect": effect}]}}
    making.patch(at, "Node", name, merge)
    if making.chance(0.7):
        making.patch(at + making.some(0, 100), "Node", name, {"spec": {"taints": []}})


def lose_node(making: Making) -> None:
    name, at = making.pick(making.nodes), making.time(0.2, 0.8)
    making.delete(at, "Node", name)
    if making.chance(0.7):
        making.step(at + making.pick((0, 0, 1, 60)), apply=parts.node(making, name))


def resize_node(making: Making) -> None:
    merge = {"status": {"allocatable": {"cpu": making.pick(parts.SIZES)}}}
    making.patch(making.time(), "Node", making.pick(making.nodes), merge)


def relabel_node(making: Making) -> None:
    merge = {"metadata": {"labels": {"zone": making.pick(("za", "zb"))}}}
    making.patch(making.time(), "Node", making.pick(making.nodes), merge)


def ratio(making: Making) -> None:
    value = making.pick((json.dumps({"cpu": "100%"}), json.dumps({"cpu": 300}), "{}", "nonsense", None))
    merge = {"metadata": {"annotations": {"node.koordinator.sh/limit-to-allocatable": value}}}
    making.patch(making.time(), "Node", making.pick(making.nodes), merge)


def delete_pod(making: Making) -> None:
    making.delete(making.time(0.1, 0.9), "Pod", making.pick(making.pods))


def relabel_pod(making: Making) -> None:
    merge = {"metadata": {"labels": {"team": making.pick((*TEAMS, None))}}}
    making.patch(making.time(), "Pod", making.pick(making.pods), merge)


def annotate_pod(making: Making) -> None:
    key, value = making.pick(
        (
            (KOORD + "reservation-affinity", json.dumps({})),
            (KOORD + "reservation-affinity", None),
            (KOORD + "reservation-template", None),
            (KOORD + "new-reservation-requirement", None),
            ("holdfast.io/run-estimate", "60s"),
            ("volcano.sh/preemptable", "false"),
        )
    )
    merge = {"metadata": {"annotations": {key: value}}}
    making.patch(making.time(), "Pod", making.pick(making.pods), merge)


def ignore_reservations(making: Making) -> None:
    merge = {"metadata": {"labels": {KOORD + "reservation-ignored": making.pick(("true", None))}}}
    making.patch(making.time(), "Pod", making.pick(making.pods), merge)


def same_name_again(making: Making) -> None:
    """A pod is deleted, and another of its name comes."""
    name = making.pick(making.pods)
    made = [
        each for each in making.documents if each["kind"] == "Pod" and each["metadata"]["name"] == name
    ]
    if not made:
        return
    at = making.time(0.2, 0.8)
    making.delete(at, "Pod", name)
    kept = {
        key: value
        for key, value in made[0]["metadata"].get("annotations", {}).items()
        if key not in ("sim.holdfast.io/at", "sim.holdfast.io/delete-at")
    }
    again = {**made[0], "metadata": {**made[0]["metadata"], "annotations": kept}}
    making.step(at + making.pick((0, 1, 40)), apply=again)


def delete_reservation(making: Making) -> None:
    making.delete(making.time(0.1, 0.9), "Reservation", making.pick(making.reservations))


def edit_reservation(making: Making) -> None:
    name = making.pick(making.reservations)
    merges: list[Raw] = [
        {"spec": {"unschedulable": True}},
        {"spec": {"unschedulable": False}},
        {"spec": {"taints": [{"key": "kept", "effect": "NoSchedule"}]}},
        {"spec": {"ttl": f"{making.some(10, 300)}s"}},
        {"spec": {"ttl": None, "expires": "2026-01-01T00:05:00Z"}},
        {"spec": {"owners": [{"labelSelector": {"matchLabels": {"team": making.pick(TEAMS)}}}]}},
        {"metadata": {"labels": {"pool": making.pick(("x", "y"))}}},
        {"metadata": {"labels": {"koordinator.sh/priority": making.pick(("1", "70", None))}}},
        {"metadata": {"labels": {KOORD + "can-preempt": making.pick(("true", "false"))}}},
    ]
    making.patch(making.time(), "Reservation", name, making.pick(merges))


def resize_reservation(making: Making) -> None:
    name = making.pick(making.reservations)
    made = [
        each
        for each in making.documents
        if each["kind"] == "Reservation" and each["metadata"]["name"] == name
    ]
    if not made:
        return
    containers = json.loads(json.dumps(made[0]["spec"]["template"]["spec"]["containers"]))
    containers[0]["resources"]["requests"]["cpu"] = str(making.some(1, 6))
    merge = {"spec": {"template": {"spec": {"containers": containers}}}}
    making.patch(making.time(0.1, 0.9), "Reservation", name, merge)


def sicken_device(making: Making) -> None:
    name, at = making.pick(making.nodes), making.time()
    making.step(at, apply=parts.device(making, name, making.some(1, 4), making.some(-1, 1)))
    if making.chance(0.5):
        later = at + making.some(1, 100)
        making.step(later, apply=parts.device(making, name, making.some(1, 4)))


def lose_topology(making: Making) -> None:
    making.delete(making.time(), "NodeResourceTopology", making.pick(making.nodes))


def edit_queue(making: Making) -> None:
    merges: list[Raw] = [
        {"spec": {"weight": making.some(1, 5)}},
        {"spec": {"capability": {"cpu": str(making.some(2, 12))}}},
        {"status": {"state": "Closed"}},
        {"status": {"state": "Open"}},
    ]
    making.patch(making.time(), "Queue", making.pick(making.queues), making.pick(merges))


def edit_group(making: Making) -> None:
    group, at = making.pick(making.groups), making.time(0.1, 0.9)
    kind, name, version = "PodGroup", group["metadata"]["name"], group["apiVersion"]
    target = {"apiVersion": version, "kind": kind, "name": name, "namespace": "default"}
    if making.chance(0.3):
        making.step(at, delete=target)
    else:
        making.step(at, patch={**target, "merge": {"spec": {"minMember": making.some(1, 4)}}})


def delete_claim(making: Making) -> None:
    making.delete(making.time(), "PersistentVolumeClaim", making.pick(making.claims))
