"""Copies of a pod are what they would be alone."""

from __future__ import annotations

from typing import Any

import pytest

from harness.apiserver import PODS, LiveServer
from harness.objects import pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def without_identity(made: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        name: value
        for name, value in made["metadata"].items()
        if name not in ("name", "uid", "resourceVersion", "creationTimestamp", "managedFields")
    }
    managers = [{**each, "time": ""} for each in made["metadata"]["managedFields"]]
    return {**made, "metadata": {**metadata, "managedFields": managers}}


def test_copies_differ_only_in_their_identity(server: LiveServer) -> None:
    first, second, third = (server.post(PODS, pod(f"copy-{i}")).body for i in range(3))
    assert without_identity(first) == without_identity(second) == without_identity(third)
    assert len({each["metadata"]["uid"] for each in (first, second, third)}) == 3
    assert second["metadata"]["name"] == "copy-1"
    assert server.get(f"{PODS}/copy-2").body == third


def test_a_copy_is_still_checked_by_name_and_place(server: LiveServer) -> None:
    server.post(PODS, pod("checked"))
    assert server.post(PODS, pod("checked")).reason == "AlreadyExists"
    bad = server.post(PODS, pod("Not_A_Name"))
    assert (bad.code, bad.reason) == (422, "Invalid")
    assert server.post("/api/v1/namespaces/nowhere/pods", pod("checked")).code == 404
    server.post("/api/v1/namespaces", {"metadata": {"name": "ending"}})
    assert server.post("/api/v1/namespaces/ending/pods", pod("there")).code == 201
    server.delete("/api/v1/namespaces/ending")
    assert server.post("/api/v1/namespaces/ending/pods", pod("late")).code == 403


def test_a_copy_with_a_repeated_field_is_refused(server: LiveServer) -> None:
    text = '{"metadata":{"name":"%s"},"spec":{"containers":[{"name":"c","image":"twice"}]}}'
    query = f"{PODS}?fieldValidation=Strict"
    assert server.post(query, text % "said-once").code == 201
    twice = text.replace('"image":"twice"', '"image":"x","image":"twice"')
    assert server.post(query, twice % "said-twice").code == 400


def test_copies_follow_the_priority_classes(server: LiveServer) -> None:
    assert server.post(PODS, pod("plain-1")).body["spec"]["priority"] == 0
    server.post(CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    assert server.post(PODS, pod("plain-2")).body["spec"]["priority"] == 7
    server.delete(f"{CLASSES}/usual")
    assert server.post(PODS, pod("plain-3")).body["spec"]["priority"] == 0


def test_copies_follow_the_runtime_classes(server: LiveServer) -> None:
    runtimes = "/apis/node.k8s.io/v1/runtimeclasses"
    for i, overhead in enumerate(({"cpu": "1"}, {"cpu": "2"})):
        fixed = {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": overhead}}
        server.post(runtimes, fixed)
        made = server.post(PODS, pod(f"kata-{i}", runtimeClassName="kata")).body
        assert made["spec"]["overhead"] == overhead
        server.delete(f"{runtimes}/kata")


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_what_differs_makes_another_template(server: LiveServer, field: str) -> None:
    for value in ("one", "two", "one"):
        body = pod("")
        body["metadata"] = {"generateName": "other-", field: {"a": value}}
        assert server.post(PODS, body).body["metadata"][field] == {"a": value}
