"""Situations with objects that are missing, elsewhere, or of another name, and with claimed devices."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_pod_groups import report_on
from explanation.test_situations import (
    Row,
    affinity_to,
    as_they_are,
    changed,
    check,
    claim,
    explained,
    full,
    in_default,
    near,
    on_n1,
    on_nodes,
    on_terms,
    storage_class,
    using,
    volume,
    world_of,
)
from harness.claim_objects import (
    allocation,
    claim_template,
    claiming_pod,
    device_class,
    first_available,
    generated,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, core_group, node, pod, pod_group, queue, reservation
from harness.world import World

HOSTNAME = "kubernetes.io/hostname"
NUMA = "scheduling.koordinator.sh/numa-topology-spec"
STORED = {"creationTimestamp": "2026-01-01T00:00:00Z"}
N1 = node("n1", cpu="8")
N2 = node("n2", cpu="8")
NOT_SSD = {"key": "disk", "operator": "NotIn", "values": ["ssd"]}
A_DISK_OR_POOL = [{"key": key, "operator": "In", "values": ["a"]} for key in ("disk", "pool")]
SMALL = {"scheduling.volcano.sh/queue-name": "small"}


def volume_on(name: str, on: str, kind: str) -> Raw:
    """A volume that no claim has, and that one node can use."""
    raw = volume(name, "")
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [on]}]}
    raw["spec"] |= {
        "storageClassName": kind,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    del raw["spec"]["claimRef"]
    raw["status"] = {"phase": "Available"}
    return raw


def of_size(raw: Raw, storage: str) -> Raw:
    raw["spec"]["resources"]["requests"]["storage"] = storage
    return raw


def only_on(name: str) -> Raw:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def naming(raw: Raw, volume_name: str) -> Raw:
    raw["spec"]["volumeName"] = volume_name
    return raw


def deleted(raw: Raw) -> Raw:
    raw["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["pvc"]}
    return raw


def elsewhere(raw: Raw) -> Raw:
    raw["metadata"] |= {"namespace": "other", "uid": "elsewhere"}
    return raw


def allocated(name: str, on: str, *devices: str, user: str) -> Raw:
    """A claim that one pod uses, and that outlives it."""

    return resource_claim(name, request(), allocation=allocation(on, *devices), reserved_for=[user])


def csi(kind: str, name: str, **more: Any) -> Raw:
    metadata = {"name": name} | ({"namespace": "default"} if kind == "CSIStorageCapacity" else {})
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": metadata, **more}


def labelled(raw: Raw, **labels: str) -> Raw:
    raw["metadata"]["labels"] = labels
    return raw


def restarting(raw: Raw) -> Raw:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
    raw["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    return raw


def either(**labels: tuple[str, str]) -> Raw:
    """Node affinity to labels, or to the node n3."""
    wanted = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.values()]
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}, named]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


SPREAD = {
    "maxSkew": 1,
    "minDomains": 3,
    "topologyKey": HOSTNAME,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
TERMS = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "reservationSelectorTerms": [
            {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}
        ]
    }
}

PEAK = {"name": "peak"}
TIER = affinity_to({"reservationSelector": {"tier": "glod"}})

SITUATIONS: dict[str, Row] = {
    "label that the node has with another value": Row(
        [node("n1", labels={"gen": "old"}), pod("p", nodeSelector={"gen": "new"})],
        ["nodeSelector gen=new is not met by the only node (values of gen: old on 1)"],
        ["RemoveSelector", "AddNode"],
    ),
    "label that no node has, and one of them is tainted": Row(
        [
            N1,
            node("n2", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
            pod("p", nodeSelector={"gen": "new"}),
        ],
        ["nodeSelector gen=new is not met by any node (no node has the label gen)"],
        ["LabelNode"],
    ),
    "fewer domains than minDomains": Row(
        [N1, full("a", "1", "n1", app="web"), pod("p", app="web", topologySpreadConstraints=[SPREAD])],
        [f"its minDomains is 3, and {HOSTNAME} has 1 value, so that each may have 1 such pod at most"],
        ["RelaxSpread"],
    ),
    "volume is on another node": Row(
        [
            N1,
            node("n2", cpu="2"),
            storage_class("local"),
            claim("c", kind="local"),
            volume_on("v", "n2", "local"),
            pod("p", "4", volumes=using("c")),
        ],
        [f"of the volumes of storage class local, v needs {HOSTNAME} In (n2)"],
        ["CreateVolume", "Resize"],
    ),
    "volume is too small": Row(
        [
            N1,
            storage_class("local"),
            of_size(claim("c", kind="local"), "10Gi"),
            volume_on("v", "n1", "local"),
            pod("p", volumes=using("c")),
        ],
        ["of the volumes of storage class local, v has 1Gi, less than the 10Gi requested"],
        ["CreateVolume", "ReplaceClaim"],
    ),
    "volume has another access mode": Row(
        [
            N1,
            storage_class("local"),
            claim("c", "ReadWriteMany", kind="local"),
            volume_on("v", "n1", "local"),
            pod("p", volumes=using("c")),
        ],
        ["v has access mode ReadWriteOnce, not ReadWriteMany"],
        ["CreateVolume"],
    ),
    "volume is too small for a claim that is bound at once": Row(
        [
            N1,
            storage_class("local") | {"volumeBindingMode": "Immediate"},
            of_size(claim("c", kind="local"), "10Gi"),
            volume_on("v", "n1", "local"),
            pod("p", volumes=using("c")),
        ],
        ["of the volumes of its class, v has 1Gi, less than the 10Gi requested"],
        ["BindClaims", "ReplaceClaim"],
    ),
    "pods it must be near are in another namespace": Row(
        [N1, elsewhere(full("a", "1", "n1", app="cache")), pod("p", affinity=near("cache"))],
        ["no such pod is on a node; there are some in other namespaces (other)"],
        ["CorrectAffinity"],
    ),
    "terms of its reservation affinity": Row(
        [N1, reservation("peak", "2", app="web"), pod("p", app="web", annotations=affinity_to(TERMS))],
        ["it requires a reservation with team In (a), by its own labels or those of its node"],
        ["RemoveAnnotation"],
    ),
    "reservation that it names has no node": Row(
        [N1, reservation("peak", "16", app="web"), pod("p", "4", "web", annotations=affinity_to(PEAK))],
        [
            "the reservation it names, peak, has no node yet",
            "reservation peak: No suitable node among 1 node: too little cpu (1). "
            "See: holdfast explain reservation peak",
        ],
        ["RemoveAnnotation", "Resize"],
    ),
    "labels of its reservation affinity": Row(
        [
            N1,
            labelled(reservation("peak", "2", app="web"), tier="gold"),
            pod("p", "1", "web", annotations=TIER),
        ],
        ["with the labels tier=glod; no reservation has them; peak has tier=gold"],
        ["Annotate", "RemoveAnnotation"],
    ),
    "init container is too large": Row(
        [
            N1,
            pod(
                "p",
                initContainers=[{"name": "setup", "resources": {"requests": {"cpu": "12"}}}],
            ),
        ],
        ["it requests 12 cpu (its init container setup does), the most a node has is 8"],
        ["Resize"],
    ),
    "its queue leaves what others are guaranteed": Row(
        [
            N1,
            queue("large", guarantee={"resource": {"cpu": "6"}}),
            queue("small"),
            pod("p", "4", annotations=SMALL),
        ],
        ["cpu: 8 are free on all nodes; queue large is guaranteed 6 and uses 0"],
        ["LowerGuarantee", "Resize"],
    ),
    "volume of its claim is gone": Row(
        [N1, claim("c", volume="v"), pod("p", volumes=using("c"))],
        ["claim c is bound to the PersistentVolume v, which does not exist"],
        ["ReplaceClaim"],
    ),
    "node selector contradicts the node affinity": Row(
        [
            node("n1", labels={"disk": "ssd"}),
            node("n2", labels={"disk": "hdd"}),
            pod("p", nodeSelector={"disk": "ssd"}, affinity=on_nodes(NOT_SSD)),
        ],
        ["node affinity disk NotIn (ssd) is not met by 1 of 2 nodes"],
        ["RemoveSelector", "RemoveAffinity"],
    ),
    "node of the pods it must be near is full": Row(
        [node("n1", cpu="2"), N2, full("a", "2", "n1", app="db"), pod("p", affinity=near("db"))],
        ["affinity to app=db by kubernetes.io/hostname: such a pod is default/a on n1"],
        ["RemoveAffinity"],
    ),
    "node of its node affinity does not exist": Row(
        [N1, pod("p", affinity=only_on("n9000"))],
        ["It can only run on n9000: that node does not exist."],
        ["RemoveAffinity"],
    ),
    "claim is lost": Row(
        [N1, claim("c", volume="v") | {"status": {"phase": "Lost"}}, pod("p", volumes=using("c"))],
        ["claim c is bound to the PersistentVolume v, which does not exist (it is Lost)"],
        ["ReplaceClaim"],
    ),
    "claim is being deleted": Row(
        [N1, deleted(claim("c", volume="v")), volume("v", "c"), pod("p", volumes=using("c"))],
        ["claim c is being deleted, and no further pod may use it; its finalizers keep it: pvc"],
        ["ReplaceClaim"],
    ),
    "claim names a volume that does not exist": Row(
        [N1, naming(claim("c"), "vol-9"), pod("p", volumes=using("c"))],
        ["claim c is not bound: it names the volume vol-9, which does not exist"],
        ["CreateVolume", "ReplaceClaim"],
    ),
    "claim names a volume of another claim": Row(
        [N1, naming(claim("c"), "v"), volume("v", "other"), pod("p", volumes=using("c"))],
        ["it names the volume v, which is bound to claim default/other"],
        ["ReplaceClaim"],
    ),
    "claim names a volume that is released": Row(
        [
            N1,
            naming(claim("c"), "v"),
            volume("v", "c") | {"status": {"phase": "Released"}},
            pod("p", volumes=using("c")),
        ],
        ["it names the volume v, which is Released, not Available"],
        ["ReplaceClaim"],
    ),
    "claim names a volume that is too small": Row(
        [
            N1,
            of_size(naming(claim("c"), "v"), "2Gi"),
            volume("v", "c") | {"status": {"phase": "Available"}},
            pod("p", volumes=using("c")),
        ],
        ["it names the volume v, which has 1Gi, less than the 2Gi requested"],
        ["ReplaceClaim"],
    ),
    "claim names a volume that is available": Row(
        [
            N1,
            naming(claim("c"), "v"),
            volume("v", "c") | {"status": {"phase": "Available"}},
            pod("p", volumes=using("c")),
        ],
        ["it names the volume v, which is available"],
        ["BindClaims"],
    ),
    "claim is bound but for its annotation": Row(
        [
            N1,
            naming(claim("c"), "v") | {"status": {"phase": "Bound"}},
            volume("v", "c"),
            pod("p", volumes=using("c")),
        ],
        ["v is bound to it, but it lacks the annotation pv.kubernetes.io/bind-completed"],
        ["Annotate"],
    ),
    "claim of an ephemeral volume is not created yet": Row(
        [
            N1,
            storage_class("lvm") | {"provisioner": "lvm"},
            in_default(
                pod(
                    "p",
                    volumes=[
                        {
                            "name": "s",
                            "ephemeral": {
                                "volumeClaimTemplate": {"spec": claim("x", kind="lvm")["spec"]}
                            },
                        }
                    ],
                )
            ),
        ],
        ["claim p-s of its ephemeral volume does not exist yet"],
        ["CreateClaim"],
    ),
    "driver has too little storage": Row(
        [
            N1,
            storage_class("lvm") | {"provisioner": "lvm", "volumeBindingMode": "WaitForFirstConsumer"},
            csi("CSIDriver", "lvm", spec={"storageCapacity": True}),
            csi("CSIStorageCapacity", "c1", storageClassName="lvm", capacity="2Gi", nodeTopology={}),
            of_size(claim("c", kind="lvm"), "5Gi"),
            pod("p", volumes=using("c")),
        ],
        ["it requests 5Gi, and the driver of storage class lvm reports capacity for volumes of 2Gi"],
        ["CreateVolume", "ReplaceClaim"],
    ),
    "nodes without a NodeResourceTopology": Row(
        [N1, pod("p", annotations={NUMA: '{"numaTopologyPolicy": "SingleNUMANode"}'})],
        ["its NUMA policy SingleNUMANode needs to know the NUMA nodes", "those of n1"],
        ["RemoveAnnotation"],
    ),
    "feature that no kubelet declares": Row(
        [N1, pod("p", hostNetwork=True, hostUsers=False)],
        ["hostUsers: false with hostNetwork: true needs the kubelet feature UserNamespacesHostNetwork"],
        ["RemoveFeature"],
    ),
    "restart rule that no kubelet supports": Row(
        [N1, restarting(pod("p"))],
        ["a restart rule with the action RestartAllContainers needs the kubelet feature"],
        ["RemoveFeature"],
    ),
    "devices of a claim that no pod uses": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 1),
            resource_claim("old", request(), allocation=allocation("n1", "gpu-0")),
            resource_claim("c", request()),
            claiming_pod("p", "c"),
        ],
        ["1 in use by default/old (no pod uses it)"],
        ["DeleteClaim"],
    ),
    "one of two affinity terms is met by each of two full nodes": Row(
        [
            *(node(f"n{i}", cpu="4", labels={key: "a"}) for i, key in ((1, "disk"), (2, "pool"))),
            node("n3", cpu="2", labels={"pool": "b"}),
            pod("p", "8", affinity=on_terms(*({"matchExpressions": [e]} for e in A_DISK_OR_POOL))),
        ],
        [
            "node affinity disk In (a) is not met by 2 of 3 nodes (values of disk: a on 1)",
            "node affinity pool In (a) is not met by 2 of 3 nodes (values of pool: a on 1, b on 1)",
        ],
        ["Resize"],
    ),
    "one of several node affinity terms": Row(
        [
            node("n1"),
            node("n2", labels={"zone": "a"}),
            pod("p", affinity=either(nvme=("disk", "nvme"), zone=("zone", "a"))),
        ],
        ["terms, one of which must be met: disk In (nvme) and zone In (a), or metadata.name In (n3)"],
        ["LabelNode"],
    ),
    "queue is closed and the node tainted": Row(
        [
            node("n1", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
            queue("small", state="Closed"),
            pod("p", "4", annotations=SMALL),
        ],
        ["queue small is closed"],
        ["OpenQueue"],
    ),
    "queue is full until pods end": Row(
        [
            N1,
            queue("small", capability={"cpu": "4"}),
            full("a", "3", "n1", annotations={**SMALL, "holdfast.io/run-estimate": "1h"}),
            pod("p", "2", annotations=SMALL),
        ],
        ["queue small uses 3 of the 4 cpu of its capability, and the request is 2 cpu"],
        ["Wait", "RaiseCapability", "Resize"],
    ),
    "device class is missing": Row(
        [
            N1,
            device_class("gpu.example.com"),
            resource_claim("c", request(of="gpu.exmple.com")),
            claiming_pod("p", "c"),
        ],
        ["there is no DeviceClass gpu.exmple.com; did you mean gpu.example.com?"],
        [],
    ),
    "claim is missing": Row(
        [N1, device_class(), resource_claim("gpus", request()), claiming_pod("p", "gpu")],
        ["there is no ResourceClaim default/gpu; did you mean gpus?"],
        [],
    ),
    "template of a claim is missing": Row(
        [
            N1,
            device_class(),
            claim_template("gpus", request()),
            pod("p", resourceClaims=[{"name": "x", "resourceClaimTemplateName": "gpu"}]),
        ],
        ["there is no ResourceClaimTemplate default/gpu; did you mean gpus?"],
        [],
    ),
    "device class is missing, and devices are free": Row(
        [
            N1,
            device_class("gpu.example.com"),
            resource_slice("n1", 2),
            resource_claim("c", request(of="gpu.exmple.com")),
            claiming_pod("p", "c"),
        ],
        ["there is no DeviceClass gpu.exmple.com; did you mean gpu.example.com?"],
        ["ReplaceClaim", "CreateDeviceClass"],
    ),
    "there is no device class": Row(
        [N1, resource_slice("n1", 1), resource_claim("c", request()), claiming_pod("p", "c")],
        ["there is no DeviceClass gpu, nor any other"],
        ["CreateDeviceClass"],
    ),
    "claim is missing, and one has a similar name": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 1),
            resource_claim("gpus", request()),
            claiming_pod("p", "gpu"),
        ],
        ["there is no ResourceClaim default/gpu; did you mean gpus?"],
        ["UseClaim", "CreateClaim"],
    ),
    "claim is missing, and there is none": Row(
        [N1, device_class(), resource_slice("n1", 1), claiming_pod("p", "training")],
        ["there is no ResourceClaim default/training"],
        ["CreateClaim"],
    ),
    "claim is missing, and there are no devices": Row(
        [N1, claiming_pod("p", "training")],
        ["there is no ResourceClaim default/training"],
        ["CreateClaim"],
    ),
    "template of a claim is missing, and there are no devices": Row(
        [N1, pod("p", resourceClaims=[{"name": "x", "resourceClaimTemplateName": "training"}])],
        ["there is no ResourceClaimTemplate default/training"],
        ["CreateClaim"],
    ),
    "claim is missing, and a template has its name": Row(
        [N1, device_class(), claim_template("shared", request()), claiming_pod("p", "shared")],
        ["there is no ResourceClaim default/shared; a ResourceClaimTemplate has this name"],
        [],
    ),
    "template of a claim is missing, and one has a similar name": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 1),
            claim_template("gpus", request()),
            claiming_pod("p", templates={"gpu": None}),
        ],
        ["there is no ResourceClaimTemplate default/gpu; did you mean gpus?"],
        ["UseClaim", "CreateClaim"],
    ),
    "claim from a template is not created yet": Row(
        [
            N1,
            device_class(),
            claim_template("gpu", request()),
            claiming_pod("p", templates={"gpu": None}, metadata=STORED),
        ],
        ["the claim from ResourceClaimTemplate default/gpu does not exist yet"],
        [],
    ),
    "more devices than a node has": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 2),
            resource_claim("c", request(count=3)),
            claiming_pod("p", "c"),
        ],
        ["n1: 3 devices are requested, and 2 are published for it"],
        ["Resize"],
    ),
    "more devices of each alternative than a node has": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 2),
            resource_claim("c", first_available("r", request("a", count=8), request("b", count=6))),
            claiming_pod("p", "c"),
        ],
        ["n1: 8 or 6 devices are requested, and 2 are published for it"],
        ["Resize"],
    ),
    "more devices from a template than a node has": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 2),
            claim_template("gpu", request(count=5)),
            *generated("p", request(count=5)),
        ],
        ["n1: 5 devices are requested, and 2 are published for it"],
        ["Resize"],
    ),
    "more devices of both requests than a node has": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 4),
            resource_claim("c", request("a", 6), request("b", 6)),
            claiming_pod("p", "c"),
        ],
        ["n1: 12 devices are requested, and 4 are published for it"],
        ["Resize"],
    ),
    "more devices of one of two requests than a node has": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 4),
            resource_claim("c", request("a", 2), request("b", 6)),
            claiming_pod("p", "c"),
        ],
        ["n1: of 4 devices for request b: 2 allocated to another request of the pod"],
        ["Resize"],
    ),
    "its claim is allocated on a node that is full": Row(
        [
            N1,
            node("n2", cpu="8"),
            device_class(),
            resource_slice("n1", 1),
            resource_slice("n2", 1),
            allocated("shared", "n1", "gpu-0", user="a"),
            claiming_pod("a", "shared", nodeName="n1", cpu="4"),
            full("b", "4", "n1"),
            claiming_pod("p", "shared", cpu="4"),
        ],
        ["claim default/shared is allocated: gpu.example.com/n1/gpu-0, reserved for pod a"],
        ["EndPods"],
    ),
    "its claim is allocated on a node that is too small": Row(
        [
            node("n1", cpu="4"),
            node("n2", cpu="8"),
            device_class(),
            resource_slice("n1", 1),
            resource_slice("n2", 1),
            allocated("shared", "n1", "gpu-0", user="a"),
            claiming_pod("a", "shared", nodeName="n1", cpu="4"),
            claiming_pod("p", "shared", cpu="6"),
        ],
        ["claim default/shared is allocated: gpu.example.com/n1/gpu-0, reserved for pod a"],
        ["EndPods"],
    ),
    "devices are in use": Row(
        [
            N1,
            device_class(),
            resource_slice("n1", 1),
            allocated("theirs", "n1", "gpu-0", user="a"),
            claiming_pod("a", "theirs", nodeName="n1"),
            resource_claim("c", request()),
            claiming_pod("p", "c"),
        ],
        ["n1: of 1 device for request r: 1 in use by default/theirs (pod a)"],
        ["EndPods"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


def test_a_node_of_another_pool_is_not_relabelled() -> None:
    row = SITUATIONS["label that the node has with another value"]
    texts = [each.text for each in explained(world_of(row.objects), row).advice]
    assert texts[0] == "remove nodeSelector gen=new; then it fits n1"
    assert texts[1].startswith("add a node with gen=new (")


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([node("n2")], "label n2 (kubectl label node n2 pool=web); then it fits n2"),
        (
            [node("n2", "4", labels={"pool": "web"}), full("a", "4", "n2")],
            "end pod default/a (priority 0) on n2; then it fits n2",
        ),
    ],
    ids=["a node of no pool", "its own pool is full"],
)
def test_what_is_advised_instead_of_a_node_of_another_pool(others: list[Raw], text: str) -> None:
    asks = pod("p", nodeSelector={"pool": "web"})
    (advice,) = as_they_are("Pod", "p", node("n1", labels={"pool": "db"}), *others, asks).advice
    assert advice.text == text


def test_the_node_that_lacks_the_fewest_labels_is_advised() -> None:
    row = SITUATIONS["one of several node affinity terms"]
    (advice,) = explained(world_of(row.objects), row).advice
    assert "(kubectl label node n2 disk=nvme)" in advice.text


def test_both_changes_are_advised_for_a_closed_queue_and_a_taint() -> None:
    row = SITUATIONS["queue is closed and the node tainted"]
    (advice,) = explained(world_of(row.objects), row).advice
    assert advice.change["actions"] == ["OpenQueue", "Tolerate"]


@pytest.mark.parametrize(("has", "actions"), [("4", ["EndPods"]), ("3", ["Resize", "EndPods"])])
def test_a_resize_that_failed_is_in_the_summary(has: str, actions: list[str]) -> None:
    held = on_n1(reservation("peak", has, app="web"))
    held["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "6"}}
    objects = [N1, full("a", has, "n1"), held]
    report = as_they_are("Reservation", "peak", *objects, pod("p", "1", "web"))
    short = 6 + int(has) - 8
    assert report.summary == (
        f"It reserves capacity on n1; remaining: {has} cpu. Its resize failed: its template requests "
        f"6 cpu instead of {has} cpu, and n1 is short of {short} cpu."
    )
    assert report.details == [f"pod default/a has {has} cpu: end unknown"]
    assert [each.change["actions"][0] for each in report.advice] == actions
    assert report.owners == ["Pod/default/p is pending and may use it"]
    for advice in report.advice:
        world = world_of(changed(objects, advice.change))
        resized = world.objects["Reservation", "peak"]
        wanted = resized["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
        assert resized["status"]["allocatable"]["cpu"] == wanted["cpu"], advice.text


def test_what_is_kept_for_a_nominated_pod() -> None:
    preemptor = pod("v", "6", priority=100)
    preemptor["status"] = {"phase": "Pending", "nominatedNodeName": "n1"}
    leaving = full("a", "4", "n1")
    leaving["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:20Z"}
    report = as_they_are("Pod", "p", N1, leaving, preemptor, pod("p", "4"))
    kept = "n1: 6 cpu are kept for default/v (priority 100), which is nominated there"
    assert kept in report.details


def test_overhead_is_named() -> None:
    wanted = pod("p", "1", overhead={"cpu": "4"}, runtimeClassName="kata")
    report = report_on("pod", "p", N1, full("a", "5", "n1"), wanted)
    assert "it requests 5 cpu (4 of it is the overhead of RuntimeClass kata)" in report.details


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        ("numa-topology-spec", '{"numaTopologyPolicy": "SingelNUMANode"}', "mean SingleNUMANode?"),
        (
            "device-allocate-hint",
            '{"gpu": {"requiredTopologyScop": "PCIe"}}',
            "gpu.requiredTopologyScop: unknown field; did you mean requiredTopologyScope?",
        ),
        (
            "device-allocate-hint",
            '{"gpus": {}}',
            "for devices of type gpus is ignored; did you mean gpu?",
        ),
        ("device-joint-allocate", '{"requiredScope": "SamePCI"}', "did you mean SamePCIe?"),
    ],
)
def test_ignored_annotations_of_a_pod_that_fits(annotation: str, value: str, says: str) -> None:
    key = f"scheduling.koordinator.sh/{annotation}"
    report = as_they_are("Pod", "p", N1, pod("p", annotations={key: value}))
    assert "It fits now" in report.summary
    assert says in "".join(report.details)


def test_advised_requests_do_not_include_overhead() -> None:
    row = Row([N1, pod("p", "7", overhead={"cpu": "2"})], [], ["Resize"])
    (advice,) = check(row).advice
    assert advice.text.startswith(
        "request at most 6 cpu instead of 7 (its overhead of 2 is added); then it fits n1"
    )


def test_a_reservation_for_a_node_that_does_not_exist() -> None:
    row = Row([N1, reservation("peak", "2", pod={"nodeName": "nn1"})], [], [], "peak", "Reservation")
    report = explained(world_of(row.objects), row)
    assert report.summary == "It names the node nn1, which does not exist; did you mean n1?"
    assert report.details == []


def test_a_reusable_reservation_beside_one_for_the_same_owners() -> None:
    both = [reservation(name, "2", app="web", allocateOnce=False) for name in ("a", "b")]
    row = Row([N1, *both], [], [], "b", "Reservation")
    report = explained(world_of(row.objects), row)
    assert report.details[0].startswith(
        "reservation a on n1 has the same owners, and both are reusable"
    )


@pytest.mark.parametrize(
    ("group", "says"),
    [
        (pod_group("g", 2), "the annotation scheduling.k8s.io/group-name=g"),
        (
            pod_group("g", 2, api="scheduling.sigs.k8s.io/v1alpha1"),
            "the label pod-group.scheduling.sigs.k8s.io=g",
        ),
        (core_group("g", 2), "spec.schedulingGroup.podGroupName: g"),
    ],
)
def test_how_pods_join_a_group_that_has_none(group: Raw, says: str) -> None:
    report = report_on("podgroup", "g", node("n1"), group)
    assert report.details == [f"no pod belongs to it; pods join it by {says}"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "more devices than a node has",
            "request at most 2 devices instead of 3 for request r in ResourceClaim c "
            "(delete and create it again)",
        ),
        (
            "more devices from a template than a node has",
            "request at most 2 devices instead of 5 for request r in ResourceClaimTemplate gpu "
            "(delete and create it again), then delete the pod and create it again: its claim was made "
            "from the old template",
        ),
        (
            "more devices of both requests than a node has",
            "request at most 2 devices instead of 6 for request a, "
            "2 devices instead of 6 for request b in ResourceClaim c (delete and create it again)",
        ),
        (
            "more devices of one of two requests than a node has",
            "request at most 2 devices instead of 6 for request b in ResourceClaim c "
            "(delete and create it again)",
        ),
    ],
)
def test_how_many_devices_would_fit(name: str, said: str) -> None:
    row = SITUATIONS[name]
    (advice,) = explained(world_of(row.objects), row).advice
    assert advice.text == f"{said}; then it fits n1"


@pytest.mark.parametrize(("cpu", "action"), [("1", "WaitForPod"), ("9", "RemoveAffinity")])
def test_a_pod_that_it_must_be_near_is_waited_for_if_it_fits(cpu: str, action: str) -> None:
    awaited = pod("cache", cpu, "cache")
    report = as_they_are("Pod", "p", N1, awaited, pod("p", affinity=near("cache")))
    (advice,) = report.advice
    assert advice.change["actions"] == [action]
    if action == "WaitForPod":
        assert advice.text == "wait until default/cache is scheduled, which fits n1; then it fits n1"


@pytest.mark.parametrize(
    ("there", "advised"),
    [
        (
            [storage_class("local")],
            "delete claim c, create it again without volumeName, and create a volume of storage class "
            "local for it (what gone stored is lost); then it fits n1",
        ),
        (
            [storage_class("local"), volume_on("free", "n1", "local")],
            "delete claim c and create it again without volumeName, to be bound to another volume "
            "(what gone stored is lost); then it fits n1",
        ),
        (
            [storage_class("local") | {"provisioner": "ebs.csi.aws.com"}],
            "delete claim c and create it again without volumeName, to be bound to another volume "
            "(what gone stored is lost); then it fits n1",
        ),
    ],
)
def test_a_lost_claim_needs_a_volume_unless_there_is_one(there: list[Raw], advised: str) -> None:
    lost = claim("c", volume="gone", kind="local") | {"status": {"phase": "Lost"}}
    (advice,) = as_they_are("Pod", "p", N1, lost, pod("p", volumes=using("c")), *there).advice
    assert advice.text == advised


def test_a_claim_in_another_namespace_is_named() -> None:
    elsewhere = claim("c")
    elsewhere["metadata"]["namespace"] = "other"
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    report = explained(world_of([N1, elsewhere, pod("p", "1", volumes=[volume])]), Row([], [], []))
    says = "default/c does not exist; there is one of that name in namespace other"
    assert f"PersistentVolumeClaim {says}" in report.details


def test_what_is_told_of_a_claim_that_is_missing() -> None:
    """A pod is not tried until its claim exists, and gets no condition; a reservation gets one."""
    missing = 'could not find ResourceClaim "default/training"'
    world = world_of([N1, claiming_pod("p", "training")])
    report = explained(world, Row([], [], []))
    assert report.summary == f"No suitable node: {missing}."
    assert report.told == report.would_say == world.message("p") == ""
    claims = [{"name": "x", "resourceClaimName": "training"}]
    world.put(reservation("r", pod={"resourceClaims": claims}))
    of_reservation = explained(world, Row([], [], [], name="r", kind="Reservation"))
    assert missing in of_reservation.told
    assert of_reservation.would_say == of_reservation.told


TWO_GPUS = [device_class(), resource_slice("n1", 2), resource_slice("n2", 2)]


def placed_claims(world: World, *pods: str) -> dict[str, list[str]]:
    """The nodes that explain ranks for pods that are placed."""
    found = {}
    for name in pods:
        assert world.node_of(name)
        report = explained(world, Row([], [], [], name=name))
        assert report.summary == f"It is on {world.node_of(name)}."
        found[name] = sorted(each.node for each in report.ranked)
        rejected = {node for each in report.nodes for node in each.nodes}
        assert not rejected & {*found[name]}
    return found


def test_devices_of_other_claims_are_not_free_for_a_placed_pod() -> None:
    world = world_of([N1, N2, *TWO_GPUS])
    for name in ("p", "q"):
        world.put(resource_claim(f"c-{name}", request(count=2)), claiming_pod(name, f"c-{name}"))
    assert {world.node_of("p"), world.node_of("q")} == {"n1", "n2"}
    own = {name: [world.node_of(name)] for name in ("p", "q")}
    assert placed_claims(world, "p", "q") == own
    world.delete("Pod", "q")
    world.delete("ResourceClaim", "c-q")
    assert placed_claims(world, "p") == {"p": ["n1", "n2"]}


def test_a_claim_that_other_pods_use_keeps_its_devices() -> None:
    world = world_of([N1, N2, *TWO_GPUS, resource_claim("shared", request())])
    world.put(claiming_pod("p", "shared"), claiming_pod("q", "shared"))
    there = world.node_of("p")
    assert placed_claims(world, "p", "q") == {"p": [there], "q": [there]}
