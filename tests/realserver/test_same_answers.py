"""Invalid requests are answered by `holdfast up` as by a real API server: the same status,
the same reason, the same words.

Left out is where Kubernetes shows how its own Go types are spelt. The words are those of Kubernetes
1.35; of answers that newer versions word differently only status and reason are compared with these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from harness.apiserver import LiveServer
from harness.objects import pod
from holdfast.api.crds import definitions
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.system_objects import ensure_definition
from realserver import device_requests
from realserver.client import Client
from realserver.definitions import installed_definitions
from realserver.server import RealServer
from realserver.versions import minor_version

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
TRY = f"{PODS}?dryRun=All"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class Asked(NamedTuple):
    method: str
    path: str
    body: str = ""
    content_type: str = "application/json"


def pod_body(name: str = "p", metadata: Json | None = None, **spec: Any) -> str:
    return json.dumps(pod(name, metadata=metadata or {}, **spec))


def with_container(**fields: Any) -> str:
    return pod_body(containers=[{"name": "c", "image": "i", **fields}])


def asking(requests: Json, limits: Json | None = None) -> str:
    return with_container(resources={"requests": requests, **({"limits": limits} if limits else {})})


def required_terms(*terms: Json) -> Json:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def new(path: str, kind: str, name: str = "x", **fields: Any) -> Asked:
    """Of a kind at `/apis/<group>/<version>/…` or `/api/v1/…`."""
    parts = path.strip("/").split("/")
    api_version = parts[1] if parts[0] == "api" else f"{parts[1]}/{parts[2]}"
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}
    return Asked("POST", f"{path}?dryRun=All", json.dumps(body))


_ODD: tuple[Any, ...] = ("1x", "", "abc", "-1", True, [], "1Kii")
_PODS: dict[str, str] = {
    **{f"cpu {q!r}": asking({"cpu": q}) for q in _ODD},
    "limits below requests": asking({"cpu": "2", "memory": "1Gi"}, {"cpu": "1", "memory": "1Mi"}),
    "half a gpu": asking({"example.com/gpu": "500m"}),
    "resource without a domain": asking({"gpu": "1"}),
    "no name": pod_body(""),
    "no containers": pod_body(containers=[]),
    "two containers of one name": pod_body(containers=[{"name": "c", "image": "i"}] * 2),
    "names": pod_body(containers=[{"name": "C_", "image": " i"}]),
    "no image": pod_body(containers=[{"name": "c"}]),
    "restart policy": pod_body(restartPolicy="Sometimes"),
    "no such class": pod_body(priorityClassName="nope"),
    "priority without a class": pod_body(priority=5),
    "policy without a class": pod_body(preemptionPolicy="Never"),
    "tolerations": pod_body(tolerations=[{"key": "a b", "operator": "Maybe", "effect": "No"}]),
    "more tolerations": pod_body(
        tolerations=[
            {"operator": "Equal", "value": "x"},
            {"key": "a", "operator": "Exists", "value": "x"},
            {"key": "a", "tolerationSeconds": 3},
        ]
    ),
    "node affinity": pod_body(
        affinity=required_terms(
            {
                "matchExpressions": [
                    {"key": "a", "operator": "In"},
                    {"key": "b", "operator": "Foo"},
                    {"key": "c", "operator": "Gt", "values": ["x"]},
                    {"key": "d", "operator": "Exists", "values": ["x"]},
                ]
            }
        )
    ),
    "node affinity for nothing": pod_body(affinity=required_terms()),
    "spread": pod_body(
        topologySpreadConstraints=[
            {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Never"},
            {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 0},
        ]
    ),
    "ports": with_container(
        ports=[{"containerPort": 0}, {"containerPort": 70000, "hostPort": -1, "protocol": "FOO"}]
    ),
    "volumes": pod_body(volumes=[{"name": "v"}, {"name": "v", "emptyDir": {}}]),
    "mount of no volume": with_container(volumeMounts=[{"name": "x", "mountPath": "/a"}]),
    "gates": pod_body(schedulingGates=[{"name": "a b"}, {"name": "x"}, {"name": "x"}]),
    "gate and node": pod_body(nodeName="n", schedulingGates=[{"name": "x"}]),
    "times": pod_body(activeDeadlineSeconds=0, terminationGracePeriodSeconds=-1),
    "node selector": pod_body(nodeSelector={"a b": "c d"}),
    "labels": pod_body(metadata={"labels": {"a b": "x y"}, "annotations": {"x y": "z"}}),
    "label without a name": pod_body(metadata={"labels": {"": "z"}}),
    "annotation that is no text": pod_body(metadata={"annotations": {"x": 5}}),
    "owner": pod_body(metadata={"ownerReferences": [{"name": "x"}]}),
    "finalizer": pod_body(metadata={"finalizers": ["nogroup"]}),
    "list that is a map": pod_body(containers={"a": 1}),
    "flag that is text": pod_body(hostNetwork="yes"),
    "text that is a number": pod_body(nodeName=5),
}
CASES: dict[str, Asked] = {
    **{f"pod: {name}": Asked("POST", TRY, body) for name, body in _PODS.items()},
    "unknown fields": Asked("POST", f"{TRY}&fieldValidation=Strict", pod_body(foo=1, bar=2)),
    "malformed": Asked("POST", PODS, "{nope"),
    "nothing": Asked("POST", PODS, ""),
    "a list": Asked("POST", PODS, "[]"),
    "another kind": Asked("POST", PODS, '{"apiVersion": "v1", "kind": "Node"}'),
    "no kind": Asked("POST", PODS, '{"metadata": {"name": "x"}}'),
    "another namespace": Asked("POST", PODS, pod_body(metadata={"namespace": "other"})),
    "content type": Asked("POST", PODS, pod_body(), "text/plain"),
    "patch type": Asked("PATCH", f"{PODS}/x", "{}", "application/json"),
    **{
        f"labels {text}": Asked("GET", f"{PODS}?labelSelector={text}")
        for text in ("a%24=b", "a=%24", "a+notin+(b,%24)", "!a/b/c", "a%3Ex", "a=b,c+in+x", "a==b==c")
    },
    "version": Asked("GET", f"{PODS}?resourceVersion=abc"),
    "limit": Asked("GET", f"{PODS}?limit=abc"),
    "continue": Asked("GET", f"{PODS}?continue=abc"),
    "exactly what": Asked("GET", f"{PODS}?resourceVersionMatch=Exact"),
    "match": Asked("GET", f"{PODS}?resourceVersionMatch=Foo&resourceVersion=1"),
    "method": Asked("PUT", PODS, pod_body()),
    "method on one": Asked("POST", f"{PODS}/x", pod_body()),
    "put what is not there": Asked("PUT", f"{PODS}/x", pod_body("x")),
    "put another": Asked("PUT", f"{PODS}/x", pod_body("y")),
    "patch what is not there": Asked("PATCH", f"{PODS}/x", "{}", MERGE),
    "delete what is not there": Asked("DELETE", f"{PODS}/x"),
    "no such resource": Asked("GET", "/api/v1/foo"),
    "no such group": Asked("GET", "/apis/foo/v1"),
    "no such subresource": Asked("GET", f"{PODS}/x/foo"),
    "dry run": Asked("POST", f"{PODS}?dryRun=Some", pod_body()),
    "field validation": Asked("POST", f"{PODS}?fieldValidation=Some", pod_body()),
    "apply without a manager": Asked("PATCH", f"{PODS}/x", pod_body("x"), APPLY),
    "apply to another": Asked("PATCH", f"{PODS}/x?fieldManager=a", pod_body("y"), APPLY),
    "binding": Asked(
        "POST",
        f"{PODS}/x/binding",
        '{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "x"}, "target": {"kind": "Pod"}}',
    ),
    "node": new("/api/v1/nodes", "Node", status={"capacity": {"cpu": "-1"}}),
    "namespace": new("/api/v1/namespaces", "Namespace", "A.b"),
    "system class": new(
        "/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass", "system-x", value=2000000000
    ),
    "class": new(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "PriorityClass",
        value=2000000000,
        preemptionPolicy="Foo",
    ),
    "claim": new(
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "PersistentVolumeClaim",
        spec={"accessModes": ["Foo"], "resources": {"requests": {}}},
    ),
    "volume": new("/api/v1/persistentvolumes", "PersistentVolume", spec={}),
    "storage class": new(
        "/apis/storage.k8s.io/v1/storageclasses",
        "StorageClass",
        provisioner="",
        volumeBindingMode="Foo",
        reclaimPolicy="Bar",
    ),
    "deployment": new(
        "/apis/apps/v1/namespaces/default/deployments",
        "Deployment",
        spec={
            "selector": {},
            "template": {"spec": json.loads(pod_body())["spec"] | {"restartPolicy": "Never"}},
        },
    ),
    "job": new(
        "/apis/batch/v1/namespaces/default/jobs",
        "Job",
        spec={"parallelism": -1, "template": {"spec": json.loads(pod_body())["spec"]}},
    ),
    "service": new(
        "/api/v1/namespaces/default/services", "Service", "1d", spec={"ports": [{"port": 0}]}
    ),
    "lease": new(
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        "Lease",
        spec={"leaseDurationSeconds": 0, "leaseTransitions": -1},
    ),
    "reservation": new(
        "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
        "Reservation",
        spec={"allocatePolicy": "Foo", "owners": [{"object": {"name": "x"}}]},
    ),
    **{
        f"scale of a kind without it: {method} {path}": Asked(method, f"{path}/x/scale", body, MERGE)
        for path in (PODS, "/apis/scheduling.koordinator.sh/v1alpha1/reservations")
        for method, body in (("GET", ""), ("PATCH", '{"spec": {"replicas": 2}}'))
    },
}


_DEVICES = "/apis/resource.k8s.io/v1"
CASES |= {
    **{
        f"claims of a pod: {name}": Asked("POST", TRY, json.dumps(body))
        for name, body in device_requests.PODS.items()
    },
    **{
        f"resource claim: {name}": new(
            f"{_DEVICES}/namespaces/default/resourceclaims", "ResourceClaim", spec=spec
        )
        for name, spec in device_requests.CLAIMS.items()
    },
    **{
        f"claim template: {name}": new(
            f"{_DEVICES}/namespaces/default/resourceclaimtemplates",
            "ResourceClaimTemplate",
            spec={"spec": spec},
        )
        for name, spec in device_requests.CLAIMS.items()
        if name in ("names", "config")
    },
    **{
        f"device class: {name}": new(f"{_DEVICES}/deviceclasses", "DeviceClass", spec=spec)
        for name, spec in device_requests.CLASSES.items()
    },
    **{
        f"resource slice: {name}": new(f"{_DEVICES}/resourceslices", "ResourceSlice", spec=spec)
        for name, spec in device_requests.SLICES.items()
    },
    "slices by a field": Asked("GET", f"{_DEVICES}/resourceslices?fieldSelector=spec.foo%3Dx"),
}


REWORDED = {
    "pod: owner",
    "service",
    "resource claim: alternatives",
    "resource claim: same name",
    "resource claim: config",
    "claim template: config",
    "resource claim: constraints",
    "resource slice: attributes",
}
"""Answers that are worded differently since 1.36 or 1.37."""


@pytest.fixture(scope="module")
def is_newer(real_server: RealServer) -> bool:
    return minor_version(real_server) > 35


@pytest.fixture(scope="module")
def real(real_server: RealServer) -> Iterator[Client]:
    with installed_definitions(real_server):
        yield real_server.client


@pytest.fixture(scope="module")
def ours() -> Iterator[LiveServer]:
    def our_kinds(cluster: ApiState) -> None:
        for each in definitions():
            ensure_definition(cluster, each)

    with LiveServer(setup=our_kinds) as live:
        yield live


@pytest.mark.parametrize("case", CASES)
def test_invalid_requests_are_answered_alike(
    case: str, real: Client, ours: LiveServer, is_newer: bool
) -> None:
    asked = CASES[case]
    same_answer(ours.ask(*asked), real.ask(*asked), is_reworded=is_newer and case in REWORDED)


def same_answer(mine: Any, theirs: tuple[int, str], is_reworded: bool = False) -> None:
    """Compares our answer with the code and text of the real server's."""
    code, text = theirs
    assert code >= 400, text
    try:
        answer = json.loads(text)
    except ValueError:
        assert (mine.code, mine.text) == (code, text)
        return
    assert mine.code == code
    if is_reworded:
        assert mine.body["reason"] == answer["reason"]
        return
    assert _comparable(mine.body) == _comparable(answer)


def _comparable(status: Json) -> tuple[str, Any]:
    """The reason, and the words; of several things wrong, each by itself, since their order differs.
    Without the remark that rules were not checked: those of Holdfast's kinds always are."""
    causes = (status.get("details") or {}).get("causes") or []
    causes = [cause for cause in causes if cause.get("field") != "<nil>"]
    if len(causes) < 2:
        return status.get("reason", ""), status["message"]
    return status["reason"], sorted(json.dumps(cause, sort_keys=True) for cause in causes)
