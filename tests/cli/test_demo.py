"""`holdfast demo` on a local cluster and on one that is not its own."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from harness.objects import pod, reservation
from harness.served_cluster import ServedCluster, call
from harness.up_process import PODS, Running
from holdfast.cli.client import POD, Raw
from holdfast.cli.demo.chapters import starving_gang
from holdfast.cli.demo.objects import Manifests
from holdfast.cli.demo.site import Site
from holdfast.cli.demo.stage import CheckFailed, DemoCluster, Look, Ref, Seen, Stage
from holdfast.kube.client import Client
from holdfast.kube.client_settings import Access
from holdfast.kube.kubeconfig import find_access

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
NAMESPACES = "/api/v1/namespaces"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
COMMAND = [sys.executable, "-m", "holdfast", "demo"]


def test_all_chapters_are_as_expected_on_a_local_cluster() -> None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert len(re.findall(r"^\d\. ", done.stdout, re.MULTILINE)) == 6
    assert "skipped" not in done.stdout
    for shown in (
        "stranger is pending: Insufficient cpu",
        "6 holds for the gang",
        "small-later is pending: node(s) resource was(were) reserved",
        "job-1 uses the same reservation",
        "burst-2 is pending: Insufficient cpu limit",
        "urgent is Available in the place of one of them",
        "it names the reservation in the way: web-",
        "6 chapters, ",
        "$ holdfast up --nodes 3 --detach",
    ):
        assert shown in done.stdout, done.stdout


class Foreign:
    """A cluster with a pod and a reservation of somebody else's."""

    def __init__(self, up: Running) -> None:
        self._up = up
        up.client.create(PODS, pod("theirs", "1"))
        theirs = reservation(
            "theirs", "1", "theirs", metadata={"labels": {"koordinator.sh/priority": "5"}}
        )
        up.client.create(RESERVATIONS, theirs)
        up.client.until(
            PODS, "theirs", lambda raw: bool(raw and raw["status"].get("phase") == "Running")
        )
        up.client.until(
            RESERVATIONS,
            "theirs",
            lambda raw: bool(raw and (raw.get("status") or {}).get("phase") == "Available"),
        )
        self._before = self._objects()

    def _objects(self) -> dict[str, str]:
        """What somebody else has, with its version; and all that the demo may leave behind."""
        return {
            f"{path}/{raw['metadata']['name']}": raw["metadata"]["resourceVersion"]
            for path in (NAMESPACES, PODS, RESERVATIONS, PRIORITY_CLASSES)
            for raw in self._up.client.get(path)["items"]
        }

    def assert_untouched(self) -> None:
        for raw in self._up.client.get(NAMESPACES)["items"]:
            if raw["metadata"]["name"].startswith("holdfast-demo"):
                self._up.client.until(NAMESPACES, raw["metadata"]["name"], lambda found: found is None)
        assert self._objects() == self._before


