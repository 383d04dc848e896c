"""The actors of a life: pods, gangs, reservations, migrations, provisioners."""

import json
import zlib

from mixtures.making import KOORD, SIM, TEAMS, Making, Raw, annotate, label
from mixtures.parts import RESERVATION_API

_GANG = "gang.scheduling.koordinator.sh/"
_GROUP_KEYS = ("scheduling.k8s.io/group-name", "pod-group.scheduling.sigs.k8s.io")
_CPUS = ("500m", "1", "1", "2", "2", "3", "4", "6")


def container(making: Making) -> Raw:
    wanted = {"cpu": making.pick(_CPUS), "memory": making.pick(("512Mi", "1Gi", "2Gi", "4Gi"))}
    return {"name": "main", "image": "x", "resources": {"requests": wanted}}


def random_pod(making: Making, name: str = "", at: int | None = None, **annotations: str) -> Raw:
    name = name or making.name("p")
    metadata: Raw = {"namespace": "default", "labels": {}, "annotations": {}}
    spec: Raw = {"containers": [container(making)]}
    making.shape(metadata, spec)
    at = making.time() if at is None else at
    if at:
        annotate(metadata, SIM + "at", f"{at}s")
    if making.chance(0.8):
        least = 60 if making.tight else 5
        annotate(metadata, SIM + "runs-for", f"{making.some(least, 300)}s")
    if making.chance(0.15):
        annotate(metadata, SIM + "delete-at", f"{at + making.some(0, 200)}s")
    for key, value in annotations.items():
        annotate(metadata, key, value)
    if making.nodes and making.chance(0.02):
        spec["nodeName"] = making.pick(making.nodes)
    making.pods.append(name)
    return making.add("v1", "Pod", name, metadata=metadata, spec=spec)


def pods(making: Making) -> None:
    for _ in range(making.some(8, 16) if making.tight else making.some(3, 14)):
        random_pod(making)


def daemon_pods(making: Making) -> None:
    for name in making.nodes:
        made = random_pod(making, at=0)
        made["metadata"]["annotations"].pop(SIM + "runs-for", None)
        made["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": "agent",
                "uid": "agent-uid",
                "controller": True,
            }
        ]
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}


