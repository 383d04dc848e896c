"""`holdfast check`: fits or not, exit statuses, formats, lines of fields."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.served_cluster import ServedCluster, call
from sim.what_if.clusters import node, pod, priority, workload
from sim.what_if.test_answer import schema

QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "small"},
    "spec": {"capability": {"cpu": "2"}},
}
CLUSTER = [
    node("n1", labels={"zone": "a"}),
    node("n2", labels={"zone": "b"}),
    node("gpu", "8", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
    workload("web", 4),
    priority("high", 100),
    QUEUE,
]
BIG = """\
apiVersion: v1
kind: Pod
metadata: {name: fits}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: big
spec:
  replicas: 3
  selector: {matchLabels: {app: big}}
  template:
    metadata: {labels: {app: big}}
    spec:
      containers:
      - name: first
        image: i
      - name: second
        image: i
        resources:
          requests:
            memory: 1Gi
            cpu: 1500m
"""


def _write(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text("---\n".join(json.dumps(raw) + "\n" for raw in objects))
    return str(path)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    return _write(tmp_path / "cluster.yaml", *CLUSTER)


def _group(name: str, members: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": members, "queue": "small"},
    }


def _member(name: str, group: str, cpu: str) -> dict[str, Any]:
    raw = pod(name, cpu)
    raw["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": group}
    return raw


CRON = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "nightly"},
    "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": workload("x", 2, "3", "Job")["spec"]}},
}
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, tuple[int, int, int, int]]]] = {
    # placed, pods, nodes that could take one now, nodes if empty
    "a pod": ([pod("p")], {"Pod/default/p": (1, 1, 2, 2)}),
    "a pod for one zone": (
        [pod("p", nodeSelector={"zone": "b"})],
        {"Pod/default/p": (1, 1, 1, 1)},
    ),
    "a pod for the tainted node too": (
        [pod("p", "3", tolerations=[{"operator": "Exists"}])],
        {"Pod/default/p": (1, 1, 1, 3)},
    ),
    "too large for any": ([pod("p", "9")], {"Pod/default/p": (0, 1, 0, 0)}),
    "a Deployment in part": ([workload("d", 6)], {"Deployment/default/d": (4, 6, 2, 2)}),
    "a StatefulSet": ([workload("s", 2, kind="StatefulSet")], {"StatefulSet/default/s": (2, 2, 2, 2)}),
    "a Job": ([workload("j", 4, "1", "Job")], {"Job/default/j": (4, 4, 2, 2)}),
    "a DaemonSet": ([workload("a", kind="DaemonSet")], {"DaemonSet/default/a": (2, 2, 2, 2)}),
    "a CronJob as the Job it starts": ([CRON], {"Job/default/nightly": (0, 2, 0, 2)}),
    "two together": (
        [workload("one", 2), workload("two", 3)],
        {"Deployment/default/one": (2, 2, 2, 2), "Deployment/default/two": (2, 3, 2, 2)},
    ),
    "a gang that fits": (
        [_group("g", 2), _member("m1", "g", "1"), _member("m2", "g", "1")],
        {
            "PodGroup/default/g": (2, 2, 0, 0),
            "Pod/default/m1": (1, 1, 2, 2),
            "Pod/default/m2": (1, 1, 2, 2),
        },
    ),
    "a gang above its queue's capability": (
        [_group("g", 2), _member("m1", "g", "1500m"), _member("m2", "g", "1500m")],
        {
            "PodGroup/default/g": (0, 2, 0, 0),
            "Pod/default/m1": (0, 1, 2, 2),
            "Pod/default/m2": (0, 1, 2, 2),
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_object_as_a_whole(case: str, snapshot: str, tmp_path: Path) -> None:
    manifests, wanted = CASES[case]
    done = call(
        "check", "-f", _write(tmp_path / "m.yaml", *manifests), "--snapshot", snapshot, "-o", "json"
    )
    data = json.loads(done.out)
    jsonschema.validate(data, schema("check"), jsonschema.Draft202012Validator)
    found = {
        each["object"]: (each["placed"], each["pods"], each["nodes"], each["nodesIfEmpty"])
        for each in data["objects"]
    }
    assert found == wanted
    assert done.status == (0 if all(placed == pods for placed, pods, _, _ in wanted.values()) else 1)
    for each in data["objects"]:
        assert each["fits"] or (each["reasons"] and each["details"]), each
    if "g" in {raw["metadata"]["name"] for raw in manifests}:
        assert data["objects"][0]["queue"] == "small"


def test_an_empty_cluster(snapshot: str, tmp_path: Path) -> None:
    manifest = _write(tmp_path / "m.yaml", workload("d", 6))
    assert call("check", "-f", manifest, "--snapshot", snapshot).status == 1
    assert call("check", "-f", manifest, "--snapshot", snapshot, "--empty").status == 0


def test_what_fits_by_preemption_says_so(snapshot: str, tmp_path: Path) -> None:
    manifest = _write(tmp_path / "m.yaml", workload("d", 2, "4", priorityClassName="high"))
    done = call("check", "-f", manifest, "--snapshot", snapshot, "-o", "sarif")
    assert done.status == 0
    [result] = json.loads(done.out)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("preempts", "warning")
    assert "preempts Pod/default/web-" in result["message"]["text"]
    assert "preempts 4 pods" in call("check", "-f", manifest, "--snapshot", snapshot).out


def test_the_line_of_the_field(snapshot: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(BIG)
    file = str(tmp_path / "m.yaml")
    done = call("check", "-f", file, "--snapshot", snapshot, "-o", "sarif")
    [result] = json.loads(done.out)["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]
    assert location == {"artifactLocation": {"uri": file}, "region": {"startLine": 25}}
    assert BIG.splitlines()[24].strip() == "cpu: 1500m"
    assert "1 of 3 pods do not fit: untolerated taint, too little cpu." in result["message"]["text"]


def test_the_line_in_a_list(snapshot: str, tmp_path: Path) -> None:
    text = json.dumps(
        {"kind": "List", "items": [pod("p"), pod("q", nodeSelector={"zone": "c"})]}, indent=1
    )
    (tmp_path / "m.json").write_text(text)
    done = call("check", "-f", str(tmp_path / "m.json"), "--snapshot", snapshot, "-o", "json")
    each = json.loads(done.out)["objects"][1]
    assert each["field"] == "spec.nodeSelector"
    assert "nodeSelector" in text.splitlines()[each["fieldLine"] - 1]


def test_junit(snapshot: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(BIG)
    done = call("check", "-f", str(tmp_path / "m.yaml"), "--snapshot", snapshot, "-o", "junit")
    assert done.status == 1
    root = ElementTree.fromstring(done.out)
    assert root.attrib == {"tests": "2", "failures": "1"}
    fits, big = root.iter("testcase")
    assert fits.find("failure") is None
    failure = big.find("failure")
    assert failure is not None and "0/3 nodes are available" in str(failure.text)


def test_the_table(snapshot: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(BIG)
    done = call("check", "-f", str(tmp_path / "m.yaml"), "--snapshot", snapshot)
    lines = [line.split() for line in done.out.splitlines()]
    assert any(line[:1] == ["Pod/default/fits"] and "yes" in line for line in lines)
    assert any(line[:1] == ["Deployment/default/big"] and "no" in line for line in lines)
    assert "request at most" in done.out


def test_folders_are_read_with_what_is_below(snapshot: str, tmp_path: Path) -> None:
    (tmp_path / "base" / "inner").mkdir(parents=True)
    _write(tmp_path / "base" / "a.yaml", pod("a"))
    _write(
        tmp_path / "base" / "inner" / "b.yml",
        pod("b"),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
    )
    done = call("check", "-f", str(tmp_path / "base"), "--snapshot", snapshot, "-o", "json")
    data = json.loads(done.out)
    assert [each["object"] for each in data["objects"]] == ["Pod/default/a", "Pod/default/b"]
    assert "skipped: 1 ConfigMap" in data["notes"]


PROBLEMS: dict[str, tuple[list[str], str]] = {
    "no option": ([], "-f"),
    "unknown option": (["-f", "x", "--emtpy"], "unknown option --emtpy; did you mean --empty?"),
    "no such file": (["-f", "/nonexistent.yaml"], "/nonexistent.yaml: No such file"),
    "bad format": (["-f", "x", "-o", "xml"], "xml"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_problems_have_status_2(case: str, snapshot: str) -> None:
    arguments, text = PROBLEMS[case]
    done = call("check", *arguments, "--snapshot", snapshot)
    assert (done.status, done.out) == (2, ""), done.err
    assert text in done.err


def test_invalid_manifests_have_status_2(snapshot: str, tmp_path: Path) -> None:
    bad = pod("p")
    bad["spec"]["contianers"] = []
    done = call("check", "-f", _write(tmp_path / "m.yaml", bad), "--snapshot", snapshot)
    assert done.status == 2 and "spec.contianers" in done.err
    empty = call("check", "-f", _write(tmp_path / "e.yaml"), "--snapshot", snapshot)
    assert empty.status == 2 and "no documents" in empty.err
    (tmp_path / "folder").mkdir()
    none = call("check", "-f", str(tmp_path / "folder"), "--snapshot", snapshot)
    assert none.status == 2 and "no .yaml" in none.err


def test_no_cluster_has_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert call("check", "-f", _write(tmp_path / "m.yaml", pod("p"))).status == 2


def test_a_live_cluster(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, nodes=2) as served:
        served.settle()
        manifest = _write(tmp_path / "m.yaml", pod("p"), pod("q", "64"))
        done = served("check", "-f", manifest, "-o", "json")
        assert done.status == 1, done.err
        data = json.loads(done.out)
        assert [each["fits"] for each in data["objects"]] == [True, False]
        assert data["objects"][0]["share"] == 1.0


def _reserved(cpu: str, **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    owners = [{"labelSelector": {"matchLabels": {"app": "x"}}}]
    return {"template": {"spec": {"containers": [container]}}, "owners": owners, **more}


@pytest.mark.parametrize(("cpu", "fits"), [("1", True), ("64", False)])
def test_reservations_with_a_start(cpu: str, fits: bool, snapshot: str, tmp_path: Path) -> None:
    """A reservation that has its node in the plan fits, and a schedule as its next reservation does."""
    later = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "later", "annotations": {"holdfast.io/starts-at": "2099-01-01T00:00:00Z"}},
        "spec": _reserved(cpu, ttl="1h"),
    }
    nightly = {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": "nightly"},
        "spec": {
            "schedule": "0 3 * * *",
            "duration": "1h",
            "template": {"spec": _reserved(cpu)},
        },
    }
    for raw in (later, nightly):
        done = call(
            "check", "-f", _write(tmp_path / "r.yaml", raw), "--snapshot", snapshot, "-o", "json"
        )
        assert done.status == (0 if fits else 1), done.out + done.err
        (checked,) = json.loads(done.out)["objects"]
        assert checked["object"] in ("Reservation/later", "ReservationSchedule/nightly")
        assert checked["fits"] is fits
        assert fits or "not scheduled yet" not in checked["message"], checked
