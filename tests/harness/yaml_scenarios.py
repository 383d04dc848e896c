"""Running a scenario from a test: YAML in, a result to ask questions of."""

from textwrap import dedent
from typing import Any

from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.manifests import load_text
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation

NODE = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '4'}}}"


def documents(text: str) -> list[Document]:
    return load_text(dedent(text), "s.yaml")


def simulate(text: str, until: float | None = None, seed: int = 0) -> Result:
    return Simulation(read_scenario(documents(text)), SchedulerFactory.of(), seed).run(until)


def joined(*parts: str) -> str:
    return "\n---\n".join(dedent(part) for part in parts)


def pod(name: str, cpu: str = "1", spec: str = "", **annotations: str) -> str:
    """A pod of one container; annotations by their last part (`runs_for="5s"`)."""
    given = ", ".join(
        f"sim.holdfast.io/{key.replace('_', '-')}: {value}" for key, value in annotations.items()
    )
    more = f", {spec}" if spec else ""
    return (
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, annotations: {{{given}}}}}, "
        f"spec: {{containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]{more}}}}}"
    )


def step(at: str, what: str) -> str:
    return f"{{apiVersion: sim.holdfast.io/v1alpha1, kind: Step, at: {at}, {what}}}"


def events(result: Result, object: str) -> list[tuple[float, str]]:
    return [(entry.t, entry.event) for entry in result.timeline if entry.object == object]


def find(result: Result, kind: str, name: str) -> dict[str, Any]:
    return next(
        raw for raw in result.objects if raw["kind"] == kind and raw["metadata"]["name"] == name
    )


def condition(raw: dict[str, Any], type: str) -> dict[str, Any]:
    return next(c for c in raw["status"]["conditions"] if c["type"] == type)
