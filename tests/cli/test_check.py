"""`holdfast check`: fits or not, exit statuses, formats, lines of fields."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.objects import reservation
from harness.served_cluster import ServedCluster, call
from holdfast.api.names import QUEUE_NAME_ANNOTATION
from holdfast.api.times import format_time, parse_time
from sim.what_if.clusters import node, pod, priority, workload
from sim.what_if.clusters import template as pod_template
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


def _renamed(raw: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**raw, "metadata": metadata}


def _controller(name: str, replicas: int, cpu: str) -> dict[str, Any]:
    spec = {**workload(name, replicas, cpu)["spec"], "selector": {"app": name}}
    return {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": name},
        "spec": spec,
    }


def _volcano_job(name: str, replicas: int, cpu: str, **more: Any) -> dict[str, Any]:
    made = {"name": "w", "replicas": replicas, "template": pod_template(name, cpu)}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"minAvailable": replicas, "queue": "small", "tasks": [made], **more},
    }


def _suspended(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "spec": {**raw["spec"], "suspend": True}}


_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "late"},
    "provisioner": "x.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
_CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "late",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
_CLAIMING = pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
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
    "a StatefulSet in part, whose pods start one after another": (
        [workload("s", 9, kind="StatefulSet")],
        {"StatefulSet/default/s": (4, 9, 2, 2)},
    ),
    "what is there, unchanged": ([workload("web", 4)], {"Deployment/default/web": (4, 4, 2, 2)}),
    "what is there, with more replicas": (
        [workload("web", 5)],
        {"Deployment/default/web": (5, 5, 2, 2)},
    ),
    "what is there, too large now": (
        [workload("web", 4, "9")],
        {"Deployment/default/web": (0, 4, 0, 0)},
    ),
    "a Job with a generated name": (
        [_renamed(workload("j", 2, "9", "Job"), generateName="j-")],
        {"Job/default/j-*": (0, 2, 0, 0)},
    ),
    "a ReplicationController": (
        [_controller("r", 3, "9")],
        {"ReplicationController/default/r": (0, 3, 0, 0)},
    ),
    "a gang of Volcano": ([_volcano_job("v", 3, "1500m")], {"Job/default/v": (0, 3, 2, 2)}),
    "a suspended Job": ([_suspended(workload("j", 2, "9", "Job"))], {"Job/default/j": (0, 2, 0, 0)}),
    "a pod with a nodeName": ([pod("p", nodeName="gpu")], {"Pod/default/p": (1, 1, 1, 1)}),
    "a pod with a nodeName, too large": (
        [pod("p", "9", nodeName="n1")],
        {"Pod/default/p": (0, 1, 0, 0)},
    ),
    "a pod with the nodeName of no node": (
        [pod("p", nodeName="n9")],
        {"Pod/default/p": (0, 1, 0, 0)},
    ),
    "pods with gates": (
        [workload("d", 2, "9", schedulingGates=[{"name": "example.com/g"}])],
        {"Deployment/default/d": (0, 2, 0, 0)},
    ),
    "a pod and its PriorityClass": (
        [pod("p", priorityClassName="urgent"), priority("urgent", 5)],
        {"Pod/default/p": (1, 1, 2, 2)},
    ),
    "a pod and its claim": (
        [_CLAIMING, _CLASS, _CLAIM],
        {"Pod/default/p": (1, 1, 2, 2)},
    ),
    "a StatefulSet": ([workload("s", 2, kind="StatefulSet")], {"StatefulSet/default/s": (2, 2, 2, 2)}),
    "a Job": ([workload("j", 4, "1", "Job")], {"Job/default/j": (4, 4, 2, 2)}),
    "a DaemonSet": ([workload("a", kind="DaemonSet")], {"DaemonSet/default/a": (2, 2, 2, 2)}),
    "a CronJob as the Job it starts": ([CRON], {"CronJob/default/nightly": (0, 2, 0, 2)}),
    "a reservation": ([reservation("r", "1")], {"Reservation/r": (1, 1, 2, 2)}),
    "a reservation that is too large now": ([reservation("r", "3")], {"Reservation/r": (0, 1, 0, 2)}),
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
        re.sub(r"-[a-z0-9]{5}$", "-*", each["object"]): (
            each["placed"],
            each["pods"],
            each["nodes"],
            each["nodesIfEmpty"],
        )
        for each in data["objects"]
    }
    assert found == wanted
    assert done.status == (0 if all(placed == pods for placed, pods, _, _ in wanted.values()) else 1)
    for each in data["objects"]:
        assert each["fits"] or (each["reasons"] and each["details"]), each
    if "g" in {raw["metadata"].get("name") for raw in manifests}:
        assert data["objects"][0]["queue"] == "small"


NOT_CHECKED: dict[str, tuple[dict[str, Any], str]] = {
    "a DaemonSet for no node": (
        workload("a", kind="DaemonSet", nodeSelector={"zone": "none"}),
        "no node matches",
    ),
    "pods of another scheduler": (pod("p", schedulerName="other"), "no profile is for the scheduler"),
    "a gang of another scheduler": (_volcano_job("v", 2, "1", schedulerName="volcano"), "volcano"),
    "a kind that is not simulated": (
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "t"},
            "spec": {"replicas": {"Worker": {"template": pod_template("t", "64")}}},
        },
        "pods of a PyTorchJob are not simulated",
    ),
}


@pytest.mark.parametrize("case", NOT_CHECKED)
def test_what_is_not_checked_does_not_fit(case: str, snapshot: str, tmp_path: Path) -> None:
    raw, text = NOT_CHECKED[case]
    manifest = _write(tmp_path / "m.yaml", raw, pod("beside"))
    done = call("check", "-f", manifest, "--snapshot", snapshot, "-o", "json")
    data = json.loads(done.out)
    jsonschema.validate(data, schema("check"), jsonschema.Draft202012Validator)
    assert (done.status, data["status"], data["fits"]) == (3, "NotChecked", False), done.out
    first, beside = data["objects"]
    assert (first["status"], beside["status"]) == ("NotChecked", "Fits")
    assert text in first["message"]
    assert "not checked: " in call("check", "-f", manifest, "--snapshot", snapshot).out
    junit = call("check", "-f", manifest, "--snapshot", snapshot, "-o", "junit")
    assert [*ElementTree.fromstring(junit.out).iter("skipped")] and junit.status == 3
    worse = _write(tmp_path / "w.yaml", raw, pod("large", "64"))
    assert call("check", "-f", worse, "--snapshot", snapshot).status == 1


def _with_priority(raw: dict[str, Any], name: str) -> dict[str, Any]:
    raw["spec"]["template"]["spec"]["priorityClassName"] = name
    return raw


def test_advice_on_a_cron_job_is_about_its_own_template(snapshot: str, tmp_path: Path) -> None:
    manifest = _write(tmp_path / "m.yaml", CRON)
    done = call("check", "-f", manifest, "--snapshot", snapshot, "-o", "json")
    (checked,) = json.loads(done.out)["objects"]
    assert any("in the template of CronJob nightly;" in each for each in checked["details"]), checked


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (pod("p", "3", nodeName="n1"), "too little cpu"),
        (pod("p", nodeName="n9"), "not a node that it names"),
        (workload("a", cpu="3", kind="DaemonSet"), "too little cpu"),
    ],
)
def test_nodes_that_a_pod_is_not_for_are_no_reason(
    manifest: dict[str, Any], reason: str, snapshot: str, tmp_path: Path
) -> None:
    path = _write(tmp_path / "m.yaml", manifest)
    done = call("check", "-f", path, "--snapshot", snapshot, "-o", "junit")
    failure = ElementTree.fromstring(done.out).find(".//failure")
    assert failure is not None and f" not fit: {reason}. " in failure.get("message", ""), done.out


def test_pods_that_cannot_be_created(snapshot: str, tmp_path: Path) -> None:
    job = {**workload("import", 1), "apiVersion": "batch/v1", "kind": "Job"}
    job["spec"] = {"template": {**job["spec"]["template"]}}
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    manifests = [_with_priority(workload("new", 2), "hihg"), _with_priority(job, "hihg")]
    file = _write(tmp_path / "m.yaml", *manifests)
    done = call("check", "-f", file, "--snapshot", snapshot, "-o", "json")
    assert done.status == 1
    for each in json.loads(done.out)["objects"]:
        name = each["object"].rpartition("/")[2]
        refusal = f'pods "{name}-" is forbidden: no PriorityClass with name hihg was found'
        assert (each["status"], each["message"]) == (
            ("DoesNotFit", f"pods cannot be created: {refusal}")
        )
        assert each["details"] == [refusal, "there is no PriorityClass hihg; did you mean high?"]


def test_limits_that_are_not_considered_are_named(tmp_path: Path) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    cluster = _write(tmp_path / "c.yaml", *CLUSTER, quota)
    done = call("check", "-f", _write(tmp_path / "m.yaml", pod("p")), "--snapshot", cluster)
    assert "note: ResourceQuotas are not considered" in done.out


def test_locations_in_sarif_are_uris(
    snapshot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    file = _write(tmp_path / "a b" / "m.yaml", pod("p", "64"))
    for given in (file, "a b/m.yaml"):
        done = call("check", "-f", given, "--snapshot", snapshot, "-o", "sarif")
        [result] = json.loads(done.out)["runs"][0]["results"]
        location = result["locations"][0]["physicalLocation"]
        assert location["artifactLocation"]["uri"] == "a%20b/m.yaml"


def test_an_empty_cluster(snapshot: str, tmp_path: Path) -> None:
    manifest = _write(tmp_path / "m.yaml", workload("d", 6))
    assert call("check", "-f", manifest, "--snapshot", snapshot).status == 1
    assert call("check", "-f", manifest, "--snapshot", snapshot, "--empty").status == 0


@pytest.mark.parametrize(("running", "says"), [([], False), ([pod("other", nodeName="n1")], True)])
def test_pods_do_not_wait_for_the_end_of_their_siblings(
    running: list[Any], says: bool, tmp_path: Path
) -> None:
    """Only other pods can be expected to end."""
    manifest = _write(tmp_path / "m.yaml", workload("web", 6))
    objects = _write(
        tmp_path / "c.yaml", node("n1"), workload("agent", kind="DaemonSet", cpu="500m"), *running
    )
    done = call("check", "-f", manifest, "--snapshot", objects)
    assert done.status == 1
    assert ("when enough capacity becomes free is unknown" in done.out) is says


def test_a_gang_is_behind_one_that_is_pending(tmp_path: Path) -> None:
    """It is applied later, also if the other one was created in the last second before."""
    created, estimate = {"creationTimestamp": "2026-01-01T00:00:00Z"}, "holdfast.io/run-estimate"

    def stored(raw: dict[str, Any], **more: Any) -> dict[str, Any]:
        own = {"uid": raw["metadata"]["name"], "namespace": "default", **created}
        raw["spec"].setdefault("schedulerName", "default-scheduler")
        return {**raw, "metadata": {**raw["metadata"], **own}, **more}

    def run_for(raw: dict[str, Any], duration: str) -> dict[str, Any]:
        raw["metadata"].setdefault("annotations", {})[estimate] = duration
        return raw

    ends = [run_for(pod("a", "2", nodeName="n1"), "30m"), run_for(pod("b", "2", nodeName="n1"), "2h")]
    running = [
        stored(each, status={"phase": "Running", "startTime": created["creationTimestamp"]})
        for each in ends
    ]
    old = [
        stored(run_for(_member(name, "old", "1"), "1h"), status={"phase": "Pending"})
        for name in ("o0", "o1")
    ]
    objects = [stored(node("n1")), *running, stored(_group("old", 2)), *old]
    objects[-3]["spec"].pop("queue")
    new = [_group("new", 2), _member("n0", "new", "1"), _member("n1", "new", "1")]
    new[0]["spec"].pop("queue")
    cluster, manifest = _write(tmp_path / "c.yaml", *objects), _write(tmp_path / "m.yaml", *new)
    done = call("check", "-f", manifest, "--snapshot", cluster, "-o", "json")
    details = json.loads(done.out)["objects"][0]["details"]
    assert any("wait 1h30m, until 2026-01-01T01:30:00Z" in each for each in details), details
    assert any("PodGroup default/old should start before" in each for each in details), details


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        (workload("web", 20, "100m", requests={"memory": "5Gi"}), "4Gi"),
        (workload("web", 20, "100m", "ReplicaSet", requests={"memory": "5Gi"}), "4Gi"),
        (workload("web", 20, "100m", "StatefulSet", requests={"memory": "5Gi"}), "4Gi"),
        (workload("web", 20, "100m", "Job", requests={"memory": "5Gi"}), "4Gi"),
    ],
    ids=["Deployment", "ReplicaSet", "StatefulSet", "Job"],
)
def test_the_largest_request_with_which_all_replicas_fit(
    raw: dict[str, Any], size: str, tmp_path: Path
) -> None:
    nodes = [node(f"n{at}", sizes={"memory": "20Gi"}) for at in range(4)]
    cluster, manifest = _write(tmp_path / "c.yaml", *nodes), _write(tmp_path / "m.yaml", raw)
    done = call("check", "-f", manifest, "--snapshot", cluster, "-o", "json")
    [found] = json.loads(done.out)["objects"]
    [advice] = [each for each in found["details"] if each.startswith("request at most")]
    assert advice.startswith(f"request at most {size} memory instead of 5Gi, in the template of ")
    assert "then all 20 pods fit: " in advice


def test_objects_that_state_no_time_are_of_now(tmp_path: Path) -> None:
    held = reservation("r", "4", app="other")
    held["status"] = {"phase": "Available", "nodeName": "n1"}
    cluster = _write(tmp_path / "c.yaml", node("n1", "4"), held)
    manifest = _write(tmp_path / "m.yaml", workload("web", 1))
    before = time.time()
    done = call("check", "-f", manifest, "--snapshot", cluster)
    [stated] = re.findall(r"wait 24h, until (\S+):", done.out)
    assert before - 1 <= parse_time(stated) - 24 * 3600 <= time.time()


def test_what_fits_by_preemption_says_so(snapshot: str, tmp_path: Path) -> None:
    manifest = _write(tmp_path / "m.yaml", workload("d", 2, "4", priorityClassName="high"))
    done = call("check", "-f", manifest, "--snapshot", snapshot, "-o", "sarif")
    assert done.status == 0
    [result] = json.loads(done.out)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("preempts", "warning")
    assert "preempts Pod/default/web-" in result["message"]["text"]
    assert "preempts 4 pods" in call("check", "-f", manifest, "--snapshot", snapshot).out


def test_what_fits_by_reclaim_says_so(tmp_path: Path) -> None:
    def of(name: str, queue: str, **spec: Any) -> dict[str, Any]:
        raw = pod(name, "4", **spec)
        raw["metadata"] |= {"namespace": "default", "annotations": {QUEUE_NAME_ANNOTATION: queue}}
        return raw

    volcano = "scheduling.volcano.sh/v1beta1"
    queues = [
        {"apiVersion": volcano, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}}
        for name in "ab"
    ]
    running = [{**of(n, "a", nodeName="n1"), "status": {"phase": "Running"}} for n in ("x", "y")]
    cluster = _write(tmp_path / "c.yaml", node("n1", "8"), *queues, *running)
    manifest = _write(tmp_path / "m.yaml", of("p", "b"))
    arguments = ("check", "-f", manifest, "--snapshot", cluster, "-o")
    done = call(*arguments, "json")
    assert done.status == 0
    [found] = json.loads(done.out)["objects"]
    assert (found["fits"], found["preempts"], found["reclaims"]) == (True, [], ["Pod/default/y"])
    [result] = json.loads(call(*arguments, "sarif").out)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("reclaims", "warning")
    shown = call(*arguments, "table").out
    assert "reclaims capacity from 1 pod" in shown
    assert "evicted, because its queue reclaims what it deserves: Pod/default/y" in shown


@pytest.mark.parametrize(("least", "fits"), [(2, True), (3, False)])
def test_a_group_fits_if_as_many_pods_fit_as_it_needs(least: int, fits: bool, tmp_path: Path) -> None:
    members = [_member(f"m{n}", "g", "3") for n in range(3)]
    group = {**_group("g", least), "spec": {"minMember": least}}
    cluster = _write(tmp_path / "c.yaml", node("n1", "8"))
    manifest = _write(tmp_path / "m.yaml", group, *members)
    done = call("check", "-f", manifest, "--snapshot", cluster, "-o", "json")
    found = {each["object"]: each for each in json.loads(done.out)["objects"]}["PodGroup/default/g"]
    assert (found["fits"], found["pods"], found["needed"]) == (fits, 3, least)
    assert found["placed"] == (2 if fits else 0)
    assert ("2 of 3 pods fit, 2 are needed" in found["details"]) is fits


def test_the_line_of_the_field(snapshot: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(BIG)
    file = str(tmp_path / "m.yaml")
    done = call("check", "-f", file, "--snapshot", snapshot, "-o", "sarif")
    [result] = json.loads(done.out)["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]
    uri = (tmp_path / "m.yaml").as_uri()
    assert location == {"artifactLocation": {"uri": uri}, "region": {"startLine": 25}}
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
        assert checked["nodes"] == (2 if fits else 0)
        assert fits or "not scheduled yet" not in checked["message"], checked


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({}, {"expires": "2001-01-01T00:00:00Z"}),
        ({"creationTimestamp": "2001-01-01T00:00:00Z"}, {"ttl": "1h"}),
    ],
)
def test_a_reservation_that_is_over_does_not_fit(
    metadata: Any, spec: Any, snapshot: str, tmp_path: Path
) -> None:
    raw = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "peak", **metadata},
        "spec": _reserved("1", **spec),
    }
    done = call("check", "-f", _write(tmp_path / "r.yaml", raw), "--snapshot", snapshot, "-o", "json")
    assert done.status == 1, done.out + done.err
    (checked,) = json.loads(done.out)["objects"]
    assert checked["message"] == "it has expired: see spec.expires and spec.ttl"


@pytest.mark.parametrize(
    ("app", "minutes", "nodes"), [("night", 30, 1), ("other", 30, 1), ("night", 90, 0)]
)
def test_nodes_that_could_take_a_pod_for_a_while_are_counted(
    app: str, minutes: int, nodes: int, tmp_path: Path
) -> None:
    starts = {"holdfast.io/starts-at": format_time(time.time() + 3600)}
    planned = reservation("night", "8", "night", annotations=starts, ttl="1h")
    snapshot = _write(tmp_path / "cluster.yaml", node("n1", "8"), planned)
    short = pod("p", "4")
    short["metadata"]["labels"] = {"app": app}
    short["metadata"]["annotations"] = {"holdfast.io/run-estimate": f"{minutes}m"}
    manifest = _write(tmp_path / "m.yaml", short)
    [found] = json.loads(call("check", "-f", manifest, "--snapshot", snapshot, "-o", "json").out)[
        "objects"
    ]
    assert (found["placed"], found["nodes"]) == (nodes, nodes)
    too_late = [each for each in found["details"] if each.endswith("after the capacity is needed")]
    assert len(too_late) == 1 - nodes
