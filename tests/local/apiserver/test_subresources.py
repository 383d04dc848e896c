"""binding, eviction, scale, and the reviews."""

from __future__ import annotations

from typing import Any

import pytest

from harness.apiserver import PODS, Answer, LiveServer
from harness.objects import pod

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."


def binding(name: str, node: str = "n1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}


def eviction(name: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


def test_a_pod_is_bound_once(server: LiveServer) -> None:
    server.post(PODS, pod("once"))
    bound = server.post(f"{PODS}/once/binding", binding("once", annotations={"a": "b"}))
    assert (bound.code, bound.body["status"]) == (201, "Success")
    after = server.get(f"{PODS}/once").body
    assert after["spec"]["nodeName"] == "n1"
    assert after["metadata"]["annotations"] == {"a": "b"}
    assert after["metadata"]["generation"] == 1
    (condition,) = after["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    for path, body in (
        (f"{PODS}/once/binding", binding("once", "n2")),
        ("/api/v1/namespaces/default/bindings", binding("once", "n1")),
    ):
        again = server.post(path, body)
        assert (again.code, again.reason, again.message) == (
            409,
            "Conflict",
            'Operation cannot be fulfilled on pods/binding "once": pod once is already assigned '
            "to node "
            '"n1"',
        )


def test_a_bound_pod_is_nominated_no_more(server: LiveServer) -> None:
    server.post(PODS, pod("hoped"))
    server.patch(f"{PODS}/hoped/status", {"status": {"nominatedNodeName": "n2"}})
    assert server.get(f"{PODS}/hoped").body["status"]["nominatedNodeName"] == "n2"
    server.post(f"{PODS}/hoped/binding", binding("hoped"))
    assert "nominatedNodeName" not in server.get(f"{PODS}/hoped").body["status"]


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (binding("other"), 400, "name in URL does not match name in Binding object"),
        (binding("picky", ""), 500, "target.name: Required value"),
        (
            {"metadata": {"name": "picky"}, "target": {"kind": "Foo", "name": "x"}},
            500,
            'target.kind: Unsupported value: "Foo": supported values: "Node", "<empty>"',
        ),
    ],
)
def test_invalid_bindings_are_refused(
    server: LiveServer, body: dict[str, Any], code: int, message: str
) -> None:
    server.post(PODS, pod("picky"))
    answer = server.post(f"{PODS}/picky/binding", body)
    assert (answer.code, answer.message) == (code, message)


def test_another_pod_of_the_same_name_is_not_bound(server: LiveServer) -> None:
    server.post(PODS, pod("reborn"))
    answer = server.post(f"{PODS}/reborn/binding", binding("reborn", uid="the-old-one"))
    assert (answer.code, "UID in precondition: the-old-one" in answer.message) == (409, True)
    missing = server.post(f"{PODS}/never/binding", binding("never"))
    assert (missing.code, missing.message) == (404, 'pods "never" not found')


def test_gated_and_leaving_pods_are_not_bound(server: LiveServer) -> None:
    server.post(PODS, pod("shut", schedulingGates=[{"name": "a.b/c"}]))
    shut = server.post(f"{PODS}/shut/binding", binding("shut"))
    assert (shut.code, "has non-empty .spec.schedulingGates" in shut.message) == (409, True)
    leaving = {**pod("leaving"), "metadata": {"name": "leaving", "finalizers": ["a.b/c"]}}
    server.post(PODS, leaving)
    server.delete(f"{PODS}/leaving")
    late = server.post(f"{PODS}/leaving/binding", binding("leaving"))
    assert (late.code, "is being deleted, cannot be assigned to a host" in late.message) == (409, True)


def running(server: LiveServer, name: str, ready: bool = True) -> None:
    server.post(PODS, {**pod(name), "metadata": {"name": name, "labels": {"app": "guarded"}}})
    server.post(f"{PODS}/{name}/binding", binding(name))
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    server.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": conditions}})


def budget(server: LiveServer, allowed: int, healthy: int = 1, desired: int = 1) -> None:
    server.delete(f"{BUDGETS}/guard")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    server.post(BUDGETS, {"metadata": {"name": "guard"}, "spec": spec})
    status = {
        "observedGeneration": 1,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": healthy,
    }
    server.patch(f"{BUDGETS}/guard/status", {"status": status})


def test_a_budget_can_refuse_an_eviction(server: LiveServer) -> None:
    running(server, "precious")
    budget(server, allowed=0)
    refused = server.post(f"{PODS}/precious/eviction", eviction("precious"))
    assert (refused.code, refused.reason, refused.message) == (429, "TooManyRequests", VIOLATES)
    (cause,) = refused.body["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget guard needs 1 healthy pods and has 1 currently",
    }
    assert "deletionTimestamp" not in server.get(f"{PODS}/precious").body["metadata"]


