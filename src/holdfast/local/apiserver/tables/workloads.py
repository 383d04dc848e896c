"""Columns of pods, and of the kinds that make or select them: controllers, jobs, services, budgets."""

from typing import Any

from holdfast.api.times import parse_time
from holdfast.local.apiserver.tables.columns import (
    AGE,
    NAME,
    NONE,
    Cells,
    Printer,
    TableColumn,
    age,
    condition,
    human_duration,
    is_true,
    labels_text,
    names_and_images,
    selector_text,
    since,
    wide,
)
from holdfast.local.store import Raw

_ENDED = ("Succeeded", "Failed")


class _Restarts:
    def __init__(self) -> None:
        self.count = 0
        self.last: str | None = None

    def add(self, status: Raw) -> None:
        self.count += status.get("restartCount", 0)
        ended = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        if ended and (self.last is None or parse_time(ended) > parse_time(self.last)):
            self.last = ended

    def text(self, now: float) -> str:
        if self.count and self.last:
            return f"{self.count} ({since(self.last, now)} ago)"
        return str(self.count)


def _cells(pod: Raw, now: float) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {each.get("name") for each in spec.get("initContainers") or [] if _restarts_always(each)}
    reason, ready, restarts = _reason(pod, spec, status, sidecars)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in _ENDED:
            reason = "Terminating"
    total = len(spec.get("containers") or []) + len(sidecars)
    addresses = [each["ip"] for each in status.get("podIPs") or [] if each.get("ip")]
    return [
        pod["metadata"]["name"],
        f"{ready}/{total}",
        reason,
        restarts.text(now),
        age(pod, now),
        addresses[0] if addresses else status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(pod, spec.get("readinessGates") or []),
    ]


def _reason(pod: Raw, spec: Raw, status: Raw, sidecars: set[str | None]) -> tuple[str, int, _Restarts]:
    reason = status.get("reason") or status.get("phase") or ""
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    ready = 0
    restarts, of_sidecars = _Restarts(), _Restarts()
    initializing = False
    for i, each in enumerate(status.get("initContainerStatuses") or []):
        restarts.add(each)
        is_sidecar = each.get("name") in sidecars
        if is_sidecar:
            of_sidecars.add(each)
        state = each.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if is_sidecar and each.get("started"):
            ready += bool(each.get("ready"))
            continue
        if ended is not None:
            reason = f"Init:{_end(ended)}"
        elif waiting.get("reason") not in (None, "", "PodInitializing"):
            reason = f"Init:{waiting['reason']}"
        else:
            reason = f"Init:{i}/{len(spec.get('initContainers') or [])}"
        initializing = True
        break
    if initializing and not is_true(pod, "Initialized"):
        return reason, ready, restarts
    restarts = of_sidecars
    running = False
    for each in reversed(status.get("containerStatuses") or []):
        restarts.add(each)
        state = each.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _end(ended)
        elif each.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if is_true(pod, "Ready") else "NotReady"
    return reason, ready, restarts


def _restarts_always(container: Raw) -> bool:
    return container.get("restartPolicy") == "Always"


def _end(terminated: Raw) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(pod: Raw, gates: list[Raw]) -> str:
    if not gates:
        return NONE
    return f"{sum(is_true(pod, each.get('conditionType', '')) for each in gates)}/{len(gates)}"


def row_conditions(pod: Raw) -> list[Raw]:
    """Marks completed pods for kubectl."""
    phase = (pod.get("status") or {}).get("phase")
    if phase not in _ENDED:
        return []
    how = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return [{"type": "Completed", "status": "True", "reason": phase, "message": how}]


PODS = Printer(
    (
        NAME,
        TableColumn("Ready", description="Containers that are ready, of all."),
        TableColumn("Status", description="The phase, or what keeps the containers from running."),
        TableColumn("Restarts", description="How often containers were restarted, and when last."),
        AGE,
        wide("IP", description="The pod's address."),
        wide("Node", description="The node the pod is bound to."),
        wide("Nominated Node", description="The node nominated for the pod by preemption."),
        wide("Readiness Gates", description="Readiness gates that are true, of all."),
    ),
    _cells,
)


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


def _counts(*names: str) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(name, _INTEGER) for name in names)


_REPLICAS = (NAME, *_counts("Desired", "Current", "Ready"), AGE, *_SELECTOR)

WORKLOADS = {
    ("apps", "Deployment"): Printer(
        (
            NAME,
            TableColumn("Ready"),
            TableColumn("Up-to-date"),
            TableColumn("Available"),
            AGE,
            *_SELECTOR,
        ),
        _deployment,
    ),
    ("apps", "ReplicaSet"): Printer(_REPLICAS, _replicas(False)),
    ("", "ReplicationController"): Printer(_REPLICAS, _replicas(True)),
    ("apps", "StatefulSet"): Printer((NAME, TableColumn("Ready"), AGE, *_CONTAINERS), _stateful_set),
    ("apps", "DaemonSet"): Printer(
        (
            NAME,
            *_counts("Desired", "Current", "Ready", "Up-to-date", "Available"),
            TableColumn("Node Selector"),
            AGE,
            *_SELECTOR,
        ),
        _daemon_set,
    ),
    ("batch", "Job"): Printer(
        (
            NAME,
            TableColumn("Status"),
            TableColumn("Completions"),
            TableColumn("Duration"),
            AGE,
            *_SELECTOR,
        ),
        _job,
    ),
    ("batch", "CronJob"): Printer(
        (
            NAME,
            TableColumn("Schedule"),
            TableColumn("Timezone"),
            TableColumn("Suspend", "boolean"),
            TableColumn("Active", _INTEGER),
            TableColumn("Last Schedule"),
            AGE,
            *_SELECTOR,
        ),
        _cron_job,
    ),
    ("", "Service"): Printer(
        (
            NAME,
            TableColumn("Type"),
            TableColumn("Cluster-IP"),
            TableColumn("External-IP"),
            TableColumn("Port(s)"),
            AGE,
            wide("Selector"),
        ),
        _service,
    ),
    ("policy", "PodDisruptionBudget"): Printer(
        (
            NAME,
            TableColumn("Min Available"),
            TableColumn("Max Unavailable"),
            TableColumn("Allowed Disruptions", _INTEGER),
            AGE,
        ),
        _budget,
    ),
}
