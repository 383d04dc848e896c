"""create, update, patch and delete, as Kubernetes does them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.apiserver import CONFIG_MAPS, MERGE, PODS, Answer, LiveServer
from harness.objects import config_map, pod

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def deployment(name: str, replicas: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


def test_the_server_gives_new_objects_what_clients_may_not_choose(server: LiveServer) -> None:
    given = {"uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": None}
    made = server.post(CONFIG_MAPS, config_map("fresh", **given)).body["metadata"]
    assert made["uid"] != "mine"
    assert made["creationTimestamp"] > "2025"
    assert made["resourceVersion"].isdigit()


def test_generated_names_are_unlike_each_other(server: LiveServer) -> None:
    body = {"metadata": {"generateName": "made-"}}
    names = {server.post(CONFIG_MAPS, body).body["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)


def test_a_dry_run_leaves_nothing_behind(server: LiveServer) -> None:
    made = server.post(f"{CONFIG_MAPS}?dryRun=All", config_map("dry"))
    assert made.code == 201
    assert "resourceVersion" not in made.body["metadata"]
    assert server.get(f"{CONFIG_MAPS}/dry").code == 404
    server.post(CONFIG_MAPS, config_map("wet"))
    changed = server.patch(f"{CONFIG_MAPS}/wet?dryRun=All", {"data": {"a": "b"}})
    assert changed.body["data"] == {"a": "b"}
    assert "data" not in server.get(f"{CONFIG_MAPS}/wet").body
    assert server.delete(f"{CONFIG_MAPS}/wet?dryRun=All").code == 200
    assert server.get(f"{CONFIG_MAPS}/wet").code == 200


def test_an_update_from_an_old_version_is_refused(server: LiveServer) -> None:
    first = server.post(CONFIG_MAPS, config_map("raced")).body
    assert server.put(f"{CONFIG_MAPS}/raced", {**first, "data": {"a": "1"}}).code == 200
    second = server.put(f"{CONFIG_MAPS}/raced", {**first, "data": {"a": "2"}})
    assert (second.code, second.reason) == (409, "Conflict")
    assert second.message == f'Operation cannot be fulfilled on configmaps "raced": {MODIFIED}'
    assert server.get(f"{CONFIG_MAPS}/raced").body["data"] == {"a": "1"}


def test_an_update_that_changes_nothing_is_no_new_version(server: LiveServer) -> None:
    before = server.post(CONFIG_MAPS, config_map("still")).body
    after = server.put(f"{CONFIG_MAPS}/still", before).body
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        ({"name": "zz"}, 400, "the name of the object (zz) does not match the name on the URL (named)"),
        (
            {},
            400,
            "the name of the object (named based on URL) was undeterminable: name must be provided",
        ),
        (
            {"name": "named", "resourceVersion": "x"},
            500,
            'strconv.ParseUint: parsing "x": invalid syntax',
        ),
    ],
)
def test_an_update_names_what_it_updates(
    server: LiveServer, metadata: dict[str, str], code: int, message: str
) -> None:
    server.post(CONFIG_MAPS, config_map("named"))
    answer = server.put(f"{CONFIG_MAPS}/named", {"metadata": metadata})
    assert (answer.code, answer.message) == (code, message)


def test_some_kinds_are_created_by_an_update(server: LiveServer) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert server.put(f"{leases}/l", {"metadata": {"name": "l"}}).code == 201
    assert server.put(f"{CONFIG_MAPS}/nope", config_map("nope")).code == 404
    blind = server.put(f"{leases}/l", {"metadata": {"name": "l"}})
    assert blind.code == 422
    assert (
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in blind.message
    )


def test_four_kinds_of_patch(server: LiveServer) -> None:
    path = f"{DEPLOYMENTS}/patched"
    server.post(DEPLOYMENTS, deployment("patched"))
    server.patch(path, {"metadata": {"labels": {"a": "b"}}}, MERGE)
    server.patch(path, [{"op": "add", "path": "/metadata/labels/c", "value": "d"}], JSON_PATCH)
    container = {"name": "c", "env": [{"name": "E", "value": "F"}]}
    server.patch(path, {"spec": {"template": {"spec": {"containers": [container]}}}}, STRATEGIC)
    applied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "patched", "labels": {"e": "f"}},
    }
    last = server.patch(f"{path}?fieldManager=me", applied, APPLY)
    assert last.code == 200
    assert last.body["metadata"]["labels"] == {"a": "b", "c": "d", "e": "f"}
    only = last.body["spec"]["template"]["spec"]["containers"]
    assert [(each["name"], each["image"], each["env"]) for each in only] == [
        ("c", "i", [{"name": "E", "value": "F"}])
    ]


def test_applied_fields_are_owned_by_their_applier(server: LiveServer) -> None:
    path = f"{CONFIG_MAPS}/owned"
    mine = {**config_map("owned"), "data": {"a": "1"}}
    assert server.patch(f"{path}?fieldManager=me", mine, APPLY).code == 201
    theirs = {**config_map("owned"), "data": {"a": "2"}}
    refused = server.patch(f"{path}?fieldManager=you", theirs, APPLY)
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "me": .data.a'
    assert refused.body["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    forced = server.patch(f"{path}?fieldManager=you&force=true", theirs, APPLY)
    assert (forced.code, forced.body["data"]) == (200, {"a": "2"})
    nameless = server.patch(path, theirs, APPLY)
    assert nameless.message.endswith("fieldManager: Required value: is required for apply patch")


def test_a_generation_counts_changes_of_the_spec(server: LiveServer) -> None:
    path = f"{DEPLOYMENTS}/counted"
    server.post(DEPLOYMENTS, deployment("counted"))

    def generation() -> int:
        return int(server.get(path).body["metadata"]["generation"])

    assert generation() == 1
    server.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert generation() == 1, "labels are no wish"
    server.patch(f"{path}/status", {"status": {"replicas": 1}})
    assert generation() == 1, "nor is the status"
    server.patch(path, {"spec": {"replicas": 5}})
    assert generation() == 2


def test_spec_and_status_are_written_apart(server: LiveServer) -> None:
    server.post(PODS, {**pod("apart"), "status": {"phase": "Running"}})
    assert server.get(f"{PODS}/apart").body["status"]["phase"] == "Pending"
    server.patch(f"{PODS}/apart", {"status": {"phase": "Running"}})
    assert server.get(f"{PODS}/apart").body["status"]["phase"] == "Pending"
    body = {"status": {"phase": "Running"}, "spec": {"nodeName": "sneaked-in"}}
    server.patch(f"{PODS}/apart/status", body)
    after = server.get(f"{PODS}/apart").body
    assert after["status"]["phase"] == "Running"
    assert "nodeName" not in after["spec"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"spec": {"containers": [{"name": "main", "image": "other"}]}}, 200),
        ({"spec": {"activeDeadlineSeconds": 5}}, 200),
        ({"spec": {"tolerations": [{"key": "more", "operator": "Exists"}]}}, 200),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, 422),
        ({"spec": {"nodeName": "x"}}, 422),
        ({"spec": {"containers": [{"name": "another", "image": "i"}]}}, 422),
        ({"spec": {"priority": 7}}, 422),
        ({"spec": {"schedulingGates": [{"name": "a.b/c"}]}}, 422),
    ],
)
def test_little_of_a_pod_can_be_changed(
    server: LiveServer, change: dict[str, Any], code: int, request: pytest.FixtureRequest
) -> None:
    name = f"fixed-{request.node.name.partition('[')[2].strip(']').replace('change', 'c').lower()}"
    server.post(PODS, pod(name))
    answer = server.patch(f"{PODS}/{name}", change, STRATEGIC)
    assert answer.code == code, answer.text


def test_gates_can_only_be_taken_away(server: LiveServer) -> None:
    server.post(PODS, pod("gated", schedulingGates=[{"name": "a.b/one"}, {"name": "a.b/two"}]))
    before = server.get(f"{PODS}/gated").body
    assert before["status"]["conditions"][0]["reason"] == "SchedulingGated"
    gates = [{"name": "a.b/one"}, {"name": "a.b/three"}]
    more = server.patch(f"{PODS}/gated", {"spec": {"schedulingGates": gates}})
    words = "only deletion is allowed, but found new scheduling gate 'a.b/three'"
    assert f"spec.schedulingGates[1].name: Forbidden: {words}" in more.message
    assert server.patch(f"{PODS}/gated", {"spec": {"nodeSelector": {"a": "b"}}}).code == 200
    assert server.patch(f"{PODS}/gated", {"spec": {"schedulingGates": None}}).code == 200
    assert server.patch(f"{PODS}/gated", {"spec": {"nodeSelector": {"a": "c"}}}).code == 422


def test_pods_are_given_what_admission_gives(server: LiveServer) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    server.post(classes, {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"})
    spec = server.post(PODS, pod("admitted", priorityClassName="high")).body["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (100, "Never")
    tolerated = {each["key"]: each["tolerationSeconds"] for each in spec["tolerations"]}
    assert tolerated == {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300}
    unknown = server.post(PODS, pod("lost", priorityClassName="nope"))
    assert (unknown.code, unknown.message) == (
        403,
        'pods "lost" is forbidden: no PriorityClass with name nope was found',
    )
    wrong = server.post(PODS, pod("wrong", priorityClassName="high", priority=3))
    assert "the integer value of priority (3) must not be provided in pod spec" in wrong.message
    critical = server.post(PODS, pod("critical", priorityClassName="system-node-critical"))
    assert critical.body["spec"]["priority"] == 2_000_001_000


def test_a_runtime_class_gives_pods_their_overhead(server: LiveServer) -> None:
    runtime = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata"}]},
    }
    server.post("/apis/node.k8s.io/v1/runtimeclasses", runtime)
    spec = server.post(PODS, pod("heavy", runtimeClassName="kata")).body["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "250m"}, {"kata": "yes"})
    assert "kata" in [each["key"] for each in spec["tolerations"]]
    for refused, why in (
        (pod("lost", runtimeClassName="nope"), 'pod rejected: RuntimeClass "nope" not found'),
        (
            pod("odd", runtimeClassName="kata", overhead={"cpu": "1"}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
    ):
        answer = server.post(PODS, refused)
        name = refused["metadata"]["name"]
        assert (answer.code, answer.message) == (403, f'pods "{name}" is forbidden: {why}')


def test_a_default_class_gives_pods_their_priority(server: LiveServer) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    server.post(classes, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    try:
        spec = server.post(PODS, pod("usual")).body["spec"]
        assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)
        second = server.post(classes, {"metadata": {"name": "too"}, "value": 8, "globalDefault": True})
        assert second.code == 403
        assert second.message.endswith("is already marked as default. Only one default can exist")
    finally:
        server.delete(f"{classes}/usual")
    changed = server.patch(f"{classes}/high", {"value": 5})
    assert "value: Forbidden: may not be changed in an update." in changed.message


def test_every_response_about_endpoints_warns_that_they_are_deprecated(server: LiveServer) -> None:
    path = "/api/v1/namespaces/default/endpoints"
    warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    answers = [
        server.post(path, {"metadata": {"name": "old"}}),
        server.get(path),
        server.get(f"{path}/old"),
        server.get(f"{path}?watch=1&timeoutSeconds=1"),
        server.patch(f"{path}/old", {"metadata": {"annotations": {"a": "b"}}}),
        server.delete(f"{path}/old"),
        server.get(f"{path}/old"),
    ]
    assert [answer.code for answer in answers] == [201, 200, 200, 200, 200, 200, 404]
    assert {tuple(answer.warnings) for answer in answers} == {(f'299 - "{warning}"',)}
    assert server.get("/apis/discovery.k8s.io/v1/endpointslices").warnings == []


def test_a_claim_grows_only_if_its_class_allows_it_and_never_shrinks(server: LiveServer) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    for name, allows in (("grows", True), ("fixed", False)):
        metadata = {"name": name}
        server.post(
            classes, {"metadata": metadata, "provisioner": "csi.x", "allowVolumeExpansion": allows}
        )
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
        spec |= {"storageClassName": name, "volumeName": name}
        server.post(claims, {"metadata": metadata, "spec": spec})
        server.patch(f"{claims}/{name}/status", {"status": {"capacity": {"storage": "5Gi"}}})

    def requests(name: str, size: str) -> Answer:
        return server.patch(
            f"{claims}/{name}", {"spec": {"resources": {"requests": {"storage": size}}}}
        )

    assert requests("grows", "8Gi").code == 200
    assert requests("grows", "6Gi").code == 200
    refused = requests("grows", "5Gi")
    assert refused.code == 422
    assert "field can not be less than status.capacity" in refused.message
    refused = requests("fixed", "8Gi")
    assert refused.code == 403
    assert "the storageclass that provisions the pvc must support resize" in refused.message
