"""Random lives around reservations made on demand, as scenario files: pods with templates that are
relabelled, annotated and deleted; provisioners that answer late, twice or differently; siblings, gangs,
queues, starvation holds, reservations that wait or grow, nodes that go, schedulers that restart.

    python -m convergence.lives SEED COUNT      (from `tests`) runs them and prints those that go wrong
"""

import json
import random
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulated_cluster import InvariantBroken
from holdfast.sim.simulation import Result, Simulation
from holdfast.snapshot.manifests import InvalidInput

Raw = dict[str, Any]

SIM = "sim.holdfast.io/"
KOORD = "scheduling.koordinator.sh/"
TEMPLATE = KOORD + "reservation-template"
REQUIREMENT = KOORD + "new-reservation-requirement"
ERROR = KOORD + "reservation-provision-error"
ID = KOORD + "reservation-id"
IGNORED = KOORD + "reservation-ignored"
END = 1500.0
_SECONDS = 60


class Life:
    """One life, made from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.documents: list[Raw] = []
        self.config = self._configuration()
        self._make()

    def run(self, seed: int = 0, until: float = END) -> Result:
        documents = [Document("life", i + 1, i + 1, raw) for i, raw in enumerate(self.documents)]
        return Simulation(read_scenario(documents), SchedulerFactory.of(self.config), seed).run(until)

    def text(self) -> str:
        """As a scenario file."""
        return "".join(f"---\n{json.dumps(raw)}\n" for raw in self.documents)

    # Drawing

    def _often(self, chance: float) -> bool:
        return self._random.random() < chance

    def _of(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _time(self, least: int = 0, most: int = 900) -> str:
        return f"{self._random.randint(least, most)}s"

    def _label(self) -> str:
        return str(self._of("a", "b", "c"))

    def _configuration(self) -> Raw:
        actions: list[Raw] = [{"name": "allocate"}]
        if self._often(0.5):
            actions.append({"name": "backfill"})
        if self._often(0.7):
            arguments = {
                "starvingJobTimeThreshold": self._of(0, 10, 60, 10000),
                "reservedNodePercent": self._of(20, 50, 100),
                "hold": self._of("node", "amount"),
                "backfill": self._often(0.5),
            }
            actions.append({"name": "reserve", "arguments": arguments})
        if self._often(0.7):
            actions.append({"name": "preempt"})
        if self._often(0.5):
            actions.append({"name": "reclaim"})
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "actions": actions,
            "dynamicReservation": {
                "provisioner": self._of("external", "external", "builtin"),
                "provisionTimeout": self._of("5s", "30s", "2m"),
                "virtualRetention": self._of("1s", "30s", "10m"),
                "onFailure": self._of("Requeue", "Requeue", "Bind"),
            },
        }

    # Objects

    def _make(self) -> None:
        add = self.documents.append
        for name, value in (("hi", 1000), ("lo", 10)):
            add(_object("scheduling.k8s.io/v1", "PriorityClass", name) | {"value": value})
        for name in ("qa", "qb"):
            if self._often(0.4):
                spec: Raw = {"weight": self._of(1, 2)}
                if self._often(0.4):
                    spec["capability"] = {"cpu": str(self._of(4, 8, 12))}
                add(_object("scheduling.volcano.sh/v1beta1", "Queue", name) | {"spec": spec})
        nodes = [f"n{i}" for i in range(self._random.randint(1, 4))]
        for name in nodes:
            add(self._node(name))
        pods = [f"p{i}" for i in range(self._random.randint(1, 8))]
        for number, name in enumerate(pods):
            self._asker(name, f"id-{number if self._often(0.9) else 0}")
        plain = [f"x{i}" for i in range(self._random.randint(0, 6))]
        for name in plain:
            add(self._pod(name))
        if self._often(0.3):
            self._gang()
        for number in range(self._random.randint(0, 3)):
            add(self._reservation(f"r{number}"))
        for _ in range(self._random.randint(0, 8)):
            add(self._step([*pods, *plain], nodes))

    def _node(self, name: str) -> Raw:
        cpu = self._of(4, 8, 16)
        raw = _object("v1", "Node", name)
        raw["metadata"]["labels"] = {"kubernetes.io/hostname": name}
        if self._often(0.2):
            limits = {"cpu": self._of(100, 150)}
            raw["metadata"]["annotations"]["node.koordinator.sh/limit-to-allocatable"] = json.dumps(
                limits
            )
        return raw | {"status": {"allocatable": {"cpu": str(cpu), "memory": f"{2 * cpu}Gi"}}}

    def _pod(self, name: str, at: str = "") -> Raw:
        raw = _object("v1", "Pod", name, namespace="default")
        annotations = raw["metadata"]["annotations"]
        annotations[SIM + "at"] = at or self._time()
        if self._often(0.7):
            annotations[SIM + "runs-for"] = self._time(10, 600)
        if self._often(0.2):
            annotations[SIM + "delete-at"] = self._time(901, 1300)
        if self._often(0.4):
            annotations[SIM + "stops-in"] = self._of("1s", "20s")
        if self._often(0.3):
            annotations["scheduling.volcano.sh/queue-name"] = self._of("qa", "qb")
        if self._often(0.2):
            annotations["holdfast.io/run-estimate"] = self._time(10, 600)
        raw["metadata"]["labels"] = {"t": self._label()}
        resources: Raw = {"requests": {"cpu": str(self._of(1, 2, 3, 4, 6)), "memory": "1Gi"}}
        if self._often(0.2):
            resources["limits"] = {"cpu": "6"}
        raw["spec"] = {"containers": [{"name": "main", "resources": resources}]}
        if self._often(0.6):
            raw["spec"]["priorityClassName"] = self._of("hi", "lo")
        return raw

    def _template(self) -> str:
        template: Raw = {"owners": [_owner(self._label())]}
        if self._often(0.7):
            template["recommendedSize"] = {"cpu": str(self._of(2, 4, 8)), "memory": "4Gi"}
        if self._often(0.5):
            template["roundup"] = {"cpu": str(self._of(2, 3)), "memory": "2Gi"}
        return json.dumps(template)

    def _asker(self, name: str, id: str) -> None:
        raw = self._pod(name)
        annotations = raw["metadata"]["annotations"]
        annotations[TEMPLATE] = self._template()
        known = self._often(0.8)
        if known:
            resources = {"cpu": str(self._of(2, 4, 8)), "memory": "2Gi"}
            annotations[REQUIREMENT] = json.dumps({"labels": {ID: id}, "resources": resources})
        self.documents.append(raw)
        for number in range(self._of(0, 1, 1, 2, 3) if known else 0):
            self.documents.append(self._answer(f"{name}-{number}", id))

    def _answer(self, name: str, id: str) -> Raw:
        """What a provisioner makes of a requirement, sooner or later, the same or not."""
        raw = self._reservation(name)
        raw["metadata"]["labels"] = {ID: id}
        raw["spec"]["preAllocation"] = False
        raw["spec"]["allocateOnce"] = self._often(0.3)
        raw["spec"]["allocatePolicy"] = self._of("", "Aligned", "Aligned", "Restricted")
        return raw

    def _reservation(self, name: str) -> Raw:
        raw = _object("scheduling.koordinator.sh/v1alpha1", "Reservation", name)
        raw["metadata"]["annotations"][SIM + "at"] = self._time()
        requests = {"cpu": str(self._of(1, 2, 4, 8, 9)), "memory": self._of("1Gi", "4Gi")}
        container = {"name": "main", "resources": {"requests": requests}}
        raw["spec"] = {
            "owners": [_owner(self._label())],
            "template": {"spec": {"containers": [container]}},
            "ttl": self._of("0s", "60s", "300s", "24h"),
            "preAllocation": self._often(0.4),
            "allocateOnce": self._often(0.5),
        }
        return raw

    def _gang(self) -> None:
        group = _object("scheduling.volcano.sh/v1beta1", "PodGroup", "g", namespace="default")
        at = self._time()
        group["metadata"]["annotations"][SIM + "at"] = at
        count = self._random.randint(2, 4)
        group["spec"] = {"minMember": self._random.randint(1, count)}
        self.documents.append(group)
        for number in range(count):
            member = self._pod(f"g-{number}", at)
            member["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "g"
            if self._often(0.3):
                member["metadata"]["annotations"][TEMPLATE] = self._template()
            self.documents.append(member)

    # What happens to them

    def _step(self, pods: list[str], nodes: list[str]) -> Raw:
        pod = self._of(*pods)
        of_pod = {"kind": "Pod", "name": pod, "namespace": "default"}
        what: Raw = self._of(
            {"restart": "scheduler"},
            {"delete": of_pod},
            {"patch": {**of_pod, "merge": {"metadata": {"labels": {"t": self._label()}}}}},
            {"patch": {**of_pod, "merge": {"metadata": {"labels": {"t": self._label()}}}}},
            {"patch": {**of_pod, "merge": _annotation(TEMPLATE, self._of(None, self._template()))}},
            {"patch": {**of_pod, "merge": _annotation(ERROR, self._of(None, "no room", "no quota"))}},
            {"patch": {**of_pod, "merge": _annotation(REQUIREMENT, None)}},
            {"patch": {**of_pod, "merge": {"metadata": {"labels": {IGNORED: self._of("true", None)}}}}},
            self._node_step(self._of(*nodes)),
            self._reservation_step(pod),
        )
        return {"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Step", "at": self._time(1), **what}

    def _node_step(self, name: str) -> Raw:
        if self._often(0.3):
            return {"delete": {"kind": "Node", "name": name}}
        merge = {"spec": {"unschedulable": self._often(0.7)}}
        return {"patch": {"kind": "Node", "name": name, "merge": merge}}

    def _reservation_step(self, pod: str) -> Raw:
        of_it = {"kind": "Reservation", "name": self._of("r0", "r1", f"{pod}-0", f"{pod}-1")}
        if self._often(0.4):
            return {"delete": of_it}
        requests = {"cpu": str(self._of(1, 2, 4)), "memory": "2Gi"}
        container = {"name": "main", "resources": {"requests": requests}}
        merge: Raw = self._of(
            {"metadata": {"labels": {ID: self._of(None, "id-0", "id-1")}}},
            {"spec": {"owners": [_owner(self._label())]}},
            {"spec": {"template": {"spec": {"containers": [container]}}}},
        )
        return {"patch": {**of_it, "merge": merge}}


def _object(api_version: str, kind: str, name: str, **metadata: str) -> Raw:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, **metadata, "annotations": {}},
    }


def _owner(label: str) -> Raw:
    return {"labelSelector": {"matchLabels": {"t": label}}}


def _annotation(name: str, value: str | None) -> Raw:
    return {"metadata": {"annotations": {name: value}}}


def lived(seed: int) -> Result | None:
    """What came of a life; None where it asks for what is not there (a step about an object that is
    gone ends a run, and says nothing)."""
    life = Life(seed)
    while True:
        try:
            return life.run()
        except InvalidInput as error:
            at = error.problems[0].partition("document ")[2].partition(",")[0]
            if not at.isdigit():
                return None
            del life.documents[int(at) - 1]


def broken(first: int, count: int) -> Iterator[tuple[int, str]]:
    """Those of so many lives that do not end as they should, with the reason."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    for seed in range(first, first + count):
        signal.alarm(_SECONDS)
        try:
            lived(seed)
        except InvariantBroken as error:
            yield seed, f"{error.t:g}s: {error.problems[0]}"
        except TimeoutError:
            yield seed, "does not end"
        except Exception as error:
            yield seed, f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)


if __name__ == "__main__":
    for seed, why in broken(int(sys.argv[1]), int(sys.argv[2])):
        print(seed, why[:300], flush=True)