def owners(making: Making) -> list[Raw]:
    kind = making.pick(("team", "team", "team", "pod", "anyone"))
    if kind == "pod" and making.pods:
        return [{"object": {"kind": "Pod", "namespace": "default", "name": making.pick(making.pods)}}]
    if kind == "anyone":
        return [{"labelSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}]
    return [{"labelSelector": {"matchLabels": {"team": making.pick(TEAMS)}}}]


def reservation(making: Making, at: int | None = None) -> Raw:
    name = making.name("r")
    shape: Raw = {"labels": {}, "annotations": {}}
    spec: Raw = {"containers": [container(making)]}
    making.shape(shape, spec)
    for volume in [each for each in spec.get("volumes", []) if making.chance(0.5)]:
        spec["volumes"].remove(volume)
    spec.pop("activeDeadlineSeconds", None)
    if making.chance(0.2):
        spec["nodeName"] = making.pick(making.nodes)
    if making.chance(0.1):
        spec["containers"][0]["resources"]["requests"]["pods"] = str(making.some(2, 3))
    metadata: Raw = {"labels": {}, "annotations": {}}
    template: Raw = {"spec": spec}
    # The template has the annotations that request exclusive CPUs and devices.
    kept = {
        key: value
        for key, value in shape["annotations"].items()
        if "resource-spec" in key or "numa" in key
    }
    if kept or shape["labels"]:
        template["metadata"] = {"annotations": kept, "labels": shape["labels"]}
    if making.chance(0.4):
        label(metadata, "pool", making.pick(("x", "y")))
    at = making.time(0.0, 0.6) if at is None else at
    if at:
        annotate(metadata, SIM + "at", f"{at}s")
    if making.chance(0.15):
        annotate(metadata, SIM + "delete-at", f"{at + making.some(0, 200)}s")
    wanted: Raw = {"template": template, "owners": owners(making)}
    if making.chance(0.6):
        wanted["allocateOnce"] = making.chance(0.4)
    if making.chance(0.4):
        wanted["allocatePolicy"] = making.pick(("Aligned", "Restricted"))
    if making.chance(0.35):
        wanted["preAllocation"] = True
    if making.chance(0.3):
        wanted["ttl"] = f"{making.some(20, 400)}s"
    if making.chance(0.1):
        wanted["taints"] = [{"key": "kept", "value": "yes", "effect": "NoSchedule"}]
    if making.chance(0.15):
        label(metadata, KOORD + "reservation-order", str(making.some(1, 5)))
    making.reservations.append(name)
    return making.add(RESERVATION_API, "Reservation", name, metadata=metadata, spec=wanted)


def reservations(making: Making) -> None:
    for _ in range(making.some(1, 6)):
        reservation(making)


def preempting_reservations(making: Making) -> None:
    for _ in range(making.some(2, 6)):
        made = reservation(making)
        label(made["metadata"], "koordinator.sh/priority", str(making.pick((1, 5, 10, 100))))
        if making.chance(0.6):
            label(made["metadata"], KOORD + "can-preempt", "true")
    if making.chance(0.4):
        gang, size, at = making.name("rg"), making.some(2, 3), making.time(0.2, 0.6)
        for _ in range(size):
            made = reservation(making, at)
            label(made["metadata"], "koordinator.sh/priority", "50")
            label(made["metadata"], KOORD + "can-preempt", "true")
            annotate(made["metadata"], _GANG + "name", gang)
            annotate(made["metadata"], _GANG + "min-available", str(size))
            annotate(made["metadata"], _GANG + "total-number", str(size))


def gangs(making: Making) -> None:
    for _ in range(making.some(1, 4)):
        gang(making)


def gang(making: Making) -> None:
    name, size = making.name("g"), making.some(2, 4)
    needs, at = making.some(1, size), making.time(0.0, 0.7)
    kind = making.pick(("volcano", "volcano", "sigs", "annotation"))
    members: list[Raw] = []
    if kind != "annotation":
        spec: Raw = {"minMember": needs}
        version = "scheduling.sigs.k8s.io/v1alpha1"
        if kind == "volcano":
            version = "scheduling.volcano.sh/v1beta1"
            if making.queues:
                spec["queue"] = making.pick(making.queues)
            if making.chance(0.4):
                spec["priorityClassName"] = making.pick(("low", "high"))
            if making.chance(0.15):
                spec["minResources"] = {"cpu": str(needs)}
        metadata = {"namespace": "default", "annotations": {SIM + "at": f"{at}s"}}
        made = making.add(version, "PodGroup", name, metadata=metadata, spec=spec)
        making.groups.append(made)
    for i in range(size):
        member = random_pod(making, f"{name}-{i}", at + making.pick((0, 0, 0, 5, 30)))
        members.append(member)
        metadata = member["metadata"]
        metadata["annotations"].pop("scheduling.volcano.sh/queue-name", None)
        member["spec"].pop("nodeName", None)
        if kind == "volcano":
            annotate(metadata, "scheduling.k8s.io/group-name", name)
        elif kind == "sigs":
            label(metadata, "pod-group.scheduling.sigs.k8s.io", name)
        else:
            annotate(metadata, _GANG + "name", name)
            annotate(metadata, _GANG + "min-available", str(needs))
    _make_core(making, name, needs, at, members)


def _make_core(making: Making, name: str, needs: int, at: int, members: list[Raw]) -> None:
    """Makes some gangs a PodGroup of Kubernetes 1.37. No choice is taken from the random numbers of a
    life for it, so that the rest of the life is the same."""
    chosen = zlib.crc32(f"{name} {needs} {at} {len(making.documents)}".encode())
    if chosen % 3:
        return
    choices = chosen // 3
    spec: Raw = {"schedulingPolicy": {"gang": {"minCount": needs}}}
    if choices % 4 == 0:
        spec = {"schedulingPolicy": {"basic": {}}}
    if choices // 4 % 3 == 0:
        spec["schedulingConstraints"] = {"topology": [{"key": "zone"}]}
    if choices // 12 % 2:
        spec["disruptionMode"] = {"all": {}}
    priority = ("", "low", "high")[choices // 24 % 3]
    if priority:
        spec["priorityClassName"] = priority
    making.documents = [
        raw
        for raw in making.documents
        if not (raw["kind"] == "PodGroup" and raw["metadata"]["name"] == name)
    ]
    making.groups = [raw for raw in making.groups if raw["metadata"]["name"] != name]
    metadata: Raw = {"namespace": "default", "annotations": {SIM + "at": f"{at}s"}}
    if making.queues and choices // 72 % 2:
        metadata["annotations"]["scheduling.volcano.sh/queue-name"] = making.queues[0]
    making.add("scheduling.k8s.io/v1beta1", "PodGroup", name, metadata=metadata, spec=spec)
    for member in members:
        for given in (member["metadata"].get("annotations") or {}, member["metadata"]["labels"]):
            for key in [key for key in given if key.startswith(_GANG) or key in _GROUP_KEYS]:
                del given[key]
        member["spec"].pop("priorityClassName", None)
        member["spec"].pop("priority", None)
        if priority:
            member["spec"]["priorityClassName"] = priority
        member["spec"]["schedulingGroup"] = {"podGroupName": name}
    if choices // 144 % 2:
        for raw in [raw for raw in making.documents if raw["kind"] == "Reservation"][-1:]:
            raw["spec"]["owners"].append({"object": {"kind": "PodGroup", "name": name}})


def migrations(making: Making) -> None:
    for _ in range(making.some(1, 3)):
        if not making.pods:
            return
        spec: Raw = {
            "podRef": {"namespace": "default", "name": making.pick(making.pods)},
            "ttl": f"{making.some(20, 300)}s",
        }
        if making.chance(0.2):
            spec["mode"] = "EvictDirectly"
        metadata = {"annotations": {SIM + "at": f"{making.time(0.2, 0.9)}s"}}
        making.add(RESERVATION_API, "PodMigrationJob", making.name("m"), metadata=metadata, spec=spec)


def deployments(making: Making) -> None:
    shape: Raw = {"labels": {"dep": "d"}, "annotations": {}}
    spec: Raw = {"containers": [container(making)]}
    making.shape(shape, spec)
    spec.pop("activeDeadlineSeconds", None)
    name = making.name("d")
    shape["labels"]["dep"] = name
    making.add(
        "apps/v1",
        "Deployment",
        name,
        metadata={"namespace": "default", "annotations": {SIM + "at": f"{making.time(0, 0.4)}s"}},
        spec={
            "replicas": making.some(1, 4),
            "selector": {"matchLabels": {"dep": name}},
            "template": {"metadata": shape, "spec": spec},
        },
    )
    making.step(
        making.time(0.5, 0.9),
        patch={
            "kind": "Deployment",
            "name": name,
            "namespace": "default",
            "merge": {"spec": {"replicas": making.some(0, 5)}},
        },
    )


def provisioned(making: Making) -> None:
    """Pods that ask for reservations under ids of their own, and a provisioner that answers late,
    twice, or with something else."""
    for _ in range(making.some(1, 4)):
        team, known, at = making.pick(TEAMS), making.name("id-"), making.time(0, 0.6)
        size = {"cpu": making.pick(("2", "4", "8")), "memory": making.pick(("2Gi", "4Gi"))}
        template: Raw = {
            "owners": [{"labelSelector": {"matchLabels": {"team": team}}}],
            "recommendedSize": size,
        }
        made = random_pod(making, at=at)
        label(made["metadata"], "team", team)
        annotate(made["metadata"], KOORD + "reservation-template", json.dumps(template))
        requirement = {"labels": {KOORD + "reservation-id": known}, "resources": size}
        annotate(made["metadata"], KOORD + "new-reservation-requirement", json.dumps(requirement))
        if making.chance(0.2):
            sibling = random_pod(making, at=at + making.pick((0, 5, 30)))
            label(sibling["metadata"], "team", team)
        for _ in range(making.pick((0, 1, 1, 2))):
            answer = reservation(making, at + making.pick((0, 1, 9, 30, 60, 200)))
            label(answer["metadata"], KOORD + "reservation-id", known)
            answer["spec"]["owners"] = template["owners"]
            answer["spec"].pop("preAllocation", None)
            if making.chance(0.6):
                answer["spec"]["template"] = {
                    "spec": {
                        "containers": [{"name": "c", "image": "x", "resources": {"requests": size}}]
                    }
                }
        if making.chance(0.2):
            error = {"metadata": {"annotations": {KOORD + "reservation-provision-error": "no"}}}
            making.patch(at + making.some(1, 60), "Pod", made["metadata"]["name"], error)
