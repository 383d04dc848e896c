"""Situations with names, labels and values that nothing has, and others that are like them."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_situations import (
    Row,
    check,
    claim,
    explained,
    full,
    in_default,
    near,
    on_nodes,
    snapshot_of,
    spread,
    storage_class,
    using,
    volume,
    world_of,
)
from harness.claim_objects import (
    DRIVER,
    claiming_pod,
    device,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, core_group, node, pod, pod_group, queue, reservation
from holdfast.explanation.explainer import explain

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
N1 = node("node-1", cpu="8", labels={"disk": "nvme", "cores": "8", ZONE: "west"})


def on_names(key: str, *values: str) -> Raw:
    fields = [{"key": key, "operator": "In", "values": list(values)}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def owned_by(kind: str, name: str, raw: Raw) -> Raw:
    group = "v1" if kind == "Pod" else "apps/v1"
    owner = {"apiVersion": group, "kind": kind, "name": name, "uid": name, "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    return raw


def ephemeral(name: str, kind: str) -> list[Raw]:
    return [
        {"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": claim("x", kind=kind)["spec"]}}}
    ]


def in_namespace(namespace: str, raw: Raw) -> Raw:
    """A reservation for pods of one namespace."""
    raw["spec"]["owners"][0]["object"] = {"namespace": namespace}
    return raw


def provisioned(name: str, mode: str) -> Raw:
    return storage_class(name) | {"provisioner": "disk.example.com", "volumeBindingMode": mode}


def near_by(app: str, key: str) -> Raw:
    raw = near(app)
    raw["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"] = key
    return raw


def requiring(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"affinity": on_nodes({"key": key, "operator": operator, "values": list(values)})}


SITUATIONS: dict[str, Row] = {
    "key of the node selector": Row(
        [N1, pod("p", nodeSelector={"dsik": "nvme"})],
        [
            "nodeSelector dsik=nvme is not met by the only node (no node has the label dsik; "
            "did you mean disk?)"
        ],
        ["CorrectSelector"],
    ),
    "value of the node selector": Row(
        [N1, pod("p", nodeSelector={"disk": "nmve"})],
        ["(values of disk: nvme on 1; did you mean nvme?)"],
        ["CorrectSelector"],
    ),
    "two labels of the node selector": Row(
        [N1, pod("p", nodeSelector={"dsik": "nmve", ZONE: "wset"})],
        ["did you mean disk?", "did you mean west?"],
        ["CorrectSelector"],
    ),
    "value that a cloud sets": Row(
        [N1, pod("p", nodeSelector={ZONE: "wset"})],
        [f"(values of {ZONE}: west on 1; did you mean west?)"],
        ["CorrectSelector"],
    ),
    "key of an expression": Row(
        [N1, pod("p", **requiring("dsik", "Exists"))],
        ["node affinity dsik Exists is not met", "did you mean disk?"],
        ["CorrectSelector"],
    ),
    "value of an expression": Row(
        [N1, pod("p", **requiring("disk", "In", "nmve", "flash"))],
        ["node affinity disk In (nmve, flash) is not met", "did you mean nvme?"],
        ["CorrectSelector"],
    ),
    "number too high": Row(
        [N1, pod("p", **requiring("cores", "Gt", "16"))],
        ["node affinity cores Gt (16) is not met by the only node (values of cores: 8 on 1)"],
        ["CorrectSelector"],
    ),
    "number too low": Row(
        [N1, pod("p", **requiring("cores", "Lt", "8"))],
        ["(values of cores: 8 on 1)"],
        ["CorrectSelector"],
    ),
    "number of a label that no node has": Row(
        [N1, pod("p", **requiring("gpus", "Gt", "3"))],
        ["no node has the label gpus"],
        ["LabelNode"],
    ),
    "name of a node": Row(
        [N1, pod("p", affinity=on_names("metadata.name", "node-l"))],
        ["it belongs on node-l, which does not exist; did you mean node-1?"],
        ["CorrectSelector"],
    ),
    "names of nodes": Row(
        [N1, pod("p", affinity=on_names("metadata.name", "node-l", "elsewhere"))],
        ["allows only these node names, which do not exist; did you mean node-1?"],
        ["CorrectSelector"],
    ),
    "topologyKey of a spread constraint": Row(
        [N1, pod("p", app="s", topologySpreadConstraints=spread(f"{ZONE}s"))],
        [f"the label {ZONE}s is missing on node-1; did you mean {ZONE}?"],
        ["CorrectSpread"],
    ),
    "topologyKey of a spread constraint, of a label that users set": Row(
        [
            node("n1", labels={"rack": "a"}),
            pod("p", app="s", topologySpreadConstraints=spread("racks")),
        ],
        ["the label racks is missing on n1; did you mean rack?"],
        ["CorrectSpread"],
    ),
    "PersistentVolumeClaim": Row(
        [N1, claim("data", volume="v"), volume("v", "data"), pod("p", volumes=using("dta"))],
        ["PersistentVolumeClaim default/dta does not exist; did you mean data?"],
        ["UseClaim", "CreateClaim"],
    ),
    "queue of a PodGroup": Row(
        [
            N1,
            queue("research"),
            in_default(pod_group("g", 1, queue="reserch")),
            pod("p", "2", group="g"),
        ],
        ["queue reserch does not exist"],
        ["Annotate", "CreateQueue"],
    ),
    "attribute that a device selector reads": Row(
        [
            N1,
            device_class(),
            resource_slice("node-1", [device("gpu-0", model="a100")]),
            resource_claim("c", request("r", 1, f'device.attributes["{DRIVER}"].modl == "a100"')),
            claiming_pod("p", "c"),
        ],
        ["a selector reads modl of device", "did you mean model?", "(no such key: modl)"],
        ["ReplaceClaim"],
    ),
    "field of nodes": Row(
        [N1, pod("p", affinity=on_names("metadata.nam", "node-1"))],
        ["nodes have no field metadata.nam; did you mean metadata.name?"],
        ["CorrectSelector"],
    ),
    "label of pods to be near": Row(
        [N1, full("a", "1", "node-1", app="database"), pod("p", affinity=near("databse"))],
        [
            f"affinity to app=databse by {HOSTNAME}: no such pod is on a node, and no pod in namespace "
            "default has these labels; did you mean app=database?"
        ],
        ["CorrectAffinity"],
    ),
    "pods to be near do not exist": Row(
        [N1, pod("p", affinity=near("db"))],
        ["no such pod is on a node, and no pod in namespace default has these labels"],
        ["RemoveAffinity"],
    ),
    "pods to be near are pending": Row(
        [N1, pod("a", "99", app="db"), pod("p", affinity=near("db"))],
        ["no such pod is on a node; default/a is pending"],
        ["RemoveAffinity"],
    ),
    "topology key of pods to be near": Row(
        [
            N1,
            full("a", "1", "node-1", app="db"),
            pod("p", affinity=near_by("db", "topology.kubernetes.io/zones")),
        ],
        [f"but no node has the label topology.kubernetes.io/zones; did you mean {ZONE}?"],
        ["CorrectAffinity"],
    ),
    "storage class whose volumes are made for pods": Row(
        [
            N1,
            provisioned("standard", "WaitForFirstConsumer"),
            claim("c", kind="standrad"),
            pod("p", volumes=using("c")),
        ],
        ["storage class standrad, which does not exist; did you mean standard?"],
        ["ReplaceClaim", "CreateStorageClass", "BindClaims"],
    ),
    "storage class whose volumes are made at once": Row(
        [
            N1,
            provisioned("standard", "Immediate"),
            claim("c", kind="standrad"),
            pod("p", volumes=using("c")),
        ],
        ["storage class standrad, which does not exist; did you mean standard?"],
        ["ReplaceClaim", "CreateStorageClass", "BindClaims"],
    ),
    "label of the owners of a reservation": Row(
        [N1, reservation("peak", "6", app="web"), pod("p", "4", "wbe")],
        ["reservation peak is for pods with app=web, but no pod has app=web; the pod has app=wbe"],
        ["CorrectOwner", "LabelPod", "Wait", "Resize", "DeleteReservation"],
    ),
    "namespace of the owners of a reservation": Row(
        [N1, in_namespace("prod", reservation("peak", "6", app="web")), pod("p", "4", "web")],
        [
            "the pod has these labels, but is in namespace default: create it in prod, or add its "
            "namespace to spec.owners"
        ],
        ["CorrectOwner", "Wait", "Resize", "DeleteReservation"],
    ),
    "storage class of an ephemeral volume": Row(
        [
            N1,
            provisioned("standard", "WaitForFirstConsumer"),
            owned_by("Pod", "p", claim("p-scratch", kind="standrad")),
            in_default(pod("p", volumes=ephemeral("scratch", "standrad"))),
        ],
        ["storage class standrad, which does not exist; did you mean standard?"],
        ["ReplaceClaim", "CreateStorageClass", "BindClaims"],
    ),
    "group of the Workload API": Row(
        [
            N1,
            in_default(core_group("train", 1)),
            pod("p", schedulingGroup={"podGroupName": "trian"}),
        ],
        ["there is no PodGroup default/trian; did you mean train?"],
        ["JoinGroup"],
    ),
    "resource and label": Row(
        [
            node("n1", labels={"disk": "nvme"}, allocatable={"nvidia.com/gpu": "2"}),
            pod("p", requests={"nvidia.com/gpus": "1"}, nodeSelector={"dsik": "nvme"}),
        ],
        ["did you mean disk?"],
        ["CorrectSelector"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


def test_the_scheduler_of_a_reservation() -> None:
    raw = reservation("r", "2", pod={"schedulerName": "holdfst-scheduler"})
    report = explained(world_of([N1, raw]), Row([], [], [], name="r", kind="Reservation"))
    assert report.summary.endswith("(see --config); did you mean holdfast-scheduler?")
    (advice,) = report.advice
    assert advice.text.startswith("set schedulerName: holdfast-scheduler instead of holdfst-scheduler")


def test_another_kind_of_device_is_not_a_misspelling() -> None:
    objects = [
        node("n1", allocatable={"koordinator.sh/gpu": "100", "nvidia.com/gpu": "1"}),
        pod("p", requests={"cpu": "1", "koordinator.sh/rdma": "100"}),
    ]
    report = check(Row(objects, ["no node has the resource koordinator.sh/rdma"], ["AddNode"]))
    assert not any("did you mean" in each for each in report.details)
    other_vendor = [objects[0], pod("p", requests={"cpu": "1", "vidia.org/gpu": "1"})]
    check(Row(other_vendor, ["no node has the resource vidia.org/gpu"], ["AddNode"]))
    misspelt = [objects[0], pod("p", requests={"cpu": "1", "nvdia.com/gpus": "1"})]
    check(Row(misspelt, ["did you mean nvidia.com/gpu?"], ["CorrectResource"]))


def test_another_architecture_is_not_a_misspelling() -> None:
    amd64 = node("n1", labels={"kubernetes.io/arch": "amd64"})
    arm = pod("p", nodeSelector={"kubernetes.io/arch": "arm64"})
    report = check(Row([amd64, arm], ["(values of kubernetes.io/arch: amd64 on 1)"], ["AddNode"]))
    assert not any("did you mean" in each for each in report.details)
    misspelt = pod("p", nodeSelector={"kubernetes.io/arch": "amd46"})
    check(Row([amd64, misspelt], ["did you mean amd64?"], ["CorrectSelector"]))


def test_the_volume_of_the_pod_is_changed_instead_of_the_claim_made_for_it() -> None:
    row = SITUATIONS["storage class of an ephemeral volume"]
    first = explained(world_of(row.objects), row).advice[0]
    assert first.text.startswith(
        "use the storage class standard instead of standrad in the volumeClaimTemplate of its volume "
        "scratch; then it fits"
    )
    (edited,) = first.change["objects"]
    (volume,) = edited["patch"]["spec"]["volumes"]
    assert volume["ephemeral"]["volumeClaimTemplate"]["spec"]["storageClassName"] == "standard"


def test_the_templates_of_a_stateful_set_are_changed_beside_its_claims() -> None:
    template = {"metadata": {"name": "data"}, "spec": claim("x", kind="standrad")["spec"]}
    stateful_set = in_default(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "db"},
            "spec": {"volumeClaimTemplates": [template], "template": {"spec": {}}},
        }
    )
    objects = [
        N1,
        provisioned("standard", "WaitForFirstConsumer"),
        stateful_set,
        *(claim(f"data-db-{ordinal}", kind="standrad") for ordinal in range(2)),
        owned_by("StatefulSet", "db", pod("db-0", volumes=using("data-db-0"))),
    ]
    world = world_of(objects)
    snapshot = snapshot_of(world)
    snapshot.objects["apps/v1", "StatefulSet"] = {("default", "db"): stateful_set}
    first = explain(snapshot, world.objects["Pod", "db-0"]).advice[0]
    assert first.text.startswith(
        "use the storage class standard instead of standrad in volumeClaimTemplates data of "
        "StatefulSet db (immutable: kubectl delete statefulset db --cascade=orphan, and create it "
        "again), then delete claims data-db-0, data-db-1 and pod db-0, which it makes again; then it "
        "fits"
    )
    edited = first.change["objects"][0]["patch"]["spec"]["volumeClaimTemplates"]
    assert [each["spec"]["storageClassName"] for each in edited] == ["standard"]
