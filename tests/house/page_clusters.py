"""The clusters that pages speak of, before they start one of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.objects import deployment, pod, reservation, workload
from house.shell import Shell
from house.source import REPOSITORY
from sim.replay.day import day_objects
from sim.replay.recorded_simulation import record_simulation


def empty(shell: Shell) -> None:
    shell.bring_up("--nodes", "3", "--no-dashboard")


def inspected(shell: Shell, limits: dict[str, str] | None = None) -> None:
    """`peak` on node-1, which `web-0` uses half of; node-2 is tainted and node-3 cordoned, so that
    `big` is pending; a Deployment `web`, a Job `train`."""
    up = shell.bring_up("--nodes", "3", "--no-dashboard")
    up.create(
        reservation(
            "peak",
            "4",
            "web",
            memory="8Gi",
            allocateOnce=False,
            ttl="2h",
            pod={"nodeName": "node-1"},
        ),
        deployment("web", "web", 0),
        workload(
            "batch/v1",
            "Job",
            "train",
            "train",
            parallelism=2,
            suspend=True,
            pod={"restartPolicy": "Never"},
        ),
    )
    web = pod("web-0", "2", "web", memory="1Gi")
    if limits:
        web["spec"]["containers"][0]["resources"]["limits"] = limits
    up.create(web)
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    up.client.patch("/api/v1/nodes/node-2", {"spec": {"taints": [taint]}})
    up.client.patch("/api/v1/nodes/node-3", {"spec": {"unschedulable": True}})
    up.create(pod("big", "6", memory="1Gi"))


def limited(shell: Shell) -> None:
    """As `inspected`, and `web-0` has a limit."""
    inspected(shell, {"cpu": "2"})


def installed(shell: Shell) -> None:
    """As above; Holdfast is deployed in its second revision, with its Lease; there are the kinds of the
    Prometheus operator."""
    inspected(shell)
    shell.type("kubectl apply -k deploy/manifests")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "holdfast-scheduler", "namespace": "holdfast-system"},
    }
    shell.cluster.create(lease)
    for kind in ("ServiceMonitor", "PrometheusRule"):
        shell.cluster.client.create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _defined(kind)
        )
    shell.type("kubectl -n holdfast-system set image deployment/holdfast '*=holdfast:next'")


def _defined(kind: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


def with_web(shell: Shell) -> None:
    """A Deployment `web` of two replicas, and much that is free."""
    empty(shell)
    shell.type("kubectl create deployment web --image=web --replicas=2")
    shell.type("kubectl set resources deployment web --requests=cpu=1,memory=1Gi")


def of(page: Path) -> Callable[[Shell], object]:
    path = str(page.relative_to(REPOSITORY))
    return installed if "/production/" in path else _OF_PAGES.get(path, inspected)


_OF_PAGES: dict[str, Callable[[Shell], object]] = {
    "docs/dynamic-reservations.md": installed,
    "docs/howto/how-many-nodes.md": empty,
    "docs/howto/reserve-for-a-peak.md": with_web,
    "docs/howto/would-it-fit.md": empty,
    "docs/limit-aware.md": limited,
    "docs/reservations.md": empty,
}


def add_folders(page: Path, folder: Path) -> None:
    """The folders that a page speaks of."""
    if page.name == "record-and-replay.md":
        record_simulation(day_objects(2, 40), folder / "monday", 7200.0)
