"""Claims on devices at the API server: defaults, immutable parts, status, columns, selectors."""

from __future__ import annotations

from typing import Any

import pytest

from harness.apiserver import MERGE, PODS, LiveServer
from harness.objects import pod

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"
CLASSES, SLICES, RULES = f"{API}/deviceclasses", f"{API}/resourceslices", f"{API}/devicetaintrules"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

RESULT = {"request": "r", "driver": "d.io", "pool": "p", "device": "gpu-0"}
DEVICE = {"driver": "d.io", "pool": "p", "device": "gpu-0", "conditions": []}
CONSUMER = {"resource": "pods", "name": "web", "uid": "1"}


def claim(name: str, **exactly: Any) -> dict[str, Any]:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


def allocated(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"status": {"allocation": {"devices": {"results": list(results)}}, **more}}


def status_of(server: LiveServer, name: str, change: dict[str, Any]) -> Any:
    return server.patch(f"{CLAIMS}/{name}/status", change, MERGE)


def cells(server: LiveServer, path: str) -> list[list[Any]]:
    found = server.get(path, TABLE).body
    return [row["cells"] for row in found["rows"]]


def test_defaults_of_a_claim(server: LiveServer) -> None:
    body = claim("defaults", tolerations=[{"key": "a"}], derivedAttributes=[{"name": "a.io/x"}])
    made = server.post(CLAIMS, {**body, **allocated(RESULT)}).body
    assert made["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "a", "operator": "Equal"}],
    }
    assert made["status"] == {}
    assert "generation" not in made["metadata"]


