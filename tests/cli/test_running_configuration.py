"""Commands answer with the configuration that the cluster's scheduler runs with: as `up` serves it, as
the leader of `run` writes it to its Lease, or as a snapshot has it. If it is not known, they say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.objects import Raw, pod
from harness.served_cluster import Done, ServedCluster, call
from holdfast.kube.run import published_configuration
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.framework.config import load, to_mapping
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE
from holdfast.serving.health import Endpoints, Health

LIMIT_AWARE = {"name": "LimitAware", "args": {"defaultLimitToAllocatableRatio": {"cpu": 120}}}
FILE = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "clientConnection": {"kubeconfig": "/etc/secret"},
    "profiles": [{"schedulerName": "holdfast-scheduler", "pluginConfig": [LIMIT_AWARE]}],
}
SETUP = SchedulerFactory.of(FILE)
UNKNOWN = "the configuration of the scheduler is not known"
BOUNDS = "whether the configuration of the scheduler has others is not known"


def lease(name: str = "holdfast-scheduler", setup: SchedulerFactory = SETUP) -> Raw:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {"app.kubernetes.io/name": "holdfast"},
            "annotations": published_configuration(setup.configuration),
        },
        "spec": {"holderIdentity": "one"},
    }


def limited(name: str, limit: str) -> Raw:
    raw = pod(name, "1")
    raw["spec"]["containers"][0]["resources"]["limits"] = {"cpu": limit}
    return raw


def configz() -> dict[str, Any]:
    return to_mapping(SETUP.configuration)


def cell(done: Done, column: str) -> str:
    header, row = done.rows()
    return dict(zip(header, row, strict=True))[column]


def answers(cluster: ServedCluster, *more: str) -> list[str]:
    """What the commands show of the bound of limits, 120% of 8 cpu, where a pod has a limit of 4."""
    wide = cluster("get", "nodes", "-o", "wide", *more)
    described = cluster("describe", "node", "node-1", *more)
    (line,) = [each for each in described.lines if each.split()[:1] == ["cpu"]]
    node = cluster("explain", "node", "node-1", *more)
    pending = cluster("explain", "pod", "big", *more)
    for done in (wide, described, node, pending):
        assert (done.status, done.err) == (0, "")
    return [cell(wide, "CPU-LIMITS"), line.split()[-1], node.out, pending.out]


@pytest.mark.parametrize("source", ["up", "run", "snapshot"])
def test_bounds_of_limits_are_those_of_the_running_scheduler(tmp_path: Path, source: str) -> None:
    health = Health(Endpoints(configz=configz)) if source == "up" else None
    with ServedCluster(tmp_path, nodes=1, health=health) as cluster:
        cluster.create(limited("small", "4")).settle()
        cluster.create(limited("big", "8"))
        if source != "up":
            cluster.create(lease())
        more: tuple[str, ...] = ()
        if source == "snapshot":
            file = str(tmp_path / "cluster.json.gz")
            assert cluster("snapshot", "-o", file).status == 0
            more = ("--snapshot", file)
            cluster.merge(
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/holdfast-scheduler",
                {"metadata": {"annotations": None}},
            )
        wide, described, node, pending = answers(cluster, *more)
        assert (wide, described) == ("50%/120%", "50%/120%")
        assert "limits add up to 4 of 9600m cpu that LimitAware allows" in node
        assert "node-1: limits add up to 4 of 9600m cpu allowed (120% of allocatable)" in pending
        forecast = cluster("when", "pod", "big", *more)
        assert "Insufficient cpu limit" in forecast.out
        file = str(tmp_path / "pod.json")
        Path(file).write_text(json.dumps(limited("new", "8")))
        assert "too little cpu limit" in cluster("check", "-f", file, *more).out


def test_a_file_counts_more_than_the_running_scheduler(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({**FILE, "profiles": []}))
    with ServedCluster(tmp_path, nodes=1) as cluster:
        cluster.create(lease(), limited("big", "12"))
        found = cluster("explain", "pod", "big", "--config", str(file))
        assert found.out.startswith("Pod default/big is Pending. It fits now: node-1.")


@pytest.mark.parametrize(
    ("leases", "why"),
    [
        ([], "no Lease of a Holdfast scheduler has it"),
        (
            [lease("a"), lease("b", SchedulerFactory.of())],
            "those of kube-system/a, kube-system/b differ",
        ),
        ([lease("a"), lease("b")], ""),
    ],
)
def test_what_is_not_known_is_said(tmp_path: Path, leases: list[Raw], why: str) -> None:
    with ServedCluster(tmp_path, nodes=1) as cluster:
        cluster.create(*leases, limited("small", "4")).settle()
        wide = cluster("get", "nodes", "-o", "wide")
        described = cluster("describe", "node", "node-1")
        explained = cluster("explain", "node", "node-1")
        pending = cluster("explain", "pod", "small")
        texts = [wide.err, described.out, " ".join(explained.out.split())]
        if why:
            assert [f"{BOUNDS} ({why})" in text for text in texts] == [True] * 3
            assert pending.err.startswith(f"warning: {UNKNOWN} ({why}), and the default one is assumed")
        else:
            assert [wide.err, explained.err, pending.err] == [""] * 3
        assert cell(wide, "CPU-LIMITS") == ("50%" if why else "50%/120%")
        assert cluster("get", "nodes").err == "", "no limits are shown"


def test_what_is_about_the_process_is_not_published() -> None:
    """And nothing that decisions depend on is lost."""
    (text,) = published_configuration(SETUP.configuration).values()
    assert "secret" not in text
    again = SchedulerFactory.of(json.loads(text)["configuration"]).configuration
    assert to_mapping(again)["profiles"] == configz()["profiles"]
    assert again.actions == SETUP.configuration.actions


class Quota(Plugin):
    name = "Quota"


def test_arguments_of_plugins_of_others_are_not_published(tmp_path: Path) -> None:
    """They may be secret."""
    registry = Registry([*IN_TREE, Quota])
    secret = {"name": "Quota", "args": {"token": "secret"}}
    profile = {
        "plugins": {"multiPoint": {"enabled": [{"name": "Quota"}]}},
        "pluginConfig": [LIMIT_AWARE, secret],
    }
    configuration = load({**FILE, "profiles": [profile]}, registry.implements())
    published = lease(setup=SchedulerFactory(configuration, registry))
    assert "secret" not in json.dumps(published)
    with ServedCluster(tmp_path, nodes=1) as cluster:
        cluster.create(published, limited("small", "4")).settle()
        why = "the arguments of Quota are not published"
        assert f"{BOUNDS} ({why})" in cluster("get", "nodes", "-o", "wide").err


def test_an_anonymous_snapshot_has_no_configuration(tmp_path: Path) -> None:
    file = str(tmp_path / "cluster.json")
    with ServedCluster(tmp_path, nodes=1) as cluster:
        cluster.create(lease(), limited("small", "4")).settle()
        assert cluster("snapshot", "--anonymize", "-o", file).status == 0
    assert "LimitAware" not in Path(file).read_text()
    assert (
        f"{BOUNDS} (the files do not have it)"
        in call("get", "nodes", "-o", "wide", "--snapshot", file).err
    )
