"""Objects as a cluster has them, for forecasts."""

from typing import Any

from holdfast.api.documents import Document
from holdfast.api.times import parse_time
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.forecast.answers import ForecastReport, StartAnswer
from holdfast.sim.forecast.forecast import Forecaster, ForecastOptions
from holdfast.sim.forecast.run_times import DurationHistory
from holdfast.sim.forecast.targets import find_targets

Raw = dict[str, Any]

NOON = parse_time("2026-01-01T12:00:00Z")
ESTIMATE = "holdfast.io/run-estimate"


def node(name: str = "n1", cpu: int = 4) -> Raw:
    allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": allocatable},
    }


def pod(name: str, cpu: int = 3, *, annotations: dict[str, str] | None = None, **spec: Any) -> Raw:
    """Pending."""
    requests = {"cpu": str(cpu)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
    }


def running(given: Raw, at: str = "n1", since: str = "2026-01-01T11:50:00Z") -> Raw:
    status = {"phase": "Running", "startTime": since}
    return {**given, "spec": {**given["spec"], "nodeName": at}, "status": status}


def owned(given: Raw, kind: str, name: str) -> Raw:
    api = "batch/v1" if kind == "Job" else "apps/v1"
    reference = {"apiVersion": api, "kind": kind, "name": name, "uid": name, "controller": True}
    return {**given, "metadata": {**given["metadata"], "ownerReferences": [reference]}}


def ended(given: Raw, since: str, until: str) -> Raw:
    done = {"terminated": {"exitCode": 0, "startedAt": since, "finishedAt": until}}
    container = {"name": "c", "image": "x", "imageID": "x", "restartCount": 0, "ready": False}
    status = {
        "phase": "Succeeded",
        "startTime": since,
        "containerStatuses": [{**container, "state": done}],
    }
    return {**given, "spec": {**given["spec"], "nodeName": "n1"}, "status": status}


def asked(
    objects: list[Raw],
    kind: str = "pod",
    name: str | None = None,
    history: DurationHistory | None = None,
    within: float = 7 * 86400.0,
    now: float = NOON,
    **more: Any,
) -> ForecastReport:
    documents = [Document("dump", 1, 1, raw, i) for i, raw in enumerate(objects)]
    options = ForecastOptions(within, **more)
    forecaster = Forecaster(documents, now, SchedulerFactory.of(), history, options)
    return forecaster.ask(find_targets(objects, kind, name, "", now, within))


def answer(objects: list[Raw], name: str, kind: str = "pod", **options: Any) -> StartAnswer:
    return asked(objects, kind, name, **options).starts[0]