def test_a_budget_is_spent_by_evictions(server: LiveServer) -> None:
    running(server, "first")
    running(server, "second")
    budget(server, allowed=1, healthy=2)
    tried = server.post(f"{PODS}/first/eviction?dryRun=All", eviction("first"))
    assert tried.code == 201
    assert server.get(f"{BUDGETS}/guard").body["status"]["disruptionsAllowed"] == 1
    assert server.post(f"{PODS}/first/eviction", eviction("first")).code == 201
    spent = server.get(f"{BUDGETS}/guard").body["status"]
    assert (spent["disruptionsAllowed"], [*spent["disruptedPods"]]) == (0, ["first"])
    gone = server.get(f"{PODS}/first").body
    assert gone["metadata"]["deletionTimestamp"]
    assert gone["status"]["conditions"][-1]["type"] == "DisruptionTarget"
    assert server.post(f"{PODS}/second/eviction", eviction("second")).code == 429


def test_a_budget_without_status_refuses(server: LiveServer) -> None:
    running(server, "early")
    server.delete(f"{BUDGETS}/guard")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    server.post(BUDGETS, {"metadata": {"name": "guard"}, "spec": spec})
    answer = server.post(f"{PODS}/early/eviction", eviction("early"))
    assert answer.code == 429
    assert answer.body["details"]["retryAfterSeconds"] == 10


def test_pending_and_unhealthy_pods_are_evicted_past_a_budget(server: LiveServer) -> None:
    budget(server, allowed=0)
    server.post(PODS, {**pod("pending"), "metadata": {"name": "pending", "labels": {"app": "guarded"}}})
    assert server.post(f"{PODS}/pending/eviction", eviction("pending")).code == 201
    running(server, "unhealthy", ready=False)
    assert server.post(f"{PODS}/unhealthy/eviction", eviction("unhealthy")).code == 201
    wrong = server.post(f"{PODS}/unhealthy/eviction", eviction("other"))
    assert wrong.message == "name in URL does not match name in Eviction object"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"resources": {"requests": {"cpu": "500m", "memory": "1Mi", "example.com/gpu": "1"}}}, 200),
        ({"resources": {"limits": {"memory": "4Gi", "example.com/gpu": "1"}}}, 200),
        ({"resources": {"limits": {"example.com/gpu": "2"}}}, 422),
        ({"image": "other"}, 422),
    ],
)
def test_only_cpu_and_memory_are_resized(server: LiveServer, change: dict[str, Any], code: int) -> None:
    amounts = {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}
    limits = {**amounts, "memory": "2Gi"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": limits}}
    server.post(PODS, pod("resized", containers=[container]))
    raw = server.get(f"{PODS}/resized").body
    now = raw["spec"]["containers"][0]
    resources = {**now["resources"], **change.get("resources", {})}
    raw["spec"]["containers"] = [{**now, **change, "resources": resources}]
    answer = server.put(f"{PODS}/resized/resize", raw)
    assert answer.code == code, answer.text
    if code == 422:
        assert "spec: Forbidden: only cpu and memory resources are mutable" in answer.message


def test_a_resize_keeps_the_qos_class_and_stays_within_the_node(server: LiveServer) -> None:
    node = {"kind": "Node", "metadata": {"name": "small"}}
    node["status"] = {"allocatable": {"cpu": "2", "memory": "1Gi"}}
    server.post("/api/v1/nodes", node)
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    server.post(PODS, pod("exact", nodeName="small", containers=[container]))

    def resized(**resources: dict[str, str]) -> Answer:
        change = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
        media = "application/strategic-merge-patch+json"
        return server.patch(f"{PODS}/exact/resize", change, media)

    answer = resized(requests={"cpu": "500m"})
    assert answer.code == 422
    assert "Pod QOS Class may not change as a result of resizing" in answer.message
    assert resized(requests={"cpu": "2"}, limits={"cpu": "2"}).code == 200
    answer = resized(requests={"cpu": "3"}, limits={"cpu": "3"})
    assert answer.code == 403
    assert answer.message == (
        'pods "exact" is forbidden: node didn\'t have enough allocatable resources: cpu, requested: '
        "3000, allocatable: 2000"
    )
    assert answer.body["details"]["causes"] == [{"reason": "NodeCapacity"}]


@pytest.mark.parametrize("plural", ["deployments", "replicasets", "statefulsets"])
def test_scale(server: LiveServer, plural: str) -> None:
    kind = {"deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}
    path = f"/apis/apps/v1/namespaces/default/{plural}"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    if plural == "statefulsets":
        spec["serviceName"] = "s"
    server.post(path, {"kind": kind[plural], "metadata": {"name": "s"}, "spec": spec})
    scale = server.get(f"{path}/s/scale").body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "a=b"})
    scale["spec"]["replicas"] = 5
    assert server.put(f"{path}/s/scale", scale).body["spec"] == {"replicas": 5}
    stale = server.put(f"{path}/s/scale", scale)
    assert stale.code == 409
    assert server.patch(f"{path}/s/scale", {"spec": {"replicas": 3}}).code == 200
    after = server.get(f"{path}/s").body
    assert (after["spec"]["replicas"], after["metadata"]["generation"]) == (3, 3)
    negative = server.patch(f"{path}/s/scale", {"spec": {"replicas": -1}})
    assert negative.code == 422
    assert "spec.replicas: Invalid value: -1: must be greater than or equal to 0" in negative.message


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("odd/eviction", {"metadata": 5}, "Eviction.metadata of type v1.ObjectMeta"),
        (
            "odd/eviction",
            {**eviction("odd"), "deleteOptions": {"gracePeriodSeconds": "x"}},
            "gracePeriodSeconds of type int64",
        ),
        ("odd/binding", {"metadata": {"name": "odd"}, "target": 5}, "Binding.target of type"),
    ],
)
def test_what_is_asked_of_a_pod_must_be_readable(
    server: LiveServer, path: str, body: dict[str, Any], words: str
) -> None:
    server.post(PODS, pod("odd"))
    answer = server.post(f"{PODS}/{path}", body)
    assert answer.code == 400
    assert words in answer.message


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ({"spec": 5}, "cannot unmarshal number into Go struct field Scale.spec of type v1.ScaleSpec"),
        ({"metadata": "x"}, "Scale.metadata of type v1.ObjectMeta"),
        ({"spec": {"replicas": True}}, "cannot unmarshal bool into Go struct field"),
        ({"spec": {"replicas": 2**31}}, "spec.replicas of type int32"),
    ],
)
def test_scales_must_be_readable(server: LiveServer, scale: dict[str, Any], words: str) -> None:
    path = "/apis/apps/v1/namespaces/default/replicasets"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    server.post(path, {"metadata": {"name": "odd"}, "spec": spec})
    for answer in (server.put(f"{path}/odd/scale", scale), server.patch(f"{path}/odd/scale", scale)):
        assert answer.code == 400
        assert words in answer.message


