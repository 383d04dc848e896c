"""`holdfast up`: serves, schedules, stops, and comes back."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.objects import pod
from harness.up_process import PODS, Running
from holdfast.cli.app import app
from holdfast.cli.options import Failure
from holdfast.local.store import Raw

NODE = "{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {capacity: {cpu: '4'}}}"
RUNS = "sim.holdfast.io/runs-for"
QUEUE = "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: %s}, %s}\n"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("up")
    manifests = folder / "m.yaml"
    manifests.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: early, namespace: team}\n"
        "spec: {priorityClassName: high, containers: [{name: c, image: i}]}\n---\n"
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 7\n---\n"
        "{apiVersion: v1, kind: Namespace, metadata: {name: team}}\n---\n"
        f"{QUEUE % ('child', 'spec: {parent: parent}')}---\n{QUEUE % ('parent', '')}---\n"
        + NODE
        % "mine"
    )
    with Running(folder, "--nodes", "2", "--apply", str(manifests), "--no-dashboard") as running:
        yield running
        assert running.stop() == (0, "")


def test_the_kubeconfig_is_readable_only_by_its_owner(up: Running) -> None:
    assert up.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert any(str(up.kubeconfig) in line for line in up.printed)
    assert up.client.server.hostname == "127.0.0.1"


def test_requests_without_the_token_are_refused(up: Running) -> None:
    token, up.client.token = up.client.token, "wrong"
    try:
        assert up.client.ask("GET", PODS)[0] == 401
    finally:
        up.client.token = token


def test_what_was_asked_for_is_there(up: Running) -> None:
    namespaces = {raw["metadata"]["name"] for raw in up.client.get("/api/v1/namespaces")["items"]}
    assert {"default", "kube-system", "kube-public", "kube-node-lease", "team"} <= namespaces
    nodes = up.client.get("/api/v1/nodes")["items"]
    assert {raw["metadata"]["name"] for raw in nodes} >= {"node-1", "node-2", "mine"}
    queues = up.client.get("/apis/scheduling.volcano.sh/v1beta1/queues")["items"]
    assert {"parent", "child"} <= {raw["metadata"]["name"] for raw in queues}
    early = up.client.until("/api/v1/namespaces/team/pods", "early", _placed)
    assert early is not None
    assert early["spec"]["priority"] == 7


def test_the_kinds_it_serves_include_reservations(up: Running) -> None:
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    assert up.client.get(path)["items"] == []


def test_a_queue_below_one_that_does_not_exist_is_refused(up: Running) -> None:
    """As by Volcano's admission."""
    path = "/apis/scheduling.volcano.sh/v1beta1/queues"

    def queue(name: str, **spec: object) -> Raw:
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        return {**kind, "metadata": {"name": name}, "spec": {"weight": 1, **spec}}

    def changed(**spec: object) -> int:
        code = 409
        while code == 409:  # its status changed meanwhile
            live = up.client.get(f"{path}/research")
            body = {**live, "spec": {**live["spec"], **spec}}
            code, _ = up.client.ask("PUT", f"{path}/research", body)
        return code

    up.client.create(path, queue("company"))
    code, refused = up.client.ask("POST", path, queue("research", parent="compny"))
    assert (code, refused["message"]) == (
        403,
        'queues.scheduling.volcano.sh "research" is forbidden: failed to get parent queue of queue '
        'research: queues.scheduling.volcano.sh "compny" not found; did you mean company?',
    )
    up.client.create(path, queue("research", parent="company"))
    assert up.client.create(path, queue("sales", parent="root"))["spec"]["parent"] == "root"
    assert changed(parent="other") == 403
    up.client.ask("DELETE", f"{path}/company")
    assert changed(weight=3) == 200


@pytest.mark.parametrize("scheduler", ["default-scheduler", "holdfast-scheduler"])
def test_a_pod_created_over_http_runs_and_ends(up: Running, scheduler: str) -> None:
    name = f"p-{scheduler}"
    raw = pod(name, annotations={RUNS: "1s"})
    raw["spec"]["schedulerName"] = scheduler
    up.client.create(PODS, raw)
    ended = up.client.until(PODS, name, lambda raw: bool(raw and raw["status"]["phase"] == "Succeeded"))
    assert ended is not None
    assert ended["spec"]["nodeName"]


