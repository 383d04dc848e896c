"""What makes pods, in one line each: controllers, jobs, services, budgets."""

from typing import Any

from holdfast.api.timestamps import parse_time
from holdfast.server.api.tables.columns import (
    AGE,
    NAME,
    NONE,
    Cells,
    Column,
    Printer,
    age,
    human_duration,
    is_true,
    labels_text,
    names_and_images,
    selector_text,
    since,
    wide,
)
from holdfast.store import Raw

_CONTAINERS = (wide("Containers"), wide("Images"))
_SELECTOR = (*_CONTAINERS, wide("Selector"))
_INTEGER = "integer"


def _containers(raw: Raw) -> tuple[str, str]:
    template = (raw.get("spec") or {}).get("template") or {}
    return names_and_images((template.get("spec") or {}).get("containers") or [])


def _wide_cells(raw: Raw) -> list[Any]:
    return [*_containers(raw), selector_text((raw.get("spec") or {}).get("selector"))]


def _parts(raw: Raw) -> tuple[str, Raw, Raw]:
    return raw["metadata"]["name"], raw.get("spec") or {}, raw.get("status") or {}


def _deployment(raw: Raw, now: float) -> list[Any]:
    name, spec, status = _parts(raw)
    return [
        name,
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(raw, now),
        *_wide_cells(raw),
    ]


def _replicas(selector_is_map: bool) -> Cells:
    def cells(raw: Raw, now: float) -> list[Any]:
        name, spec, status = _parts(raw)
        selector = spec.get("selector")
        return [
            name,
            spec.get("replicas", 0),
            status.get("replicas", 0),
            status.get("readyReplicas", 0),
            age(raw, now),
            *_containers(raw),
            labels_text(selector) if selector_is_map else selector_text(selector),
        ]

    return cells


def _stateful_set(raw: Raw, now: float) -> list[Any]:
    name, spec, status = _parts(raw)
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name, ready, age(raw, now), *_containers(raw)]


def _daemon_set(raw: Raw, now: float) -> list[Any]:
    name, spec, status = _parts(raw)
    pod = (spec.get("template") or {}).get("spec") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name,
        *(status.get(count, 0) for count in counts),
        labels_text(pod.get("nodeSelector")),
        age(raw, now),
        *_wide_cells(raw),
    ]


def _job(raw: Raw, now: float) -> list[Any]:
    name, spec, status = _parts(raw)
    done = status.get("succeeded", 0)
    parallelism = spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        completions = f"{done}/{spec['completions']}"
    else:
        completions = f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"
    began, ended = status.get("startTime"), status.get("completionTime")
    duration = ""
    if began:
        duration = human_duration((parse_time(ended) if ended else now) - parse_time(began))
    return [name, _job_state(raw), completions, duration, age(raw, now), *_wide_cells(raw)]


def _job_state(raw: Raw) -> str:
    if is_true(raw, "Complete"):
        return "Complete"
    if is_true(raw, "Failed"):
        return "Failed"
    if raw["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for type in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(raw, type):
            return type
    return "Running"


def _cron_job(raw: Raw, now: float) -> list[Any]:
    name, spec, status = _parts(raw)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    last = status.get("lastScheduleTime")
    return [
        name,
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or []),
        since(last, now) if last else NONE,
        age(raw, now),
        *_wide_cells({"spec": job}),
    ]


def _service(raw: Raw, now: float) -> list[Any]:
    name, spec, status = _parts(raw)
    addresses = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    ports = ",".join(_port(each) for each in spec.get("ports") or [])
    return [
        name,
        spec.get("type", "ClusterIP"),
        addresses[0] if addresses else NONE,
        _external(spec, status),
        ports or NONE,
        age(raw, now),
        labels_text(spec.get("selector")),
    ]


def _port(port: Raw) -> str:
    protocol = port.get("protocol", "TCP")
    if port.get("nodePort"):
        return f"{port['port']}:{port['nodePort']}/{protocol}"
    return f"{port['port']}/{protocol}"


def _external(spec: Raw, status: Raw) -> str:
    given: list[str] = spec.get("externalIPs") or []
    match spec.get("type", "ClusterIP"):
        case "ClusterIP" | "NodePort":
            return ",".join(given) or NONE
        case "LoadBalancer":
            ingress = (status.get("loadBalancer") or {}).get("ingress") or []
            balanced = {each.get("ip") or each.get("hostname", "") for each in ingress}
            return ",".join([*sorted(filter(None, balanced)), *given]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case _:
            return "<unknown>"


def _budget(raw: Raw, now: float) -> list[Any]:
    name, spec, status = _parts(raw)
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        name,
        "N/A" if least is None else str(least),
        "N/A" if most is None else str(most),
        status.get("disruptionsAllowed", 0),
        age(raw, now),
    ]


def _counts(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, _INTEGER) for name in names)


_REPLICAS = (NAME, *_counts("Desired", "Current", "Ready"), AGE, *_SELECTOR)

WORKLOADS = {
    ("apps", "Deployment"): Printer(
        (NAME, Column("Ready"), Column("Up-to-date"), Column("Available"), AGE, *_SELECTOR), _deployment
    ),
    ("apps", "ReplicaSet"): Printer(_REPLICAS, _replicas(False)),
    ("", "ReplicationController"): Printer(_REPLICAS, _replicas(True)),
    ("apps", "StatefulSet"): Printer((NAME, Column("Ready"), AGE, *_CONTAINERS), _stateful_set),
    ("apps", "DaemonSet"): Printer(
        (
            NAME,
            *_counts("Desired", "Current", "Ready", "Up-to-date", "Available"),
            Column("Node Selector"),
            AGE,
            *_SELECTOR,
        ),
        _daemon_set,
    ),
    ("batch", "Job"): Printer(
        (NAME, Column("Status"), Column("Completions"), Column("Duration"), AGE, *_SELECTOR), _job
    ),
    ("batch", "CronJob"): Printer(
        (
            NAME,
            Column("Schedule"),
            Column("Timezone"),
            Column("Suspend", "boolean"),
            Column("Active", _INTEGER),
            Column("Last Schedule"),
            AGE,
            *_SELECTOR,
        ),
        _cron_job,
    ),
    ("", "Service"): Printer(
        (
            NAME,
            Column("Type"),
            Column("Cluster-IP"),
            Column("External-IP"),
            Column("Port(s)"),
            AGE,
            wide("Selector"),
        ),
        _service,
    ),
    ("policy", "PodDisruptionBudget"): Printer(
        (
            NAME,
            Column("Min Available"),
            Column("Max Unavailable"),
            Column("Allowed Disruptions", _INTEGER),
            AGE,
        ),
        _budget,
    ),
}
