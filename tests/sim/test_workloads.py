"""Deployments of a scenario have pods. Other owners are in `test_sim_dumps`."""

import json
from typing import Any

import pytest

from harness.scenarios import NODE, find, joined, pod_text, simulate, step_text
from holdfast.sim.simulation import Result
from holdfast.snapshot.manifests import InvalidInput

Raw = dict[str, Any]


def _template(image: str = "a") -> Raw:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def _workload(kind: str = "Deployment", replicas: int = 2, **spec: Any) -> str:
    raw = {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": _template(),
            **spec,
        },
    }
    return json.dumps(raw)


def _patch(at: str, **spec: Any) -> str:
    return step_text(at, f"patch: {{kind: Deployment, name: web, merge: {json.dumps({'spec': spec})}}}")


def _pods(result: Result) -> list[Raw]:
    return [raw for raw in result.objects if raw["kind"] == "Pod"]


def _running(result: Result) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in _pods(result))


STORIES = {
    "as given": ([], 2, {"a"}),
    "scaled up": ([_patch("10s", replicas=4)], 4, {"a"}),
    "scaled down": ([_patch("10s", replicas=1)], 1, {"a"}),
    "updated": ([_patch("10s", template=_template("b"))], 2, {"b"}),
    "deleted": ([step_text("10s", "delete: {kind: Deployment, name: web}")], 0, set()),
}


def test_a_pod_that_is_created_again_has_another_uid_than_the_given_one() -> None:
    """Also if the given objects are those of a run with the same seed."""
    delete = step_text("10s", "delete: {kind: Pod, name: web-0}")
    set_ = _workload("StatefulSet", 1, serviceName="web")
    first = simulate(joined(NODE, set_, delete))
    uid = find(first, "Pod", "web-0")["metadata"]["uid"]
    given = [find(first, *each) for each in (("StatefulSet", "web"), ("Pod", "web-0"))]
    parts = [json.dumps(raw) for raw in given]
    assert find(simulate(joined(NODE, *parts)), "Pod", "web-0")["metadata"]["uid"] == uid
    second = simulate(joined(NODE, *parts, delete))
    assert find(second, "Pod", "web-0")["metadata"]["uid"] != uid
    assert second.objects == simulate(joined(NODE, *parts, delete)).objects


def test_a_uid_is_not_made_before_the_object_that_has_it_comes() -> None:
    def uid(text: str) -> str:
        return str(find(simulate(text), "Pod", "p")["metadata"]["uid"])

    later = json.loads(json.dumps(find(simulate(joined(NODE, pod_text("p"))), "Pod", "p")))
    later["metadata"] |= {"name": "late", "annotations": {"sim.holdfast.io/at": "5s"}}
    later["spec"].pop("nodeName")
    assert uid(joined(NODE, pod_text("p"), json.dumps(later))) != later["metadata"]["uid"]


@pytest.mark.parametrize("case", STORIES)
def test_a_deployment(case: str) -> None:
    steps, running, images = STORIES[case]
    result = simulate(joined(NODE, _workload(), *steps))
    assert _running(result) == len(_pods(result)) == running
    assert {pod["spec"]["containers"][0]["image"] for pod in _pods(result)} == images
    assert result.end == (10.0 if steps else 0.0)


def test_pods_that_do_not_fit_wait_and_prolong_nothing() -> None:
    result = simulate(joined(NODE, _workload(replicas=6)))
    assert (_running(result), len(_pods(result)), result.end) == (4, 6, 0.0)
    status = find(result, "Deployment", "web")["status"]
    assert (status["readyReplicas"], status["unavailableReplicas"]) == (4, 2)


@pytest.mark.parametrize("runs_for", ["0s", "10s"])
def test_pods_of_a_deployment_run_until_they_are_deleted(runs_for: str) -> None:
    template = _template()
    template["metadata"]["annotations"] = {"sim.holdfast.io/runs-for": runs_for}
    template["spec"]["activeDeadlineSeconds"] = 5
    result = simulate(joined(NODE, _workload(replicas=1, template=template)))
    assert (_running(result), len(_pods(result)), result.end) == (1, 1, 0.0)


def test_owners_that_are_not_there_count_as_present() -> None:
    named = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u"}
    reference = {**named, "controller": True}
    owned = pod_text("owned", metadata={"ownerReferences": [reference]})
    result = simulate(joined(NODE, _workload(), owned))
    assert find(result, "Pod", "owned")["status"]["phase"] == "Running"


def test_a_run_can_be_repeated() -> None:
    text = joined(NODE, _workload(), _patch("10s", template=_template("b")))
    first, second = simulate(text, seed=3), simulate(text, seed=3)
    assert first.objects == second.objects
    assert first.timeline == second.timeline


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"replicas": 2**40}, "spec.replicas: json: cannot unmarshal number 1099511627776"),
        ({"template": {"spec": 5}}, "spec.template.spec: json: cannot unmarshal number into"),
        ({"template": {"metadata": "x"}}, "spec.template.metadata: json: cannot unmarshal string into"),
        ({"template": _template() | {"spec": {}}}, "spec.template.spec.containers: Required value"),
        (
            {"selector": {"matchLabels": {"app": "b"}}},
            "spec.template.metadata.labels: Invalid value: "
            '{"app":"web"}: `selector` does not match template `labels`',
        ),
        ({"strategy": {"rollingUpdate": {"maxSurge": []}}}, "spec.strategy.rollingUpdate.maxSurge:"),
        ({"strategy": 5}, "spec.strategy: json: cannot unmarshal number into"),
        ({"selector": None}, "spec.selector: Required value"),
        ({"template": None}, "spec.template.spec.containers: Required value"),
    ],
)
def test_an_invalid_deployment_is_refused(spec: Raw, complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        simulate(joined(NODE, _workload(**spec)))
    assert f"Deployment/default/web: {complaint}" in str(refused.value)


def _cron_job(**spec: Any) -> str:
    template = _template()
    template["metadata"]["annotations"] = {"sim.holdfast.io/runs-for": "90s"}
    template["spec"]["restartPolicy"] = "Never"
    raw = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": template}}, **spec},
    }
    return json.dumps(raw)


def _ran(result: Result) -> list[tuple[float, str]]:
    return [
        (entry.t, entry.event)
        for entry in result.timeline
        if entry.object.startswith("Pod/") and entry.event in ("Running", "Succeeded")
    ]


def test_a_cron_job_starts_jobs_in_virtual_time() -> None:
    result = simulate(joined(NODE, _cron_job()), until=660.0)
    assert _ran(result) == [
        (300.0, "Running"),
        (390.0, "Succeeded"),
        (600.0, "Running"),
    ]
    assert find(result, "CronJob", "tick")["status"]["lastScheduleTime"] == "2026-01-01T00:10:00Z"


def test_a_schedule_prolongs_nothing() -> None:
    result = simulate(joined(NODE, _cron_job(), step_text("301s", "restart: scheduler")))
    assert _ran(result) == [(300.0, "Running"), (390.0, "Succeeded")]
    assert result.end == 390.0
    assert simulate(joined(NODE, _cron_job())).end == 0.0