def test_on_another_cluster_it_cleans_up_and_touches_nothing_else(tmp_path: Path) -> None:
    with Running(tmp_path, "--nodes", "2") as up:
        foreign = Foreign(up)
        command = [*COMMAND, "--kubeconfig", str(up.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        skipped = re.findall(r"^   skipped: (.*)$", done.stdout, re.MULTILINE)
        assert [reason.split(";")[0] for reason in skipped] == [
            "the starvation threshold of this cluster is not known, and its default is 48h",
            "it would have to annotate a node of yours (node.koordinator.sh/limit-to-allocatable)",
            "it could preempt the reservation theirs, which has the priority 5",
        ]
        foreign.assert_untouched()
        _interrupted_it_cleans_up(command, foreign)


def _interrupted_it_cleans_up(command: list[str], foreign: Foreign) -> None:
    def heed_interrupts() -> None:
        """A shell starts what runs in the background with interrupts ignored, tests as well."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as process:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if "is Available" in line:
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, f"{''.join(printed)}--- interrupted ---\n{out}{err}"
    foreign.assert_untouched()


def test_a_result_that_is_not_as_expected_ends_it_with_status_1(tmp_path: Path) -> None:
    with ServedCluster(tmp_path) as cluster:
        cluster.settle()  # from here on its scheduler does not run
        done = call("demo", "--kubeconfig", cluster.kubeconfig, "--timeout", "1s")
        assert done.status == 1
        assert "✓" not in done.out
        lines = done.err.splitlines()
        assert lines[0] == "error: chapter 1, Reserve capacity before a peak"
        assert "error: expected: web has its first replica" in lines
        assert any(line.startswith("error: seen: 0 of ") for line in lines)
        cluster.settle()
        left = [*cluster.server.get(NAMESPACES).names, *cluster.server.get(PRIORITY_CLASSES).names]
        assert not [name for name in left if name.startswith("holdfast-demo")]


def test_a_failed_check_shows_the_events_of_the_object(tmp_path: Path) -> None:
    async def never() -> Seen:
        return Seen(False, "it is pending")

    async def failed(kubeconfig: str) -> list[str]:
        async with Client(find_access(kubeconfig)) as client:
            site = Site(("node-1",), 1000, {}, own=True)
            target = DemoCluster(kubeconfig, "", "default", "")
            console = Console(quiet=True)
            stage = Stage(client, site, Manifests(site, "default", "x"), target, tmp_path, console, 0)
            with pytest.raises(CheckFailed) as error:
                await stage.check("big runs", never, [(POD, "big"), (POD, "none")])
            return error.value.lines

    with ServedCluster(tmp_path, nodes=1) as cluster:
        cluster.create(pod("big", "9")).settle()
        lines = asyncio.run(failed(cluster.kubeconfig))
    assert lines[:4] == ["expected: big runs", "seen: it is pending", "after 0s", "events of Pod big:"]
    assert lines[4].startswith("  FailedScheduling: 0/1 nodes are available: 1 Insufficient cpu.")
    assert lines[5] == "events of Pod none:"
    assert "not found" in lines[6]


class _UnheldStage(Stage):
    """Commands and checks do nothing, until the holds of the gang are not there."""

    async def apply(self, *_: object, **__: object) -> None: ...

    async def delete_pods(self, *_: object, **__: object) -> None: ...

    async def reservations(self) -> dict[str, Raw]:
        return {}

    async def check(self, expected: str, look: Look, about: Sequence[Ref] = (), hint: str = "") -> None:
        if "holds" in expected:
            await super().check(expected, look, (), hint)


@pytest.mark.parametrize("own", [True, False], ids=["own cluster", "another cluster"])
def test_holds_that_do_not_come_may_be_due_to_the_threshold_that_was_given(
    tmp_path: Path, own: bool
) -> None:
    site = Site(("node-1",), 1000, {}, own=own)
    stage = _UnheldStage(
        Client(Access("https://127.0.0.1:1")),
        site,
        Manifests(site, "default", "x"),
        DemoCluster("", "", "default", ""),
        tmp_path,
        Console(quiet=True),
        0,
    )
    with pytest.raises(CheckFailed) as error:
        asyncio.run(starving_gang(stage, "10s"))
    seen = ["expected: 2 holds for the gang", "seen: 0 holds", "after 0s"]
    hint = (
        "hint: starvingJobTimeThreshold of the cluster's scheduler may be longer than the 10s of "
        "--starvation-threshold"
    )
    assert error.value.lines == (seen if own else [*seen, hint])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--context", "c"], "error: --context: needs --kubeconfig"),
        (["--starvation-threshold", "5s"], "error: --starvation-threshold: needs --kubeconfig"),
        (["--timeout", "soon"], "error: --timeout: "),
        (["--timeout", "0s"], "error: --timeout: must be positive: 0s"),
        (["--kubeconfig", "missing"], "error: missing"),
    ],
    ids=" ".join,
)
def test_mistakes(arguments: list[str], error: str) -> None:
    done = call("demo", *arguments)
    assert done.status == 1
    assert done.err.startswith(error), done.err


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with ServedCluster(tmp_path) as cluster:
        address = find_access(cluster.kubeconfig).server
    done = call("demo", "--kubeconfig", cluster.kubeconfig)
    assert done.status == 1
    assert done.err.startswith(f"Unable to connect to the server {address}: ")


def test_a_cluster_without_holdfast_or_nodes_is_refused(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, nodes=0) as cluster:
        done = call("demo", "--kubeconfig", cluster.kubeconfig)
        assert done.status == 1
        assert "no node is ready, schedulable and without taints" in done.err
    with ServedCluster(tmp_path, nodes=1, crds=False) as cluster:
        done = call("demo", "--kubeconfig", cluster.kubeconfig)
        assert done.status == 1
        assert "Holdfast is not installed on it" in done.err


def test_a_full_cluster_is_refused(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, nodes=1) as cluster:
        cluster.create(pod("big", "7950m")).settle()
        done = call("demo", "--kubeconfig", cluster.kubeconfig)
        assert done.status == 1
        assert "no node has enough free CPU for this demo: the most is 50m, on node-1" in done.err