def test_a_spec_is_immutable(server: LiveServer) -> None:
    server.post(CLAIMS, claim("fixed"))
    change = {"spec": claim("fixed", count=2)["spec"]}
    answer = server.patch(f"{CLAIMS}/fixed", change, MERGE)
    assert answer.code == 422
    assert "spec: Invalid value" in answer.body["message"]
    assert answer.body["message"].endswith(": field is immutable")
    assert server.patch(f"{CLAIMS}/fixed", {"metadata": {"labels": {"a": "b"}}}, MERGE).code == 200
    server.post(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": claim("t")["spec"]}})
    answer = server.patch(f"{TEMPLATES}/t", {"spec": {"metadata": {"labels": {"a": "b"}}}}, MERGE)
    assert answer.body["message"].endswith(": field is immutable")


def test_an_allocation_can_be_set_and_removed_but_not_changed(server: LiveServer) -> None:
    server.post(CLAIMS, claim("given"))
    answer = status_of(server, "given", {"status": {"reservedFor": [CONSUMER]}})
    assert "may not be specified when `allocated` is not set" in answer.body["message"]
    assert cells(server, f"{CLAIMS}/given")[0][1] == "pending"
    wrong = {**RESULT, "request": "q", "shareID": "x", "pool": "_"}
    answer = status_of(server, "given", allocated(wrong))
    fields = [cause["field"] for cause in answer.body["details"]["causes"]]
    path = "status.allocation.devices.results[0]"
    assert fields == [f"{path}.request", f"{path}.pool", f"{path}.shareID"]
    made = status_of(server, "given", {**allocated(RESULT), "spec": {}, "metadata": {"labels": {}}})
    assert made.code == 200
    assert cells(server, f"{CLAIMS}/given")[0][1] == "allocated"
    assert status_of(server, "given", {"status": {"reservedFor": [CONSUMER]}}).code == 200
    assert cells(server, f"{CLAIMS}/given")[0][1] == "allocated,reserved"
    other = {**RESULT, "device": "gpu-1"}
    answer = status_of(server, "given", allocated(other))
    assert answer.code == 422
    assert answer.body["message"].endswith(": field is immutable")
    answer = status_of(server, "given", {"status": {"devices": [DEVICE]}})
    assert answer.body["status"]["devices"] == [{**DEVICE, "conditions": None}]
    answer = status_of(server, "given", {"status": {"allocation": None, "reservedFor": None}})
    assert answer.body["status"] == {}


def test_a_reservation_is_removed_by_uid(server: LiveServer) -> None:
    """As the scheduler does it: a strategic merge patch with the key of the list."""
    server.post(CLAIMS, claim("shared"))
    other = {**CONSUMER, "name": "other", "uid": "2"}
    status_of(server, "shared", allocated(RESULT, reservedFor=[CONSUMER, other]))
    patch = {"status": {"reservedFor": [{"$patch": "delete", "uid": "1"}]}}
    strategic = "application/strategic-merge-patch+json"
    made = server.patch(f"{CLAIMS}/shared/status", patch, strategic).body
    assert made["status"]["reservedFor"] == [other]
    again = {"status": {"reservedFor": [CONSUMER]}}
    made = server.patch(f"{CLAIMS}/shared/status", again, strategic).body
    assert sorted(each["uid"] for each in made["status"]["reservedFor"]) == ["1", "2"]


def test_a_deleted_claim_waits_for_its_finalizer(server: LiveServer) -> None:
    finalizer = "resource.kubernetes.io/delete-protection"
    body = claim("kept")
    server.post(CLAIMS, {**body, "metadata": {"name": "kept", "finalizers": [finalizer]}})
    status_of(server, "kept", allocated(RESULT))
    assert server.delete(f"{CLAIMS}/kept").body["kind"] == "ResourceClaim"
    assert cells(server, f"{CLAIMS}/kept")[0][1] == "deleted,allocated"
    answer = status_of(server, "kept", {"status": {"reservedFor": [CONSUMER]}})
    assert "new entries may not be added" in answer.body["message"]
    status_of(server, "kept", {"status": {"allocation": None}})
    assert cells(server, f"{CLAIMS}/kept")[0][1] == "deleted"
    server.patch(f"{CLAIMS}/kept", {"metadata": {"finalizers": None}}, MERGE)
    assert server.get(f"{CLAIMS}/kept").code == 404


def test_admin_access_needs_a_label_on_the_namespace(server: LiveServer) -> None:
    answer = server.post(CLAIMS, claim("admin", adminAccess=True))
    assert answer.code == 422
    assert (
        "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the "
        "`resource.kubernetes.io/admin-access: true` label on the containing namespace"
    ) in answer.body["message"]
    labels = {"resource.kubernetes.io/admin-access": "true"}
    server.post("/api/v1/namespaces", {"metadata": {"name": "admins", "labels": labels}})
    there = CLAIMS.replace("default", "admins")
    assert server.post(there, claim("admin", adminAccess=True)).code == 201
    server.post(CLAIMS, claim("not-admin"))
    answer = status_of(server, "not-admin", allocated({**RESULT, "adminAccess": True}))
    assert "status.allocation.devices.results[0].adminAccess: Forbidden" in answer.body["message"]


def sliced(name: str, node: str, driver: str = "d.io", **device: Any) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0", **device}]
    spec = {"driver": driver, "pool": pool, "nodeName": node, "devices": devices}
    return {"metadata": {"name": name}, "spec": spec}


def test_slices_are_selected_by_node_driver_and_pool(server: LiveServer) -> None:
    for name, node, driver in (("s1", "n1", "d.io"), ("s2", "n2", "d.io"), ("s3", "n1", "e.io")):
        assert server.post(SLICES, sliced(name, node, driver)).code == 201
    for selector, expected in (
        ("spec.nodeName=n1", {"s1", "s3"}),
        ("spec.driver=d.io", {"s1", "s2"}),
        ("spec.pool.name=n1,spec.driver=e.io", {"s3"}),
        ("metadata.name=s2", {"s2"}),
    ):
        found = server.get(f"{SLICES}?fieldSelector={selector}").body["items"]
        assert {each["metadata"]["name"] for each in found} == expected
    row = cells(server, f"{SLICES}/s1")[0]
    assert row[:-1] == ["s1", "n1", "d.io", "n1"]


def test_identity_of_a_slice_is_fixed_and_taints_get_a_time(server: LiveServer) -> None:
    taint = {"key": "d.io/broken", "effect": "NoSchedule"}
    attributes = {"model": {"string": "a"}, "list": {"strings": ["a"], "string": "b"}}
    body = sliced("fixed", "n1", taints=[taint], attributes=attributes)
    made = server.post(SLICES, body).body
    (device,) = made["spec"]["devices"]
    assert device["taints"][0]["timeAdded"]
    assert device["attributes"]["list"] == {"string": "b"}
    assert made["metadata"]["generation"] == 1
    pool = {"name": "other", "generation": 2}
    change = {"spec": {"nodeName": "n2", "driver": "e.io", "pool": pool}}
    answer = server.patch(f"{SLICES}/fixed", change, MERGE)
    fields = {cause["field"] for cause in answer.body["details"]["causes"]}
    assert fields == {"spec.nodeName", "spec.driver", "spec.pool.name"}
    changed = server.patch(f"{SLICES}/fixed", {"spec": {"pool": {"generation": 2}}}, MERGE).body
    assert changed["metadata"]["generation"] == 2
    upper = server.post(SLICES, sliced("upper", "n1", "D.io"))
    assert "driver names should be lowercase" in upper.warnings[0]


def test_device_classes_and_taint_rules(server: LiveServer) -> None:
    spec = {"extendedResourceName": "kubernetes.io/gpu"}
    answer = server.post(CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})
    assert answer.body["message"].endswith("must be a valid extended resource name")
    made = server.post(CLASSES, {"metadata": {"name": "gpu"}, "spec": {}}).body
    assert (made["metadata"]["generation"], made["spec"]) == (1, {})
    taint = {"key": "d.io/broken", "value": "yes", "effect": "NoExecute"}
    rule = {"metadata": {"name": "broken"}, "spec": {"deviceSelector": {"pool": "n1"}, "taint": taint}}
    made = server.post(RULES, {**rule, "status": {"conditions": []}}).body
    assert made["spec"]["taint"]["timeAdded"]
    assert cells(server, f"{RULES}/broken")[0][1:4] == ["d.io/broken", "yes", "NoExecute"]
    condition = {"type": "EvictionInProgress", "status": "True", "reason": "Some", "message": "m"}
    change = {"status": {"conditions": [condition]}, "spec": {"taint": {"effect": "None"}}}
    answer = server.patch(f"{RULES}/broken/status", change, MERGE)
    assert "status.conditions[0].lastTransitionTime: Required value" in answer.body["message"]
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    changed = server.patch(f"{RULES}/broken/status", change, MERGE).body
    assert changed["spec"]["taint"]["effect"] == "NoExecute"
    assert changed["status"]["conditions"][0]["status"] == "True"
    assert server.delete(f"{RULES}/broken").body["kind"] == "Status"


