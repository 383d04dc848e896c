"""How large a process is, and whether nodes are oversold."""

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

_UNITS = {"m": 1, "": 1000}


class Size(NamedTuple):
    mebibytes: float
    descriptors: int


def size_of(pid: int) -> Size:
    """Figures of a process from Linux."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    component = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return Size(component / 1024, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def oversold(nodes: list[Json], pods: list[Json]) -> list[str]:
    """Nodes with pods that together request more cpu, or more pod slots, than there is."""
    cpu: dict[str, int] = defaultdict(int)
    count: dict[str, int] = defaultdict(int)
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            count[node] += 1
            for container in pod["spec"]["containers"]:
                cpu[node] += _millis(container["resources"]["requests"]["cpu"])
    found = []
    for node in nodes:
        name, allocatable = node["metadata"]["name"], node.get("status", {}).get("allocatable", {})
        if "cpu" in allocatable and cpu[name] > _millis(allocatable["cpu"]):
            found.append(f"{name}: {cpu[name]}m of {allocatable['cpu']} cpu")
        if "pods" in allocatable and count[name] > int(allocatable["pods"]):
            found.append(f"{name}: {count[name]} of {allocatable['pods']} pods")
    return found


def _millis(quantity: str) -> int:
    number = quantity.rstrip("m")
    return int(number) * _UNITS[quantity[len(number) :]]
