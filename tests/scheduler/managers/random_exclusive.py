"""Random lives of nodes whose CPUs and GPUs are given out one by one, with preemption, audited.

A life is a scenario for the simulator, made from a seed. The audit reads nothing but objects, after
every write: who has which CPU and how much of which GPU is worked out from annotations alone.

    python -m reservations.exclusive_lives 0 1000        from the folder of the tests, many at once
"""

import random
import sys
from collections import Counter
from typing import Any

import msgspec

from holdfast.local.component import Steps
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import StoreChange
from holdfast.scheduler.framework.config import API_VERSION, KIND
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation
from holdfast.snapshot.manifests import load_text

Raw = dict[str, Any]

UNTIL = 400.0
KOORDINATOR = "scheduling.koordinator.sh/"
CPUS, DEVICES = f"{KOORDINATOR}resource-status", f"{KOORDINATOR}device-allocated"
DRAWN = f"{KOORDINATOR}reservation-allocated"
GANG = "gang.scheduling.koordinator.sh/"
PERCENT = ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
ENDED = ("Succeeded", "Failed")
NUMA = ("", "", "", "SingleNUMANode", "BestEffort", "Restricted")
BINDING = (
    "",
    "",
    '{"requiredCPUBindPolicy": "FullPCPUs"}',
    '{"preferredCPUBindPolicy": "SpreadByPCPUs"}',
)
GPUS: tuple[Raw, ...] = (
    {"koordinator.sh/gpu": "50"},
    {"koordinator.sh/gpu": "60"},
    {"koordinator.sh/gpu": "100"},
)
GPUS += ({"koordinator.sh/gpu": "200"}, {"nvidia.com/gpu": "1"}, {PERCENT[1]: "40"})


