"""The figures of a run as text, for the tables and the pages."""

from collections.abc import Mapping
from typing import Any

from holdfast.api.times import format_duration
from holdfast.sim.reservation_lives import hours
from holdfast.sim.simulation import Result

_GI = 2**30


def figures(result: Result) -> dict[str, str]:
    """By name, in the order in which they are shown."""
    summary = result.summary
    pods, wait, nodes = summary["pods"], summary["wait"], summary["nodes"]
    found = {
        "end": time_text(result.end),
        "pods created": str(pods["created"]),
        "pods bound": str(pods["bound"]),
        "pods pending": str(pods["pending"]),
        "  unschedulable": str(pods["unschedulable"]),
        "mean wait": wait_text(wait["mean"]),
        "median wait": wait_text(wait["median"]),
        "95th percentile of waits": wait_text(wait["p95"]),
        "longest wait": time_text(wait["max"]),
        **_jobs(summary["jobs"]),
        "nodes in use (peak)": f"{nodes['used']} of {nodes['total']} ({nodes['peak']})",
    }
    for name, shares in summary["utilisation"].items():
        found[f"{name} requested (at the end)"] = f"{share(shares['mean'])} ({share(shares['end'])})"
    found |= _reservations(summary["reservations"])
    found |= _starvation(summary["starvation"])
    for name, count in summary["evictions"].items():
        if count:
            found["reservations preempted" if name == "reservations" else f"pods {name}"] = str(count)
    for reason, count in summary["unschedulable"].items():
        found[f"pending because of: {reason}"] = str(count)
    return found


def _jobs(jobs: Mapping[str, Any]) -> dict[str, str]:
    if not jobs["created"]:
        return {}
    return {
        "jobs ready": f"{jobs['ready']} of {jobs['created']}",
        "mean wait of jobs": wait_text(jobs["wait"]["mean"]),
        "longest wait of jobs": time_text(jobs["wait"]["max"]),
    }


def _reservations(figures: Mapping[str, Any]) -> dict[str, str]:
    if not figures["created"]:
        return {}
    found = {"reservations": str(figures["created"])}
    found |= {f"  {kind}": str(each["created"]) for kind, each in figures["kinds"].items()}
    found["  used"] = str(figures["used"])
    found["  hit rate"] = rate_text(figures["hitRate"])
    found["  pods bound through them"] = str(figures["podsBound"])
    for name, held in figures["held"].items():
        found[f"  {name} reserved"] = hours_text(name, held["reserved"])
        shares = f"{share(held['unusedShare'])} of reserved"
        if held["capacityShare"] is not None:
            shares += f", {share(held['capacityShare'])} of capacity"
        found[f"  {name} held unused"] = f"{hours_text(name, held['unused'])} ({shares})"
    return found


def _starvation(figures: Mapping[str, Any]) -> dict[str, str]:
    if not figures["jobs"]:
        return {}
    return {
        "jobs that starved": str(figures["jobs"]),
        "  still starving": str(figures["starving"]),
        "  longest": time_text(figures["longest"]),
    }


def time_text(seconds: float | None) -> str:
    """A time of nothing is `-`."""
    return "-" if seconds is None else format_duration(round(seconds, 3))


def wait_text(seconds: float | None) -> str:
    """From a minute on in whole seconds."""
    return time_text(round(seconds) if seconds is not None and seconds >= 60 else seconds)


def share(value: float) -> str:
    return f"{100 * value:.0f}%"


def rate_text(rate: float | None) -> str:
    """A rate of nothing is `-`."""
    return "-" if rate is None else share(rate)


def hours_text(resource: str, amount: float) -> str:
    """Resource-hours: `12.5 cpu-h`, `3 Gi-h`, `8 nvidia.com/gpu-h`."""
    if resource == "memory" or resource.startswith("hugepages-") or resource == "ephemeral-storage":
        return f"{number(amount / _GI)} Gi-h"
    return f"{number(amount)} {resource}-h"


def held_text(seconds: Mapping[str, float]) -> str:
    """Per resource, given as amounts multiplied by seconds."""
    parts = [hours_text(name, hours(name, total)) for name, total in seconds.items() if total]
    return ", ".join(parts) or "0"


def number(value: float) -> str:
    """Three significant digits, or whole."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