def test_server_side_apply_merges_reservations_by_uid(server: LiveServer) -> None:
    server.post(CLAIMS, claim("applied"))
    status_of(server, "applied", allocated(RESULT, reservedFor=[CONSUMER]))
    for manager, uid in (("a", "2"), ("b", "3")):
        entry = {"resource": "pods", "name": manager, "uid": uid}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "applied"},
            "status": {"reservedFor": [entry]},
        }
        path = f"{CLAIMS}/applied/status?fieldManager={manager}"
        assert server.patch(path, body, APPLY).code == 200
    found = server.get(f"{CLAIMS}/applied").body["status"]["reservedFor"]
    assert [each["uid"] for each in found] == ["1", "2", "3"]


def using(name: str, *entries: dict[str, Any]) -> dict[str, Any]:
    return pod(name, resourceClaims=list(entries))


def test_status_of_a_pods_claims(server: LiveServer) -> None:
    made = server.post(PODS, using("user", {"name": "gpu", "resourceClaimTemplateName": "t"}))
    assert made.code == 201
    path = f"{PODS}/user/status"
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "user-gpu-x"}]}
    assert server.patch(path, {"status": status}, MERGE).code == 200
    strategic = "application/strategic-merge-patch+json"
    wrong = {"resourceClaimStatuses": [{"name": "cpu", "resourceClaimName": "_"}]}
    answer = server.patch(path, {"status": wrong}, strategic)
    assert "must match the name of an entry in `spec.resourceClaims`" in answer.body["message"]
    extended = {"resourceClaimName": "", "requestMappings": [{"containerName": "z"}]}
    answer = server.patch(path, {"status": {"extendedResourceClaimStatus": extended}}, MERGE)
    fields = {cause["field"] for cause in answer.body["details"]["causes"]}
    prefix = "status.extendedResourceClaimStatus"
    assert fields == {
        f"{prefix}.requestMappings[0].containerName",
        f"{prefix}.requestName",
        f"{prefix}.resourceClaimName",
    }


@pytest.mark.parametrize(
    "entries",
    [[{"name": "a"}], [{"name": "a", "resourceClaimName": "_"}], [{"resourceClaimName": "x"}]],
)
def test_pods_with_invalid_claims(server: LiveServer, entries: list[dict[str, Any]]) -> None:
    answer = server.post(PODS, using("invalid", *entries))
    assert answer.code == 422
    assert "spec.resourceClaims[0]" in answer.body["message"]
