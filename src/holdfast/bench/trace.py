"""The openb trace: a production cluster of GPU nodes, as Alibaba published it.

Two tables in a folder. Pods come in the order of the file; when they left is not used. A node offers
its GPUs twice: whole as `nvidia.com/gpu`, and in thousandths as `alibabacloud.com/gpu-milli`. A pod
that wants whole GPUs takes of both, one that shares a GPU only of the latter. A pod with a `gpu_spec`
goes to nodes of those GPU models only. Columns about GPUs may be missing, and so may `qos` and `name`.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from holdfast.bench.plan import BenchPlan, PlannedObjects, PodMaker, Pods, Raw, Wait, make_object
from holdfast.bench.workload import TRACE, BenchError

PUBLISHED = "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023"
GPU = "nvidia.com/gpu"
GPU_MILLI = "alibabacloud.com/gpu-milli"
MODEL = "alibabacloud.com/gpu-model"
QOS = "alibabacloud.com/qos"

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
_REQUIRED = ("sn", "cpu_milli", "memory_mib")
_NUMBERS = ("_milli", "_mib", "gpu")
"""Suffixes of the names of numeric columns."""

Record = dict[str, str]


def plan_of_trace(folder: Path, nodes: str = "all_node", pods: str = "default") -> BenchPlan:
    """The trace with the node and pod lists of these names."""
    node_file, pod_file = _files(folder, nodes, pods)
    machines = [
        make_object(_node(record), "", number)
        for number, record in enumerate(_records(node_file, _NODE_COLUMNS))
    ]
    shapes: dict[tuple[str, ...], int] = {}
    templates: list[Raw] = []
    order = []
    for record in _records(pod_file, _POD_COLUMNS):
        shape = tuple(record[column] for column in _POD_COLUMNS[1:])
        if shape not in shapes:
            shapes[shape] = len(shapes)
            templates.append(_pod(record))
        order.append(shapes[shape])
    if not machines or not order:
        raise BenchError(f"{node_file if not machines else pod_file} is empty")
    maker = PodMaker("openb-pod", templates, order=order)
    return BenchPlan(TRACE, [PlannedObjects(machines), Pods(maker, len(order), True), Wait()], 500.0)


def node_records(folder: Path, nodes: str) -> Iterator[Record]:
    return _records(_file(folder, "node", nodes), _NODE_COLUMNS)


def pod_records(folder: Path, pods: str) -> Iterator[Record]:
    return _records(_file(folder, "pod", pods), _POD_COLUMNS)


def _file(folder: Path, what: str, name: str) -> Path:
    return folder / f"openb_{what}_list_{name}.csv"


def _files(folder: Path, nodes: str, pods: str) -> tuple[Path, Path]:
    files = _file(folder, "node", nodes), _file(folder, "pod", pods)
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise BenchError(
            f"{folder} has no {' and no '.join(missing)}; the trace is published at {PUBLISHED}"
        )
    return files


def _records(file: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    try:
        yield from _checked_records(file, columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BenchError(f"{file}: {error}") from None


def _checked_records(file: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    with file.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        absent = set(columns).difference(reader.fieldnames or ())
        if not absent.isdisjoint(_REQUIRED):
            missing = ", ".join(column for column in columns if column in absent)
            raise BenchError(f"{file}: no column {missing}")
        for record in reader:
            for column in columns:
                value = record.get(column) or ""
                if not value and column not in _REQUIRED:
                    record[column] = _default(column, record)
                elif column.endswith(_NUMBERS) and not value.isdecimal():
                    where = f"{file}, line {reader.line_num}, column {column}"
                    raise BenchError(f"{where}: expected a whole number, got {value!r}")
            yield record


def _default(column: str, record: Record) -> str:
    """A pod with only a number of GPUs requests whole ones; with only a share, a share of one."""
    if column == "num_gpu" and (record.get("gpu_milli") or "0") != "0":
        return "1"
    if column == "gpu_milli" and (record.get("num_gpu") or "0") != "0":
        return "1000"
    return "0" if column.endswith(_NUMBERS) else ""


def _node(record: Record) -> Raw:
    offered = {
        "cpu": f"{record['cpu_milli']}m",
        "memory": f"{record['memory_mib']}Mi",
        "pods": "110",
    }
    labels: dict[str, str] = {}
    gpus = int(record["gpu"])
    if gpus:
        offered |= {GPU: str(gpus), GPU_MILLI: str(gpus * 1000)}
        labels |= model_label(record)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": record["sn"], "labels": labels},
        "status": {"allocatable": offered, "capacity": offered},
    }


def _pod(record: Record) -> Raw:
    requests = {"cpu": f"{record['cpu_milli']}m", "memory": f"{record['memory_mib']}Mi"}
    gpus, milli = int(record["num_gpu"]), int(record["gpu_milli"])
    if gpus:
        requests[GPU_MILLI] = str(gpus * milli)
        if milli >= 1000:
            requests[GPU] = str(gpus)
    main = {"name": "main", "image": "openb", "resources": {"requests": requests}}
    labels = {QOS: record["qos"]} if record["qos"] else {}
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [main], **affinity_to_models(record)},
    }


def model_label(record: Record) -> dict[str, str]:
    """The GPU model label of a node."""
    return {MODEL: record["model"]} if record["model"] else {}


def models_asked_for(record: Record) -> tuple[str, ...]:
    """The GPU models a pod accepts; empty if any."""
    return tuple(sorted({model.strip() for model in record["gpu_spec"].split("|")} - {""}))


def affinity_to_models(record: Record) -> Raw:
    """The node affinity that keeps a pod on nodes of its GPU models."""
    models = models_asked_for(record)
    if not models:
        return {}
    term = {"matchExpressions": [{"key": MODEL, "operator": "In", "values": list(models)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
