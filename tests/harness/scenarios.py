"""Scenarios played in a simulation: raw objects or YAML in, what happened out.

    played = play(node("n1", 4), gang("g", 3, runs_for="10s"), config=actions("allocate"))
    assert played.times("g-0") == [0]

The simulation itself checks every step against the invariants.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from textwrap import dedent
from typing import Any

import yaml

from harness import objects
from harness.objects import SIM, Raw
from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.framework.config import API_VERSION, KIND
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation
from holdfast.snapshot.manifests import load_text

NODE = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '4'}}}"


def step(at: str, **what: Any) -> Raw:
    return {"apiVersion": f"{SIM}v1alpha1", "kind": "Step", "at": at, **what}


def actions(*names: str, **reserve: Any) -> Raw:
    """A configuration with these actions; `reserve` are the arguments of that one."""
    listed: list[Raw] = [{"name": name} for name in names or ("allocate", "backfill")]
    if reserve:
        listed.append({"name": "reserve", "arguments": reserve})
    return {"apiVersion": API_VERSION, "kind": KIND, "actions": listed}


def play(*given: Raw | list[Raw], config: Raw | None = None, until: float | None = None) -> Played:
    flat = [raw for each in given for raw in (each if isinstance(each, list) else [each])]
    made = [Document("test", i + 1, i + 1, raw) for i, raw in enumerate(flat)]
    return Played(_run(made, until, config=config))


class Played:
    """What happened in a scenario."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def events(self, object: str, *kinds: str) -> list[tuple[float, str]]:
        """Of the timeline, about an object."""
        return [(t, event) for t, event in events(self.result, object) if not kinds or event in kinds]

    def bound(self) -> dict[str, tuple[float, str]]:
        """When and where pods were bound, by name."""
        return {
            entry.object.rpartition("/")[2]: (entry.t, entry.node)
            for entry in self.result.timeline
            if entry.event == "Bound"
        }

    def times(self, *names: str) -> list[float | None]:
        """When pods were bound, if they were."""
        bound = self.bound()
        return [bound[name][0] if name in bound else None for name in names]

    def find(self, kind: str, name: str) -> Raw:
        return find(self.result, kind, name)

    def all(self, kind: str) -> list[Raw]:
        return [raw for raw in self.result.objects if raw["kind"] == kind]

    def message(self, name: str) -> str:
        """Of a pod's PodScheduled condition."""
        for each in self.find("Pod", name)["status"].get("conditions", []):
            if each["type"] == "PodScheduled":
                return str(each.get("message", ""))
        return ""

    def reasons(self, name: str) -> list[str]:
        """Of the Kubernetes Events about an object."""
        return [raw["reason"] for raw in self.all("Event") if raw["involvedObject"]["name"] == name]


# Scenarios as text


def documents(text: str) -> list[Document]:
    return load_text(dedent(text), "s.yaml")


def simulate(text: str, until: float | None = None, seed: int = 0, *, history: bool = False) -> Result:
    return _run(documents(text), until, seed, history=history)


def joined(*parts: str) -> str:
    return "\n---\n".join(dedent(part) for part in parts)


def pod_text(
    name: str, cpu: str = "1", spec: str = "", metadata: Any = None, **annotations: str
) -> str:
    """A pod of one container; `spec` is YAML, annotations go by their last part (`runs_for="5s"`)."""
    given = {SIM + key.replace("_", "-"): value for key, value in annotations.items()}
    more = yaml.safe_load(f"{{{spec}}}")
    return json.dumps(objects.pod(name, cpu, annotations=given, metadata=metadata or {}, **more))


def reservation_text(name: str, cpu: str = "4", **more: Any) -> str:
    """A reservation for pods whose label `app` is its name."""
    return json.dumps(objects.reservation(name, cpu, name, **more))


def step_text(at: str, what: str) -> str:
    return f"{{apiVersion: sim.holdfast.io/v1alpha1, kind: Step, at: {at}, {what}}}"


# What came of them


def events(result: Result, object: str) -> list[tuple[float, str]]:
    return [(entry.t, entry.event) for entry in result.timeline if entry.object == object]


def find(result: Result, kind: str, name: str) -> Raw:
    return next(
        raw for raw in result.objects if raw["kind"] == kind and raw["metadata"]["name"] == name
    )


def condition(raw: Raw, type: str) -> Raw:
    found: Iterable[Raw] = raw["status"]["conditions"]
    return next(each for each in found if each["type"] == type)


def _run(
    made: list[Document],
    until: float | None,
    seed: int = 0,
    config: Raw | None = None,
    history: bool = False,
) -> Result:
    setup = SchedulerFactory.of(config)
    return Simulation(read_scenario(made), setup, seed, history=history).run(until)
