"""Invalid requests about PodGroups and Workloads are answered by `holdfast up` as by a real API server
that serves them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness.apiserver import LiveServer
from realserver.client import Client, RefusedError
from realserver.group_requests import (
    CHANGES,
    GROUPS,
    STATUSES,
    STORED,
    STORED_WORKLOAD,
    WORKLOAD_CHANGES,
    WORKLOADS,
    Json,
)
from realserver.server import RealServer
from realserver.test_same_answers import MERGE, Asked, same_answer

API = "scheduling.k8s.io/v1beta1"
AT = f"/apis/{API}/namespaces/default"


def new(plural: str, kind: str, name: str, spec: Json) -> Asked:
    body = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return Asked("POST", f"{AT}/{plural}?dryRun=All&fieldValidation=Strict", json.dumps(body))


def change(path: str, patch: Json) -> Asked:
    return Asked("PATCH", f"{AT}/{path}?dryRun=All", json.dumps(patch), MERGE)


CASES = {
    **{f"group: {name}": new("podgroups", "PodGroup", "g", spec) for name, spec in GROUPS.items()},
    **{
        f"workload: {name}": new("workloads", "Workload", "w", spec) for name, spec in WORKLOADS.items()
    },
    **{f"change: {name}": change("podgroups/stored", patch) for name, patch in CHANGES.items()},
    **{
        f"status: {name}": change("podgroups/stored/status", {"status": status})
        for name, status in STATUSES.items()
    },
    **{
        f"change of a workload: {name}": change("workloads/stored", patch)
        for name, patch in WORKLOAD_CHANGES.items()
    },
    "a name": new("podgroups", "PodGroup", "a_b", STORED),
    "not found": Asked("GET", f"{AT}/podgroups/none"),
    "an update without a version": Asked(
        "PUT",
        f"{AT}/podgroups/stored",
        json.dumps(
            {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": "stored"}, "spec": STORED}
        ),
    ),
    "an update that would create": Asked(
        "PUT",
        f"{AT}/podgroups/none",
        json.dumps(
            {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": "none"}, "spec": STORED}
        ),
    ),
    "an old version": Asked("GET", "/apis/scheduling.k8s.io/v1alpha1/namespaces/default/podgroups"),
    "a field of a selector": Asked("GET", f"{AT}/podgroups?fieldSelector=spec.a%3Db"),
}


def stored() -> Iterator[Asked]:
    for plural, kind, spec in (
        ("podgroups", "PodGroup", STORED),
        ("workloads", "Workload", STORED_WORKLOAD),
    ):
        body = {"apiVersion": API, "kind": kind, "metadata": {"name": "stored"}, "spec": spec}
        yield Asked("POST", f"{AT}/{plural}", json.dumps(body))


@pytest.fixture(scope="module")
def real(real_server: RealServer) -> Iterator[Client]:
    client = real_server.client
    try:
        client.request("GET", f"/apis/{API}")
    except RefusedError:
        pytest.skip(f"the API server does not serve {API}")
    for asked in stored():
        code, text = client.ask(*asked)
        assert code == 201, text
    yield client
    for obj in (*client.list(API, "podgroups"), *client.list(API, "workloads")):
        if obj["metadata"].get("finalizers"):
            client.patch(obj, {"metadata": {"finalizers": None}})
        client.delete(obj)


@pytest.fixture(scope="module")
def ours() -> Iterator[LiveServer]:
    with LiveServer() as live:
        for asked in stored():
            assert live.ask(*asked).code == 201
        yield live


@pytest.mark.parametrize("case", CASES)
def test_invalid_requests_are_answered_alike(case: str, real: Client, ours: LiveServer) -> None:
    asked = CASES[case]
    same_answer(ours.ask(*asked), real.ask(*asked))


def test_a_group_is_stored_alike(real: Client, ours: LiveServer) -> None:
    """With its defaults and the finalizer of its protection."""
    asked = Asked("GET", f"{AT}/podgroups/stored")
    theirs = json.loads(real.ask(*asked)[1])
    mine = ours.ask(*asked).body
    for each in (theirs, mine):
        for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            each["metadata"].pop(field, None)
    assert mine == theirs