class Life:
    """Makes the documents of one scenario."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.documents: list[Raw] = []
        self.cpus_alone = self.pick.random() < 0.4
        """Whether all want exclusive CPUs and nothing else, which makes them meet most."""
        for number in range(self.pick.choice((1, 1, 1, 2))):
            self.node(f"n{number}")
        for number in range(self.pick.randint(3, 9)):
            self.pod(f"p{number}")
        for number in range(self.pick.randint(0, 3)):
            self.reservation(f"r{number}")
        for _ in range(self.pick.choice((0, 0, 1, 2))):
            self.restart()

    @property
    def text(self) -> str:
        return "\n---\n".join(msgspec.json.encode(each).decode() for each in self.documents)

    @property
    def configuration(self) -> Raw:
        args = [
            {"name": "DefaultPreemption", "args": {"holdRoom": self.pick.random() < 0.75}},
            {"name": "ReservationPreemption", "args": self.pick.choice(({}, {"eviction": "Soft"}))},
        ]
        profile = {"schedulerName": "holdfast-scheduler", "pluginConfig": args}
        return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}

    def time(self) -> str:
        return f"{self.pick.randint(0, 60)}s"

    def node(self, name: str) -> None:
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        self.documents.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": amounts, "allocatable": amounts},
            }
        )
        detail = [{"id": i, "core": i // 2, "socket": i // 4, "node": i // 4} for i in range(8)]
        topology = msgspec.json.encode({"detail": detail}).decode()
        zone = [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}]
        self.documents.append(
            {
                "apiVersion": "topology.node.k8s.io/v1alpha1",
                "kind": "NodeResourceTopology",
                "metadata": {
                    "name": name,
                    "annotations": {"node.koordinator.sh/cpu-topology": topology},
                },
                "topologyPolicies": ["None"],
                "zones": [{"name": f"node-{i}", "type": "Node", "resources": zone} for i in range(2)],
            }
        )
        devices = [
            {
                "type": "gpu",
                "minor": i,
                "id": f"GPU-{i}",
                "health": True,
                "resources": {PERCENT[0]: 100, PERCENT[1]: 100, "koordinator.sh/gpu-memory": "16Gi"},
                "topology": {"socketID": 0, "nodeID": i // 2, "pcieID": str(i // 2), "busID": str(i)},
            }
            for i in range(self.pick.choice((0, 1, 2, 4)))
        ]
        if devices:
            self.documents.append(
                {
                    "apiVersion": f"{KOORDINATOR}v1alpha1",
                    "kind": "Device",
                    "metadata": {"name": name},
                    "spec": {"devices": devices},
                }
            )

    def template(self) -> tuple[Raw, Raw, Raw]:
        """Labels, annotations and the spec of a pod."""
        pick = self.pick
        labels: Raw = {}
        annotations: Raw = {}
        requests: Raw = {"cpu": str(pick.randint(1, 5))}
        container: Raw = {"name": "main", "resources": {"requests": requests}}
        if self.cpus_alone:
            return {"koordinator.sh/qosClass": "LSR"}, {}, {"containers": [container]}
        if pick.random() < 0.7:
            labels["koordinator.sh/qosClass"] = "LSR"
            if binding := pick.choice(BINDING):
                annotations[f"{KOORDINATOR}resource-spec"] = binding
        if numa := pick.choice(NUMA):
            policy = f'{{"numaTopologyPolicy": "{numa}"}}'
            annotations[f"{KOORDINATOR}numa-topology-spec"] = policy
        if pick.random() < 0.3:
            requests = {**pick.choice(GPUS), **(requests if pick.random() < 0.3 else {})}
            container["resources"]["requests"] = requests
        if pick.random() < 0.1:
            container["ports"] = [{"containerPort": 80, "hostPort": 80}]
        return labels, annotations, {"containers": [container]}

    def pod(self, name: str) -> None:
        pick = self.pick
        labels, annotations, spec = self.template()
        if pick.random() < 0.4:
            labels["app"] = pick.choice("ab")
        annotations["sim.holdfast.io/at"] = self.time()
        if pick.random() < 0.5:
            annotations["sim.holdfast.io/runs-for"] = f"{pick.randint(5, 60)}s"
        if pick.random() < 0.8:
            annotations["sim.holdfast.io/stops-in"] = f"{pick.randint(1, 20)}s"
        if pick.random() < 0.15:
            gang = {"name": "g", "min-available": "2", "total-number": "2"}
            annotations |= {f"{GANG}{key}": value for key, value in gang.items()}
        spec["priority"] = pick.choice((0, 0, 5, 10))
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        self.documents.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def reservation(self, name: str) -> None:
        pick = self.pick
        labels, annotations, spec = self.template()
        own: Raw = {"labels": {}, "annotations": {"sim.holdfast.io/at": self.time()}, "name": name}
        if pick.random() < 0.7:
            own["labels"]["koordinator.sh/priority"] = str(pick.choice((1, 5, 9)))
        if pick.random() < 0.5:
            own["labels"][f"{KOORDINATOR}can-preempt"] = "true"
        if pick.random() < 0.2:
            own["annotations"]["sim.holdfast.io/delete-at"] = f"{pick.randint(61, 120)}s"
        rest: Raw = {"ttl": pick.choice(("0s", "0s", "50s"))}
        if pick.random() < 0.4:
            rest["preAllocation"] = True
        if pick.random() < 0.5:
            rest["allocateOnce"] = False
        if pick.random() < 0.2:
            rest["allocatePolicy"] = "Restricted"
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
        owners = [{"labelSelector": {"matchLabels": {"app": pick.choice("ab")}}}]
        self.documents.append(
            {
                "apiVersion": f"{KOORDINATOR}v1alpha1",
                "kind": "Reservation",
                "metadata": own,
                "spec": {"template": template, "owners": owners, **rest},
            }
        )

    def restart(self) -> None:
        step = {"at": f"{self.pick.randint(1, 80)}s", "restart": "scheduler"}
        self.documents.append({"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Step", **step})


class Audit:
    """Told of every write, as the parts of a simulated cluster are."""

    def __init__(self) -> None:
        self.pods: dict[str, Raw] = {}
        self.reservations: dict[str, Raw] = {}
        self.problems: list[str] = []
        self.waited = 0

    def settle(self) -> Steps:
        return iter(())

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        known = {"Pod": self.pods, "Reservation": self.reservations}.get(key.kind)
        if known is None:
            return
        if before is not None:
            known.pop(before["metadata"]["uid"], None)
        if after is not None:
            known[after["metadata"]["uid"]] = after
        if key.kind == "Reservation" and before is not None and after is not None:
            phases = [(raw.get("status") or {}).get("phase") for raw in (before, after)]
            self.waited += phases == ["Waiting", "Available"]
            if phases == ["Waiting", "Succeeded"]:
                self.problems.append(f"{key.name} has succeeded without being available")
        nodes = {raw["spec"].get("nodeName") for raw in self.pods.values()} - {None, ""}
        for node in sorted(nodes):
            self.check(node)

    def check(self, node: str) -> None:
        pods = [
            raw
            for raw in self.pods.values()
            if raw["spec"].get("nodeName") == node and raw["status"].get("phase") not in ENDED
        ]
        held = [
            raw
            for raw in self.reservations.values()
            if (raw.get("status") or {}).get("phase") == "Available"
            and raw["status"].get("nodeName") == node
        ]
        cpus: Counter[int] = Counter()
        shares: Counter[tuple[int, str]] = Counter()
        for raw in pods:
            cpus.update(cpus_of(raw))
            shares.update(shares_of(raw))
        given_twice = sorted(cpu for cpu, times in cpus.items() if times > 1)
        for raw in held:
            owners = [pod for pod in pods if reservation_of(pod) == raw["metadata"]["uid"]]
            cpus.update(cpus_of(raw).difference(*(cpus_of(pod) for pod in owners)))
            left = shares_of(raw)
            for pod in owners:
                left = left - shares_of(pod)
            shares.update(left)
        also_held = sorted(cpu for cpu, times in cpus.items() if times > 1)
        over = sorted(f"{minor} {line}: {n}" for (minor, line), n in shares.items() if n > 100)
        names = sorted(raw["metadata"]["name"] for raw in (*pods, *held))
        if given_twice:
            self.problems.append(f"{node}: CPUs {given_twice} are given twice ({names})")
        elif also_held:
            self.problems.append(f"{node}: CPUs {also_held} are reserved and given ({names})")
        if over:
            self.problems.append(f"{node}: GPUs {over} ({names})")


def _read(raw: Raw, annotation: str) -> Raw:
    text = (raw["metadata"].get("annotations") or {}).get(annotation)
    found: Raw = msgspec.json.decode(text) if text else {}
    return found


def cpus_of(raw: Raw) -> set[int]:
    found: set[int] = set()
    for part in filter(None, str(_read(raw, CPUS).get("cpuset", "")).split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def shares_of(raw: Raw) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for each in _read(raw, DEVICES).get("gpu", ()):
        for line in PERCENT:
            found[each["minor"], line] += int(each["resources"].get(line, 0))
    return found


def reservation_of(pod: Raw) -> str:
    return str(_read(pod, DRAWN).get("uid", ""))


def live(seed: int) -> Audit:
    """One life, audited; raises InvariantBroken where the simulator itself notices something."""
    life, audit = Life(seed), Audit()
    setup = SchedulerFactory.of(life.configuration)
    simulation = Simulation(read_scenario(load_text(life.text, f"life {seed}")), setup)
    simulation.world.components.append(audit)
    simulation.run(UNTIL)
    return audit


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:3])
    bad = waited = 0
    for seed in range(first, last):
        try:
            found = live(seed)
        except Exception as error:
            bad += 1
            print(f"{seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
            continue
        waited += found.waited
        if found.problems:
            bad += 1
            print(f"{seed}: {found.problems[0]}", flush=True)
    print(f"{last - first} lives, {waited} reservations waited and became available, {bad} bad")
