"""`holdfast reserve`: what it makes, what it refuses, what it sends."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml

from harness.objects import Raw, deployment, workload
from harness.served_cluster import Done, ServedCluster, call
from holdfast.sim.scenario_objects import ScenarioObject

PLAIN = ["--cpu", "4", "--memory", "8Gi", "--owner", "app=web"]


def documents(done: Done) -> list[Raw]:
    assert (done.status, done.err) == (0, "")
    made = list(yaml.safe_load_all(done.out))
    for raw in made:
        assert ScenarioObject(raw).errors == []
    return made


def dry(*arguments: str) -> list[Raw]:
    return documents(call("reserve", *arguments, "--dry-run"))


def test_plain_reservations_are_printed_and_no_cluster_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    made = dry(*PLAIN, "--replicas", "3", "--ttl", "2h")
    assert [raw["metadata"]["name"] for raw in made] == ["web-1", "web-2", "web-3"]
    requests = {"cpu": "4", "memory": "8Gi"}
    assert made[0] == {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "web-1"},
        "spec": {
            "template": {
                "metadata": {"namespace": "default"},
                "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
            },
            "owners": [
                {
                    "object": {"namespace": "default"},
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ],
            "ttl": "2h",
        },
    }


@pytest.mark.parametrize(
    ("arguments", "path", "value"),
    [
        (["--name", "peak"], "metadata.name", "peak"),
        ([], "metadata.name", "web"),
        (["--label", "tier=gold,a=b"], "metadata.labels", {"tier": "gold", "a": "b"}),
        (["--allocate-once"], "spec.allocateOnce", True),
        (["--no-allocate-once"], "spec.allocateOnce", False),
        ([], "spec.allocateOnce", None),
        (["--policy", "Restricted"], "spec.allocatePolicy", "Restricted"),
        (["--policy", "Default"], "spec.allocatePolicy", None),
        (["--pre-allocation"], "spec.preAllocation", True),
        (["--expires", "2127-01-01T00:00:00Z"], "spec.expires", "2127-01-01T00:00:00Z"),
        (["--ttl", "0"], "spec.ttl", "0"),
        (["--node", "n1"], "spec.template.spec.nodeName", "n1"),
        (["--node-selector", "disk=ssd"], "spec.template.spec.nodeSelector", {"disk": "ssd"}),
        (["-n", "shop"], "spec.template.metadata.namespace", "shop"),
        (["-n", "shop"], "spec.owners.0.object", {"namespace": "shop"}),
        (["-A"], "spec.owners.0.object", None),
        (["-A"], "spec.template.metadata", None),
        (["--priority", "7"], "metadata.labels", {"koordinator.sh/priority": "7"}),
        (
            ["--priority", "7", "--can-preempt", "--label", "a=b"],
            "metadata.labels",
            {
                "a": "b",
                "koordinator.sh/priority": "7",
                "scheduling.koordinator.sh/can-preempt": "true",
            },
        ),
        (
            ["--gpu", "2", "--resource", "example.com/fast=1"],
            "spec.template.spec.containers.0.resources.requests",
            {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "example.com/fast": "1"},
        ),
        (
            ["--owner", "tier in (a,b),!old"],
            "spec.owners.1.labelSelector.matchExpressions",
            [
                {"key": "old", "operator": "DoesNotExist"},
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
            ],
        ),
    ],
)
def test_every_flag_has_its_field(arguments: list[str], path: str, value: Any) -> None:
    (made,) = dry(*PLAIN, *arguments)
    found: Any = made
    for step in path.split("."):
        found = found[int(step)] if isinstance(found, list) else found.get(step)
    assert found == value


@pytest.mark.parametrize(
    ("arguments", "err"),
    [
        ([], "--owner: is required: the labels of the pods it is for, such as app=web"),
        (["--owner", "app=web"], "nothing to reserve: give --cpu"),
        (
            ["--cpu", "four", "--owner", "a=b"],
            "--cpu: expected a quantity, such as 500m or 2Gi, got 'four'",
        ),
        (["--cpu", "0", "--owner", "a=b"], "--cpu: must be more than 0, got '0'"),
        (["--cpu", "-1", "--owner", "a=b"], "--cpu: must be more than 0"),
        ([*PLAIN, "--resource", "gpu"], "--resource: expected NAME=QUANTITY, got 'gpu'"),
        ([*PLAIN, "--resource", "cpu=1"], "--resource: cpu is given twice"),
        ([*PLAIN, "--resource", "no good=1"], "--cpu, --memory, --gpu or --resource: spec.template"),
        ([*PLAIN, "--ttl", "2"], "--ttl: not a duration: '2'"),
        ([*PLAIN, "--ttl", "-2h"], "--ttl: must not be negative"),
        ([*PLAIN, "--ttl", "2h", "--expires", "2027-01-01T00:00:00Z"], "--expires: cannot be given"),
        ([*PLAIN, "--expires", "tomorrow"], "--expires: not a time: 'tomorrow'"),
        ([*PLAIN, "--expires", "2020-01-01T00:00:00Z"], "--expires: must be in the future, got 2020-"),
        ([*PLAIN, "--replicas", "0"], "--replicas: must be at least 1, got 0"),
        ([*PLAIN, "--replicas", "1000000"], "--replicas: at most 1000 reservations at once, got"),
        (
            [*PLAIN, "--priority", "-5"],
            "--priority: expected a number from 0 to 2147483647, got -5: it is the value of a label, "
            "which cannot begin with a minus; spec.template.spec.priority can be negative",
        ),
        ([*PLAIN, "--priority", "99999999999"], "--priority: expected a number from 0 to 2147483647"),
        ([*PLAIN, "--gpu", "0.5"], "--gpu: must be an integer, got '0.5'"),
        ([*PLAIN, "--resource", "example.com/fast=500m"], "--resource: must be an integer"),
        (
            ["--cpu", "99999999999999999999", "--owner", "a=b"],
            "--cpu: must be at most 36028797018963968m, got '99999999999999999999'",
        ),
        (["--memory", "33Pi", "--owner", "a=b"], "--memory: must be at most 32Pi, got '33Pi'"),
        ([*PLAIN, "--name", "Not_A_Name"], "--name: metadata.name"),
        ([*PLAIN, "--node-selector", "ssd"], "--node-selector: expected KEY=VALUE, got 'ssd'"),
        ([*PLAIN, "--owner", ""], "--owner: expected labels"),
        ([*PLAIN, "--owner", "a=b=c"], "--owner: found '='"),
        ([*PLAIN, "--owner", "size>3"], "--owner: size: pod labels do not support > and <"),
        (["deploy"], "SOURCE: expected deployment/NAME, got 'deploy'"),
        (["deploymnt/web"], "SOURCE: cannot reserve for 'deploymnt'; did you mean deployment?"),
        (["cronjob/report"], "SOURCE: cannot reserve for 'cronjob'; known: deployment, job"),
        (["cats/tom"], "SOURCE: cannot reserve for 'cats'; known: deployment, job"),
        (["deployment/web", "-f", "x.yaml"], "--filename: cannot be given together with a SOURCE"),
        (["-f", "nothing.yaml"], "nothing.yaml: No such file or directory"),
        ([*PLAIN, "--policy", "Greedy"], "'Greedy' is not one of"),
        ([*PLAIN, "--policy", "restrictd"], "did you mean Restricted?"),
        ([*PLAIN, "-A", "-n", "shop"], "--all-namespaces: cannot be given together with --namespace"),
        (["deployment/web", "-A"], "--all-namespaces: needs --owner"),
        ([*PLAIN, "--wait"], "--wait: cannot be given together with --dry-run"),
        ([*PLAIN, "--timeout", "soon"], "--timeout: not a duration: 'soon'"),
        ([*PLAIN, "--nod", "n1"], "unknown option --nod; did you mean --node?"),
    ],
)
def test_errors_name_their_flag(arguments: list[str], err: str) -> None:
    done = call("reserve", *arguments, "--dry-run")
    assert done.status == 1 and done.out == ""
    assert err in " ".join(done.err.split()), done.err


def test_a_deployment_in_a_file_gives_template_owners_and_number(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(deployment("web", "web", 2)))
    made = dry("-f", str(file))
    assert [raw["metadata"]["name"] for raw in made] == ["web-1", "web-2"]
    spec = made[0]["spec"]
    assert spec["owners"] == [
        {"object": {"namespace": "default"}, "labelSelector": {"matchLabels": {"app": "web"}}}
    ]
    assert spec["template"]["metadata"] == {"labels": {"app": "web"}, "namespace": "default"}
    assert spec["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "4Gi"}
    assert "env" not in container  # users that may read reservations need not read secrets
    assert len(dry("-f", str(file), "--replicas", "5")) == 5


def test_a_misspelt_field_in_a_file_is_an_error(tmp_path: Path) -> None:
    raw = deployment("web", "web", 1)
    container = raw["spec"]["template"]["spec"]["containers"][0]
    container["resource"] = container.pop("resources")
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(raw))
    done = call("reserve", "-f", str(file), "--dry-run")
    assert done.status == 1 and done.out == ""
    assert 'unknown field "spec.template.spec.containers[0].resource"' in " ".join(done.err.split())


def test_pods_that_ask_for_nothing_are_a_warning(tmp_path: Path) -> None:
    raw = deployment("web", "web", 1)
    del raw["spec"]["template"]["spec"]["containers"][0]["resources"]
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(raw))
    done = call("reserve", "-f", str(file), "--dry-run")
    assert (done.status, done.err.split(":")[0]) == (0, "warning")


def test_flags_override_the_source(tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(deployment("web", "web", 1)))
    (made,) = dry(
        "-f", str(file), "--cpu", "6", "--owner", "app=other", "--name", "peak", "--node", "n1"
    )
    template = made["spec"]["template"]["spec"]
    assert template["containers"] == [{"name": "main", "resources": {"requests": {"cpu": "6"}}}]
    assert (template["nodeName"], made["metadata"]["name"]) == ("n1", "peak")
    assert made["spec"]["owners"] == [
        {"object": {"namespace": "default"}, "labelSelector": {"matchLabels": {"app": "other"}}}
    ]


@pytest.mark.parametrize(
    ("spec", "count"),
    [({}, 1), ({"parallelism": 3}, 3), ({"parallelism": 3, "completions": 2}, 2)],
)
def test_a_job_has_as_many_as_run_at_once(tmp_path: Path, spec: Raw, count: int) -> None:
    file = tmp_path / "job.yaml"
    job = workload("batch/v1", "Job", "train", "t", pod={"restartPolicy": "Never"}, **spec)
    file.write_text(yaml.safe_dump(job))
    made = dry("-f", str(file))
    assert len(made) == count
    assert made[0]["spec"]["owners"] == [
        {
            "controller": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "namespace": "default",
                "controller": True,
            }
        }
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("reserve")) as cluster:
        made = deployment("web", "web", 1)
        del made["spec"]["template"]["spec"]["nodeSelector"]
        job = workload("batch/v1", "Job", "train", "t", pod={"restartPolicy": "Never"}, parallelism=1)
        del job["spec"]["template"]["spec"]["nodeSelector"]
        cluster.create(made, job)
        yield cluster


def test_dry_run_reads_the_source_and_creates_nothing(cluster: ServedCluster) -> None:
    made = documents(cluster("reserve", "deployment/web", "--replicas", "2", "--dry-run"))
    assert len(made) == 2
    assert "schedulerName" not in made[0]["spec"]["template"]["spec"]
    assert cluster("get", "rsv").err == "No resources found\n"


def test_reserved_capacity_is_used_by_the_pods_it_was_reserved_for(cluster: ServedCluster) -> None:
    """The pods of a Deployment and a Job are allocated from what was reserved for them before."""
    done = cluster("reserve", "deploy/web", "--name", "for-web")
    assert done.out == "reservation.scheduling.koordinator.sh/for-web created\n"
    assert (
        cluster("reserve", "job/train", "-o", "name").out
        == "reservation.scheduling.koordinator.sh/train\n"
    )
    cluster.settle()
    rows = {row[0]: row for row in cluster("get", "rsv", "--no-headers").rows()}
    assert rows["for-web"][3].startswith("web-"), rows
    assert rows["train"][3].startswith("train-"), rows


def test_a_refusal_is_shown_with_the_message_of_the_server(cluster: ServedCluster) -> None:
    assert cluster("reserve", *PLAIN, "--name", "twice").status == 0
    again = cluster("reserve", *PLAIN, "--name", "twice")
    text = 'reservations.scheduling.koordinator.sh "twice" already exists'
    assert (again.status, again.err) == (1, f"Error from server (AlreadyExists): {text}\n")
    assert cluster("reserve", *PLAIN).status == 0
    assert "--name sets another name" in cluster("reserve", *PLAIN).err
    missing = cluster("reserve", "deployment/none")
    assert missing.err == 'Error from server (NotFound): deployments.apps "none" not found\n'
    elsewhere = cluster("reserve", "deployment/web", "-n", "kube-system")
    assert elsewhere.status == 1


def test_a_misspelt_source_gets_the_nearest_name(cluster: ServedCluster) -> None:
    assert cluster("reserve", "deploy/webb").err.endswith(
        'deployments.apps "webb" not found; did you mean web?\n'
    )
    assert cluster("reserve", "job/train", "-n", "other").err.endswith(
        "; there is one in namespace default: use -n default\n"
    )


def test_a_dry_run_of_the_server_creates_nothing(cluster: ServedCluster) -> None:
    done = cluster("reserve", *PLAIN, "--name", "maybe", "--dry-run=server")
    assert done.out == "reservation.scheduling.koordinator.sh/maybe created (server dry run)\n"
    assert cluster("get", "rsv", "maybe").status == 1


def test_the_namespace_of_the_owners_is_printed(cluster: ServedCluster) -> None:
    assert cluster("reserve", *PLAIN, "--name", "here").err == (
        "owners: pods with app=web in namespace default\n"
    )
    assert cluster("reserve", *PLAIN, "--name", "any", "-A").err == (
        "owners: pods with app=web in any namespace\n"
    )


def test_a_node_or_namespace_that_does_not_exist_is_a_warning(cluster: ServedCluster) -> None:
    done = cluster("reserve", *PLAIN, "--name", "away", "--node", "node-9", "-n", "defalt")
    assert done.status == 0
    assert done.err.splitlines()[:2] == [
        'warning: --node: no node "node-9"; did you mean node-1 or node-2?',
        'warning: no namespace "defalt"; did you mean default?',
    ]
    there = cluster("reserve", *PLAIN, "--name", "there", "--node", "node-1", "-n", "default")
    assert "warning" not in there.err


def test_amounts_of_a_template_are_checked_by_the_server_and_in_scenarios() -> None:
    (raw,) = dry(*PLAIN, "--gpu", "1")
    requests = raw["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    requests |= {"cpu": "99999999999999999999", "nvidia.com/gpu": "0.5"}
    at = "spec.template.spec.containers[0].resources.requests"
    assert [str(error).partition(f": {at}")[2] for error in ScenarioObject(raw).errors] == [
        '[nvidia.com/gpu]: Invalid value: "0.5": must be an integer',
        '[cpu]: Invalid value: "99999999999999999999": must be at most 36028797018963968m',
    ]


def test_waiting_shows_what_came_of_it(cluster: ServedCluster) -> None:
    done = Event()

    def schedule() -> None:
        while not done.is_set():
            cluster.settle()
            done.wait(0.02)

    with ThreadPoolExecutor() as pool:
        pool.submit(schedule)
        try:
            fits = cluster("reserve", "--cpu", "1", "--owner", "app=w", "--name", "fits", "--wait")
            large = ["--cpu", "99", "--owner", "app=w", "--name", "large", "--wait"]
            refused = cluster("reserve", *large, "--timeout", "300ms")
        finally:
            done.set()
    assert fits.status == 0
    assert fits.lines[1].startswith("reservation.scheduling.koordinator.sh/fits available on node-")
    assert refused.status == 1
    assert "large: Pending after 300ms: 0/2 nodes are available: 2 Insufficient cpu." in refused.err


def test_one_of_several_is_refused_and_the_others_are_named(cluster: ServedCluster) -> None:
    cluster("reserve", *PLAIN, "--name", "some-2")
    done = cluster("reserve", *PLAIN, "--name", "some", "--replicas", "3")
    assert done.status == 1
    assert done.out == "reservation.scheduling.koordinator.sh/some-1 created\n"
    assert '"some-2" already exists' in done.err


def test_devices_of_a_class_are_reserved_by_a_template() -> None:
    flags = ["--device-class", "gpu", "--count", "4", "--cpu", "8", "--owner", "app=train"]
    template, first, second = dry(*flags, "--replicas", "2")
    assert (template["kind"], template["metadata"]) == (
        "ResourceClaimTemplate",
        {
            "name": "train-devices",
            "namespace": "default",
            "labels": {"app.kubernetes.io/managed-by": "holdfast-reserve"},
        },
    )
    (wanted,) = template["spec"]["spec"]["devices"]["requests"]
    assert (wanted["exactly"]["deviceClassName"], wanted["exactly"]["count"]) == ("gpu", 4)
    for made in (first, second):
        assert made["spec"]["template"]["spec"]["resourceClaims"] == [
            {"name": "devices", "resourceClaimTemplateName": "train-devices"}
        ]


def test_devices_alone_are_something_to_reserve() -> None:
    _, made = dry("--device-class", "gpu", "--owner", "app=train")
    assert made["spec"]["template"]["spec"]["containers"] == [{"name": "main"}]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--count", "2"], "--count: needs --device-class"),
        (["--device-class", "gpu", "--count", "0"], "--count: expected a number from 1 to 32, got 0"),
        (["--device-class", "gpu", "--count", "33"], "--count: expected a number from 1 to 32, got 33"),
    ],
)
def test_a_number_of_devices_needs_a_class(flags: list[str], problem: str) -> None:
    done = call("reserve", *PLAIN, *flags, "--dry-run")
    assert done.status == 1
    assert problem in done.err
