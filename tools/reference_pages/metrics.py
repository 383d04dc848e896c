"""Metrics: what `holdfast run`, `holdfast up` and `holdfast provisioner` expose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from holdfast.kube.provisioner import _Figures as ProvisionerFigures
from holdfast.kube.service import Requests, RunnerFigures
from holdfast.local.setup import SchedulerFactory
from holdfast.metrics import SchedulingMetrics
from reference_pages.markdown import code, page, table

_INTRODUCTION = """\
`holdfast run` serves them at `/metrics` of its health port, `holdfast up` at `/metrics` of its API server (those of
API requests, watches and leader election are of `run` only). Metrics that kube-scheduler or Koordinator have keep
their names. A histogram has the suffixes `_bucket`, `_sum` and `_count`. [Running](../running.md#metrics) says what
differs from kube-scheduler; [monitoring](../production/monitoring.md) has dashboards and alerts.
"""


_PROCESS = """\
On Linux there are also `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_virtual_memory_bytes`,
`process_open_fds`, `process_max_fds` and `process_start_time_seconds`.
"""


class Exposed(NamedTuple):
    name: str
    """With the suffix that counters and infos get."""
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its time series."""
        if self.type == "histogram":
            return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "sum", "count"))
        return (self.name,)


def of_the_scheduler() -> list[Exposed]:
    metrics = SchedulingMetrics(SchedulerFactory.of().scheduler())
    return _exposed(metrics.registry.collect())


def of_run() -> list[Exposed]:
    """What only `holdfast run` has."""
    queue = SimpleNamespace(length=lambda _lane: 0)
    runner: Any = SimpleNamespace(
        reflectors=[],
        writer=SimpleNamespace(queue=queue, events_lost=0),
        fence=SimpleNamespace(is_open=True),
    )
    return _exposed([*Requests("").collect(), *RunnerFigures(lambda: runner, "").collect()])


def of_the_provisioner() -> list[Exposed]:
    figures = ProvisionerFigures()
    provisioner: Any = SimpleNamespace(created=0, failures=0)
    figures.provisioner = provisioner
    return _exposed(figures.collect())


def all_metrics() -> list[Exposed]:
    return [*of_the_scheduler(), *of_run(), *of_the_provisioner()]


def text() -> str:
    scheduler = of_the_scheduler()
    own = [each for each in scheduler if each.name.startswith("holdfast_")]
    theirs = [
        each
        for each in scheduler
        if each.name.startswith(("scheduler_", "dynamic_resource_allocation_"))
    ]
    reservations = [each for each in theirs if each.name.startswith("scheduler_reservation_")]
    plain = [each for each in theirs if each not in reservations]
    return page(
        "Metrics",
        _INTRODUCTION,
        *_section("Scheduling, with kube-scheduler's names", plain),
        *_section("Reservations, with Koordinator's names, and dynamic reservations", reservations),
        *_section("Holdfast's own", own),
        *_section("API requests, watches and leader election", of_run()),
        _PROCESS,
        *_section("The provisioner", of_the_provisioner()),
    )


def _section(title: str, metrics: Iterable[Exposed]) -> Iterator[str]:
    yield f"## {title}\n"
    rows = [
        (code(each.name), each.type, ", ".join(map(code, each.labels)), each.help)
        for each in sorted(metrics)
    ]
    yield table(("metric", "type", "labels", "meaning"), rows)


_SUFFIX = {"counter": "_total", "info": "_info"}


def _exposed(families: Iterable[Metric]) -> list[Exposed]:
    return [
        Exposed(
            family.name + _SUFFIX.get(family.type, ""),
            family.type,
            _labels(family),
            family.documentation,
        )
        for family in families
    ]


def _labels(family: Metric) -> tuple[str, ...]:
    declared = getattr(family, "_labelnames", None)
    if family.type == "info":
        return tuple(sorted({name for sample in family.samples for name in sample.labels}))
    return tuple(declared or ())
