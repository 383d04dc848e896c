"""Anonymized objects tell no names, belong together as before, and are scheduled as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api import names as n
from holdfast.api.documents import Document
from holdfast.api.kinds import kind_info
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation
from holdfast.snapshot.anonymizing import Renaming, anonymize
from holdfast.snapshot.manifests import load_files
from holdfast.snapshot.stripping import Stripper
from mixtures.life import make_life
from sim.dumped_clusters import RandomCluster
from sim.test_examples import EXAMPLES, FILES

Raw = dict[str, Any]

WORDS = st.from_regex(r"[a-z0-9]([a-z0-9]|[-.][a-z0-9]){0,12}", fullmatch=True)


def _renaming(*texts: str) -> Renaming:
    renaming = Renaming()
    for text in texts:
        renaming.collect(text)
    renaming.freeze()
    return renaming


@given(st.lists(WORDS, min_size=2, max_size=8))
def test_names_keep_their_order_and_stay_distinct(texts: list[str]) -> None:
    renaming = _renaming(*texts)
    assert [renaming.rename(text) for text in sorted(texts)] == sorted(
        renaming.rename(text) for text in texts
    )
    assert len({renaming.rename(text) for text in texts}) == len(set(texts))


@given(WORDS, WORDS)
def test_what_is_joined_is_renamed_part_by_part(one: str, other: str) -> None:
    renaming = _renaming(one, other, f"{one}-{other}")
    assert renaming.rename(f"{one}-{other}") == f"{renaming.rename(one)}-{renaming.rename(other)}"


UID = "d2719f4e-1111-2222-3333-444455556666"


@pytest.mark.parametrize("text", ["", "0", "42", "true", "default", "system-node-critical", UID])
def test_what_is_no_name_stays(text: str) -> None:
    assert _renaming("web", text).rename(text) == text


def test_a_label_is_never_too_long() -> None:
    many = "-".join("abcdefghijklmnopqrstuvwxyzabcde")
    renaming = _renaming(many, *(f"other{i}" for i in range(2000)))
    assert len(many) <= 63
    assert len(renaming.rename(many)) <= 63


POD: Raw = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "shop-cart-5d4f-x2x4z",
        "namespace": "shop",
        "uid": UID,
        "labels": {
            "app": "cart",
            "acme.com/owner": "Jane-Doe",
            "koordinator.sh/qosClass": "LSR",
            "pod-template-hash": "5d4f",
            n.VOLCANO_JOB_NAME: "cart",
        },
        "annotations": {
            n.RESERVATION_ALLOCATED: json.dumps({"name": "shop-peak", "uid": "u-1"}),
            n.RESERVATION_AFFINITY: json.dumps(
                {
                    "reservationSelector": {"acme.com/pool": "gpu"},
                    "tolerations": [{"key": "acme.com/t", "operator": "Equal", "value": "acme"}],
                }
            ),
            n.GANG_NAME: "shop/acme",
            n.GANG_GROUPS: json.dumps(["shop/acme", "shop/cart"]),
            n.DEVICE_ALLOCATED: json.dumps({"gpu": [{"minor": 1, "resources": {"cpu": "100m"}}]}),
            n.RUN_ESTIMATE: "1h30m",
            n.HELD_BECAUSE: "acme waits",
        },
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-cart-5d4f"}],
    },
    "spec": {
        "nodeName": "acme-gpu-7",
        "priorityClassName": "system-node-critical",
        "schedulerName": "default-scheduler",
        "nodeSelector": {"acme.com/pool": "gpu", "kubernetes.io/os": "linux"},
        "containers": [
            {
                "name": "cart",
                "image": "registry.acme.com:5000/shop/cart:v1",
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}},
            }
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "acme.com/gen", "operator": "Gt", "values": ["4"]}
                            ],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["acme-gpu-7"]}
                            ],
                        }
                    ]
                }
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "acme.com/rack",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "cart"}},
            }
        ],
    },
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "message": "cart is ready"}]},
}
NODE: Raw = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "acme-gpu-7",
        "labels": {
            "kubernetes.io/hostname": "acme-gpu-7",
            "kubernetes.io/os": "linux",
            "acme.com/pool": "gpu",
            "acme.com/rack": "r7",
            "acme.com/gen": "5",
        },
    },
    "spec": {"taints": [{"key": "acme.com/t", "value": "acme", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8"},
        "images": [{"names": ["registry.acme.com:5000/shop/cart:v1"], "sizeBytes": 5}],
    },
}


def test_no_name_is_left_and_what_programs_know_stays() -> None:
    (pod, node), _ = anonymize([POD, NODE])
    text = json.dumps([pod, node])
    for private in ("acme", "cart", "shop", "Jane", "Doe", "x2x4z"):
        assert private not in text, private
    for known in (
        *("500m", "1Gi", "nvidia.com/gpu", "LSR", "default-scheduler", "system-node-critical"),
        *("linux", "DoNotSchedule", "Running", "kubernetes.io/hostname", "1h30m", n.GANG_GROUPS),
        *("pod-template-hash", UID, '\\"minor\\": 1', "100m"),
    ):
        assert known in text, known


def test_what_refers_to_one_name_still_does() -> None:
    (pod, node), renaming = anonymize([POD, NODE])
    name, labels = node["metadata"]["name"], node["metadata"]["labels"]
    spec, metadata = pod["spec"], pod["metadata"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert spec["nodeName"] == name == labels["kubernetes.io/hostname"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": [name]}]
    (expression,) = term["matchExpressions"]
    assert expression["key"] in labels and expression["values"] == ["4"]
    assert spec["nodeSelector"].items() <= labels.items()
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["topologyKey"] in labels
    assert spread["labelSelector"]["matchLabels"].items() <= metadata["labels"].items()
    assert metadata["name"].startswith(metadata["ownerReferences"][0]["name"] + "-")
    assert spec["containers"][0]["image"] in node["status"]["images"][0]["names"]
    assert spec["containers"][0]["image"].count(":") == 2
    annotations = metadata["annotations"]
    assert json.loads(annotations[n.RESERVATION_ALLOCATED]) == {
        "name": renaming.rename("shop-peak"),
        "uid": "u-1",
    }
    assert annotations[n.GANG_NAME] == f"{metadata['namespace']}/{renaming.rename('acme')}"
    assert annotations[n.GANG_NAME] in json.loads(annotations[n.GANG_GROUPS])
    (toleration,) = json.loads(annotations[n.RESERVATION_AFFINITY])["tolerations"]
    affinity = json.loads(annotations[n.RESERVATION_AFFINITY])
    assert affinity["reservationSelector"].items() <= labels.items()
    (taint,) = node["spec"]["taints"]
    assert (toleration["key"], toleration["value"]) == (taint["key"], taint["value"])


PRIVATE: list[Raw] = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "labels": {
                "quota.scheduling.koordinator.sh/name": "acmequota",
                "volcano.sh/job-namespace": "acme",
                "volcano.sh/acmelabel": "x",
                "node-role.kubernetes.io/acmerole": "",
            },
            "annotations": {
                "volcano.sh/task-topology-affinity": "acmeps,acmeworker",
                n.NEW_RESERVATION_REQUIREMENT: "Acme needs it",
                n.SOFT_EVICTION: json.dumps({"initiator": "acme", "reason": "acme wants it"}),
            },
        },
        "spec": {
            "tolerations": [{"key": "dedicated", "value": "Acme"}],
            "containers": [{"name": "c", "ports": [{"hostPort": 80, "hostIP": "192.168.7.9"}]}],
            "volumes": [{"name": "v", "iscsi": {"targetPortal": "192.168.7.9:3260"}}],
        },
        "status": {"conditions": [{"type": "acme.com/up", "status": "True", "reason": "acme is up"}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "dedicated", "value": "Acme", "effect": "NoSchedule"}]},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "s"},
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "site", "values": ["Acme"]}]}],
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "status": {"disruptedPods": {"acme-0": "2026-01-01T00:00:00Z"}},
    },
    {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "status": {
            "taskStatusCount": {"acme": {"phase": {"Running": 1}}},
            "controlledResources": {"plugin-acme": "svc"},
        },
    },
]


def test_it_matters_where_a_value_stands_and_not_how_it_looks() -> None:
    renamed, renaming = anonymize(PRIVATE)
    text = json.dumps(renamed).lower()
    assert "acme" not in text and "192.168" not in text
    pod, node, storage_class, budget, job = renamed
    (toleration,), (taint,) = pod["spec"]["tolerations"], node["spec"]["taints"]
    assert (toleration["key"], toleration["value"]) == (taint["key"], taint["value"])
    assert taint["effect"] == "NoSchedule"
    (term,) = storage_class["allowedTopologies"][0]["matchLabelExpressions"]
    assert term["values"] == [renaming.rename("Acme")]
    assert list(budget["status"]["disruptedPods"]) == [renaming.rename("acme-0")]
    assert job["status"] == {"taskStatusCount": {renaming.rename("acme"): {"phase": {"Running": 1}}}}


WORDS_OF_PROGRAMS: Raw = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "labels": {n.NODE_NUMA_TOPOLOGY_POLICY: "SingleNUMANode"},
        "annotations": {
            n.KUBELET_CPU_POLICY: '{"policy":"static"}',
            n.LIGHT_GROUP_MATCH_POLICY: "only-waiting",
            n.MIGRATED_PLUGINS_ANNOTATION: "kubernetes.io/aws-ebs",
            n.RESERVATION_RESTRICTED_OPTIONS: '{"resources":["cpu"]}',
        },
    },
    "spec": {"dequeueStrategy": "traverse", "networkTopology": {"mode": "hard"}},
    "status": {"state": "Open"},
}


def test_words_that_programs_know_stay() -> None:
    (node,), renaming = anonymize([WORDS_OF_PROGRAMS])
    metadata = {**WORDS_OF_PROGRAMS["metadata"], "name": renaming.rename("n")}
    assert node == {**WORDS_OF_PROGRAMS, "metadata": metadata}


def _run(objects: list[Raw], config: Raw | None, until: float | None) -> Result:
    documents = [Document("objects", i, i, raw) for i, raw in enumerate(objects)]
    return Simulation(read_scenario(documents), SchedulerFactory.of(config)).run(until)


def _namespaced(raw: Raw) -> Raw:
    if kind_info(raw["apiVersion"], raw["kind"]).namespaced:
        raw["metadata"].setdefault("namespace", "default")
    return raw


def _assert_decided_alike(objects: list[Raw], config: Raw | None, until: float | None) -> None:
    renamed, renaming = anonymize(objects)

    def rename(name: str) -> str:
        kind, _, rest = name.partition("/")
        return "/".join((kind, *(renaming.rename(part) for part in rest.split("/"))))

    def named(raw: Raw) -> str:
        metadata = raw["metadata"]
        parts = (raw["kind"], metadata.get("namespace") or "", metadata.get("name") or "")
        return "/".join(filter(None, parts))

    known = {named(raw) for raw in objects if raw["kind"] != "DeviceClass"}
    before = [
        (entry.t, rename(entry.object), entry.event, renaming.rename(entry.node))
        for entry in _run(objects, config, until).timeline
        if entry.object in known
    ]
    known = {rename(name) for name in known}
    after = [
        (entry.t, entry.object, entry.event, entry.node)
        for entry in _run(renamed, config, until).timeline
        if entry.object in known
    ]
    assert before
    assert after == before


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("claims", [False, True])
def test_decisions_are_the_same(seed: int, claims: bool) -> None:
    """Of random mixtures of everything: gangs, queues, reservations, volumes, GPUs, NUMA, claims."""
    life = make_life(seed, claims=claims)
    objects = [_namespaced(raw) for raw in life.documents if raw["apiVersion"] != n.SIM_API]
    _assert_decided_alike(objects, life.config, life.until)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(EXAMPLES)))
def test_decisions_of_an_example_are_the_same(file: Path) -> None:
    documents = [document.data for document in load_files([str(file)])]
    objects = [_namespaced(raw) for raw in documents if raw["apiVersion"] != n.SIM_API]
    _assert_decided_alike(objects, None, None)


@pytest.mark.parametrize("seed", range(4))
def test_controllers_recognise_their_pods(seed: int) -> None:
    """Of a cluster at rest nothing is made twice or moved, under any name."""
    stripper = Stripper()
    dump = [
        stripper.strip(raw)
        for raw in RandomCluster(seed).dump()
        if raw["kind"] not in ("Event", "Lease", "ControllerRevision")
    ]
    renamed, _ = anonymize(dump)

    def places(objects: list[Raw]) -> dict[str, str]:
        return {
            raw["metadata"]["uid"]: raw["spec"].get("nodeName") or ""
            for raw in objects
            if raw["kind"] == "Pod" and raw["status"].get("phase") not in ("Succeeded", "Failed")
        }

    assert places(_run(renamed, None, 3600).objects) == places(renamed)
