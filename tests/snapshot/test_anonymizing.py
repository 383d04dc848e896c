"""Anonymized objects tell no names, belong together as before, and are scheduled as before."""

from __future__ import annotations

import json
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
from holdfast.snapshot.stripping import Stripper
from mixtures.life import make_life
from sim.dumped_clusters import RandomCluster

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
        *("pod-template-hash", UID, '\\"minor\\":1', "100m"),
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


def _run(objects: list[Raw], config: Raw | None, until: float) -> Result:
    documents = [Document("objects", i, i, raw) for i, raw in enumerate(objects)]
    return Simulation(read_scenario(documents), SchedulerFactory.of(config)).run(until)


def _namespaced(raw: Raw) -> Raw:
    if kind_info(raw["apiVersion"], raw["kind"]).namespaced:
        raw["metadata"].setdefault("namespace", "default")
    return raw


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("claims", [False, True])
def test_decisions_are_the_same(seed: int, claims: bool) -> None:
    """Of random mixtures of everything: gangs, queues, reservations, volumes, GPUs, NUMA, claims."""
    life = make_life(seed, claims=claims)
    objects = [_namespaced(raw) for raw in life.documents if raw["apiVersion"] != n.SIM_API]
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
        for entry in _run(objects, life.config, life.until).timeline
        if entry.object in known
    ]
    known = {rename(name) for name in known}
    after = [
        (entry.t, entry.object, entry.event, entry.node)
        for entry in _run(renamed, life.config, life.until).timeline
        if entry.object in known
    ]
    assert any(event == "Bound" for _, _, event, _ in before)
    assert after == before


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