@pytest.mark.parametrize("body", [{"metadata": 5}, {"spec": 5}])
def test_reviews_must_be_readable(server: LiveServer, body: dict[str, Any]) -> None:
    answer = server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    assert answer.code == 400
    assert "cannot be handled as a SubjectAccessReview" in answer.message


def test_reviews_allow_everything_with_a_reason(server: LiveServer) -> None:
    attributes = {"verb": "create", "resource": "pods"}
    access = server.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": attributes}},
    )
    assert access.code == 201
    assert access.body["status"]["allowed"] is True
    assert "no finer authorization" in access.body["status"]["reason"]
    rules = server.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {}})
    assert rules.body["status"]["resourceRules"][0]["verbs"] == ["*"]
    me = server.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert "system:masters" in me.body["status"]["userInfo"]["groups"]
    assert server.get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").code == 405


@pytest.mark.parametrize("subresource", ["log", "exec", "attach", "portforward"])
def test_requests_for_containers_answer_that_there_are_none(
    server: LiveServer, subresource: str
) -> None:
    name = f"idle-{subresource}"
    server.post(PODS, pod(name, nodeName="n1"))
    answer = server.get(f"{PODS}/{name}/{subresource}")
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(f"no {subresource}: pod {name} is on a simulated node")


def test_a_pod_without_a_node_has_no_logs_yet(server: LiveServer) -> None:
    server.post(PODS, pod("waits"))
    answer = server.get(f"{PODS}/waits/log")
    assert (answer.code, answer.text) == (204, "")
    assert server.post(f"{PODS}/waits/log", {}).code == 405
    assert server.get(f"{PODS}/missing/log").code == 404


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
def test_containers_of_a_pod_without_a_node_cannot_be_reached(
    server: LiveServer, subresource: str
) -> None:
    server.post(PODS, pod("nowhere"))
    answer = server.get(f"{PODS}/nowhere/{subresource}")
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message == "pod nowhere does not have a host assigned"