def test_an_evicted_pod_goes(up: Running) -> None:
    up.client.create(PODS, pod("evicted"))
    up.client.until(PODS, "evicted", lambda raw: bool(raw and raw["status"]["phase"] == "Running"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}
    assert up.client.ask("POST", f"{PODS}/evicted/eviction", eviction)[0] == 201
    code, _ = up.client.ask("GET", f"{PODS}/evicted")
    if code != 404:
        up.client.until(PODS, "evicted", lambda raw: raw is None)


def test_a_namespace_is_emptied_and_gone(up: Running) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leaving"}}
    up.client.create("/api/v1/namespaces", namespace)
    inside = "/api/v1/namespaces/leaving/pods"
    up.client.create(inside, pod("p", annotations={"sim.holdfast.io/stops-in": "1s"}))
    up.client.until(inside, "p", lambda raw: bool(raw and raw["status"]["phase"] == "Running"))
    with up.client.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name=leaving") as events:
        up.client.ask("DELETE", "/api/v1/namespaces/leaving")
        assert any(event["type"] == "DELETED" for event in events)
    assert up.client.get(inside)["items"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_on_a_signal_even_with_a_watch_open(tmp_path: Path, number: signal.Signals) -> None:
    with Running(tmp_path) as running, running.client.watch(f"{PODS}?watch=1") as events:
        assert running.stop(number) == (0, "")
        assert list(events) == []


def _placed(raw: Raw | None) -> bool:
    return bool(raw and raw["spec"].get("nodeName"))


def test_a_restart_keeps_all_and_old_kubeconfigs_keep_working(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Running(tmp_path, "--data-dir", str(data), "--nodes", "1") as first:
        made = first.client.create(PODS, pod("kept"))
        running = first.client.until(PODS, "kept", _placed)
        token = first.client.token
        assert first.stop() == (0, "")
    assert data.stat().st_mode & 0o777 == 0o700
    with Running(tmp_path, "--data-dir", str(data), "--nodes", "1") as second:
        assert second.client.token == token
        again = second.client.get(f"{PODS}/kept")
        assert running is not None
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
        assert again["spec"]["nodeName"] == running["spec"]["nodeName"]
        assert int(second.client.create(PODS, pod("new"))["metadata"]["resourceVersion"]) > int(
            again["metadata"]["resourceVersion"]
        )
        for kubeconfig in (tmp_path / "other.yaml", second.kubeconfig):
            written = second.kubeconfig.read_text()
            with pytest.raises(
                Failure, match="is the data directory of a cluster that runs as process"
            ):
                app(
                    ["up", "--data-dir", str(data), "--kubeconfig-out", str(kubeconfig)],
                    standalone_mode=False,
                )
        assert second.kubeconfig.read_text() == written, "that of a cluster that is up stays"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "{folder}/d", "--in-memory"], "cannot be given together"),
        (["--dashboard-port", "8080", "--no-dashboard"], "cannot be given together"),
        (["--apply", "{folder}/none.yaml"], "none.yaml: No such file"),
        (["--config", "{folder}/bad.yaml"], "bad.yaml"),
        (["--apply", "{folder}/bad.yaml"], "no kind 'Nonsense' in version 'v1'"),
        (["--apply", "{folder}/invalid.yaml"], "Pod/default/p: .*spec.containers"),
        (["--apply", "{folder}/step.yaml"], "is for `holdfast simulate`"),
        (["--kubeconfig-out", "{folder}/mine.yaml"], "was not written by Holdfast"),
        (["--kubeconfig-out", "{folder}/no/where.yaml"], "no directory"),
        (["--data-dir", "{folder}/damaged"], "holdfast.db: is damaged"),
        (["--nodes", "1", "--node-cpu", "lots"], "--node-cpu: "),
        (["--node-gpus", "1"], "are for the nodes of --nodes"),
        (["--node-file", "{folder}/invalid.yaml"], "invalid.yaml: document 1, line 1: expected a Node"),
        (["--node-file", "{folder}/empty.yaml"], "--node-file: .*empty.yaml: no documents"),
        (["--apply", "{folder}/empty.yaml"], "--apply: .*empty.yaml: no documents"),
        (
            ["--apply", "{folder}/misspelt.yaml"],
            'Pod/default/p: spec.nodeNam: .*unknown field "spec.nodeNam"; did you mean nodeName',
        ),
        (["--jobs-run-for", "10"], "--jobs-run-for: not a duration: '10' .*, or unlimited"),
        (["--jobs-run-for", "-1s"], "--jobs-run-for: '-1s' is less than 0"),
        (["--host", "192.0.2.1"], "cannot listen on 192.0.2.1:0"),
    ],
)
def test_invalid_arguments_are_refused_with_a_reason(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "bad.yaml").write_text("{apiVersion: v1, kind: Nonsense, metadata: {name: x}}")
    (tmp_path / "invalid.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {}}")
    (tmp_path / "misspelt.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeNam: n, containers: [{name: c}]}}"
    )
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    (tmp_path / "step.yaml").write_text("{apiVersion: sim.holdfast.io/v1alpha1, kind: Step, at: 1s}")
    (tmp_path / "mine.yaml").write_text("{apiVersion: v1, kind: Config, contexts: [{name: prod}]}")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "holdfast.db").write_bytes(b"not a database, to be sure" * 100)
    given = [each.format(folder=tmp_path) for each in arguments]
    if "--kubeconfig-out" not in given:
        given += ["--kubeconfig-out", str(tmp_path / "out.yaml")]
    with pytest.raises(Failure, match=message) as failure:
        app(["up", *given], standalone_mode=False)
    assert failure.value.status == 1
    assert not (tmp_path / "out.yaml").exists()


@pytest.mark.parametrize("content", ["", " \n", "\x00" * 20])
def test_without_a_valid_token_it_does_not_come_up(tmp_path: Path, content: str) -> None:
    data = tmp_path / "data"
    (data / "pki").mkdir(parents=True)
    (data / "pki" / "token").write_text(content)
    with pytest.raises(Failure) as failure:
        app(["up", "--data-dir", str(data)], standalone_mode=False)
    (error,) = failure.value.lines
    assert f"{data}/pki/token: is" in error
    assert "delete it: a new token is made" in error
