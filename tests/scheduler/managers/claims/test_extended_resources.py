"""Which requests a claim for extended resources has, and whom they serve."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.decode import convert
from holdfast.api.pod import Pod
from holdfast.api.resource_claims import DeviceClass
from holdfast.scheduler.managers.claims.extended_resources import classes_by_resource, extended_claim

GPU = "example.com/gpu"


def container(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    requests = {"cpu": "1"} | ({GPU: str(gpus)} if gpus else {})
    return {"name": name, "resources": {"requests": requests}, **more}


@pytest.mark.parametrize(
    ("inits", "containers", "requests", "mappings"),
    [
        ([], [("a", 2)], {"container-0-request-1": 2}, ["a container-0-request-1"]),
        (
            [],
            [("a", 2), ("b", 0), ("c", 1)],
            {"container-0-request-1": 2, "container-2-request-1": 1},
            ["a container-0-request-1", "c container-2-request-1"],
        ),
        (
            [("i", 1)],
            [("a", 2)],
            {"container-1-request-1": 2},
            ["a container-1-request-1", "i container-1-request-1"],
        ),
        (
            [("i", 3)],
            [("a", 2)],
            {"container-0-request-1": 1, "container-1-request-1": 2},
            ["a container-1-request-1", "i container-1-request-1", "i container-0-request-1"],
        ),
        (
            [("i", 2), ("j", 4)],
            [("a", 0)],
            {"container-1-request-1": 4},
            ["i container-1-request-1", "j container-1-request-1"],
        ),
    ],
)
def test_requests_and_mappings(
    inits: list[tuple[str, int]],
    containers: list[tuple[str, int]],
    requests: dict[str, int],
    mappings: list[str],
) -> None:
    spec = {
        "initContainers": [container(*each) for each in inits],
        "containers": [container(*each) for each in containers],
    }
    found = extended_claim(convert({"spec": spec}, Pod), [GPU], {GPU: "gpu"})
    made = {each.name: each.exactly.count for each in found.spec.devices.requests if each.exactly}
    assert made == requests
    assert [f"{each.container_name} {each.request_name}" for each in found.mappings] == mappings


INIT, IMPLICIT = "example.com/init", "deviceclass.resource.kubernetes.io/init"
SIDECAR = {"restartPolicy": "Always"}
Asks = tuple[str, dict[str, int], dict[str, str]]
"""A container's name, what it requests, and its other fields."""


@pytest.mark.parametrize(
    ("inits", "containers", "requests", "mappings"),
    [
        # No class serves `example.com/other`.
        ([], [("a", {GPU: 1, "example.com/other": 2}, {})], {"0-0": "gpu 1"}, ["a 0-0"]),
        (
            [],
            [("a", {GPU: 1, INIT: 2}, {})],
            {"0-0": "gpu 1", "0-1": "init 2"},
            ["a 0-0", "a 0-1"],
        ),
        (
            [],
            [("a", {GPU: 1}, {}), ("b", {INIT: 2}, {})],
            {"0-0": "gpu 1", "1-0": "init 2"},
            ["a 0-0", "b 1-0"],
        ),
        (
            [("i", {INIT: 2}, {})],
            [("a", {GPU: 1}, {})],
            {"0-0": "init 2", "1-0": "gpu 1"},
            ["a 1-0", "i 0-0"],
        ),
        # Of two init containers, which run one after the other, the larger one has a request.
        (
            [("i", {INIT: 1}, {}), ("j", {INIT: 2}, {})],
            [("a", {GPU: 1}, {})],
            {"1-0": "init 2", "2-0": "gpu 1"},
            ["a 2-0", "i 1-0", "j 1-0"],
        ),
        # An init container uses the devices of a sidecar that starts after it.
        (
            [("i", {INIT: 1}, {}), ("s", {INIT: 1}, SIDECAR), ("j", {INIT: 2}, {})],
            [("a", {GPU: 1}, {})],
            {"1-0": "init 1", "2-0": "init 2", "3-0": "gpu 1"},
            ["a 3-0", "i 1-0", "j 2-0", "s 1-0"],
        ),
        # A class by its name and by the resource it serves are two resources.
        (
            [("i", {INIT: 1, IMPLICIT: 2}, {})],
            [("a", {}, {})],
            {"0-0": "init 2", "0-1": "init 1"},
            ["i 0-0", "i 0-1"],
        ),
        (
            [("i", {INIT: 1}, {}), ("j", {IMPLICIT: 2}, {})],
            [("a", {GPU: 1}, {})],
            {"0-0": "init 1", "1-0": "init 2", "2-0": "gpu 1"},
            ["a 2-0", "i 0-0", "j 1-0"],
        ),
    ],
)
def test_requests_of_several_resources(
    inits: list[Asks], containers: list[Asks], requests: dict[str, str], mappings: list[str]
) -> None:
    def made(name: str, asked: dict[str, int], more: dict[str, str]) -> dict[str, Any]:
        amounts = {resource: str(count) for resource, count in asked.items()}
        return {"name": name, "resources": {"requests": amounts}, **more}

    spec = {
        "initContainers": [made(*each) for each in inits],
        "containers": [made(*each) for each in containers],
    }
    classes = {GPU: "gpu", INIT: "init", IMPLICIT: "init"}
    asked = {resource for _, each, _ in (*inits, *containers) for resource in each}
    found = extended_claim(convert({"spec": spec}, Pod), asked & classes.keys(), classes)

    def short(name: str) -> str:
        return name.removeprefix("container-").replace("-request-", "-")

    assert [short(each.name) for each in found.spec.devices.requests] == [*requests]
    assert {
        short(each.name): f"{each.exactly.device_class_name} {each.exactly.count}"
        for each in found.spec.devices.requests
        if each.exactly
    } == requests
    assert (
        sorted(f"{each.container_name} {short(each.request_name)}" for each in found.mappings)
        == mappings
    )


def test_a_sidecar_keeps_its_devices() -> None:
    spec = {
        "initContainers": [container("s", 1, restartPolicy="Always")],
        "containers": [container("a", 1)],
    }
    found = extended_claim(convert({"spec": spec}, Pod), [GPU], {GPU: "gpu"})
    assert len(found.spec.devices.requests) == 2


def test_the_newest_class_serves_a_resource() -> None:
    def device_class(name: str, created: str) -> DeviceClass:
        metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{created}Z"}
        return convert({"metadata": metadata, "spec": {"extendedResourceName": GPU}}, DeviceClass)

    classes = [device_class("b", "1"), device_class("a", "1"), device_class("old", "0")]
    found = classes_by_resource(classes)
    assert found[GPU] == "a"
    assert found["deviceclass.resource.kubernetes.io/old"] == "old"
