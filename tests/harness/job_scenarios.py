"""Playing scenarios of jobs: objects as dicts in, what happened out. Every step is checked against the
invariants by the simulation itself."""

from typing import Any

from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.framework.config import API_VERSION, KIND
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation

Raw = dict[str, Any]

VOLCANO = "scheduling.volcano.sh/v1beta1"
SIGS = "scheduling.sigs.k8s.io/v1alpha1"
GROUP = "scheduling.k8s.io/group-name"
SIM = "sim.holdfast.io/"


def node(name: str, cpu: int | str = 4, **more: Any) -> Raw:
    allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "110", **more.pop("allocatable", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": more.pop("labels", {}), **more.pop("metadata", {})},
        "spec": more,
        "status": {"allocatable": allocatable},
    }


def pod(name: str, cpu: int | str = 1, group: str = "", **more: Any) -> Raw:
    """`at`, `runs_for`, `delete_at` and `stops_in` are the simulation's; `annotations`, `labels` and
    `requests` are given whole; the rest is spec."""
    annotations = dict(more.pop("annotations", {}))
    for key in ("at", "runs_for", "delete_at", "stops_in"):
        if key in more:
            annotations[SIM + key.replace("_", "-")] = str(more.pop(key))
    if group:
        annotations[GROUP] = group
    requests = more.pop("requests", {"cpu": str(cpu)} if cpu else {})
    metadata = {"name": name, "annotations": annotations, "labels": more.pop("labels", {})}
    container = {"name": "main", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | more.pop("metadata", {}),
        "spec": {"containers": [container], **more},
    }


def gang(name: str, count: int, cpu: int | str = 1, **more: Any) -> list[Raw]:
    return [pod(f"{name}-{i}", cpu, name, **more) for i in range(count)]


def group(name: str, least: int, api: str = VOLCANO, at: str = "0s", **spec: Any) -> Raw:
    return {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": {SIM + "at": at}},
        "spec": {"minMember": least, **spec},
    }


def queue(name: str, weight: int = 1, at: str = "0s", state: str = "", **spec: Any) -> Raw:
    raw: Raw = {
        "apiVersion": VOLCANO,
        "kind": "Queue",
        "metadata": {"name": name, "annotations": {SIM + "at": at}},
        "spec": {"weight": weight, **{name: value for name, value in spec.items() if value != ""}},
    }
    if state:
        raw["status"] = {"state": state}
    return raw


def step(at: str, **what: Any) -> Raw:
    return {"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Step", "at": at, **what}


def in_queue(name: str) -> Raw:
    return {"scheduling.volcano.sh/queue-name": name}


def actions(*names: str, **reserve: Any) -> Raw:
    """A configuration with these actions; `reserve` are the arguments of that one."""
    listed: list[Raw] = [{"name": name} for name in names or ("allocate", "backfill")]
    if reserve:
        listed.append({"name": "reserve", "arguments": reserve})
    return {"apiVersion": API_VERSION, "kind": KIND, "actions": listed}


class Played:
    def __init__(self, result: Result) -> None:
        self.result = result

    def events(self, object: str, *kinds: str) -> list[tuple[float, str]]:
        return [
            (entry.t, entry.event)
            for entry in self.result.timeline
            if entry.object == object and (not kinds or entry.event in kinds)
        ]

    def bound(self) -> dict[str, tuple[float, str]]:
        """When and where pods were bound, by name."""
        return {
            entry.object.rpartition("/")[2]: (entry.t, entry.node)
            for entry in self.result.timeline
            if entry.event == "Bound"
        }

    def times(self, *names: str) -> list[float | None]:
        bound = self.bound()
        return [bound[name][0] if name in bound else None for name in names]

    def find(self, kind: str, name: str) -> Raw:
        return next(
            raw
            for raw in self.result.objects
            if raw["kind"] == kind and raw["metadata"]["name"] == name
        )

    def all(self, kind: str) -> list[Raw]:
        return [raw for raw in self.result.objects if raw["kind"] == kind]

    def why(self, name: str) -> str:
        for condition in self.find("Pod", name)["status"].get("conditions", []):
            if condition["type"] == "PodScheduled":
                return str(condition.get("message", ""))
        return ""

    def told(self, name: str) -> list[str]:
        """The reasons of Kubernetes Events about an object."""
        return [raw["reason"] for raw in self.all("Event") if raw["involvedObject"]["name"] == name]


def play(*given: Raw | list[Raw], config: Raw | None = None, until: float | None = None) -> Played:
    flat = [raw for each in given for raw in (each if isinstance(each, list) else [each])]
    documents = [Document("test", i + 1, i + 1, raw) for i, raw in enumerate(flat)]
    return Played(Simulation(read_scenario(documents), SchedulerFactory.of(config)).run(until))
