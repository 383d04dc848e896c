"""delete and deletecollection: preconditions, grace, finalizers, namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from harness.apiserver import CONFIG_MAPS, PODS, LiveServer
from harness.objects import Raw, config_map, pod
from holdfast.local.apiserver.api_state import ApiRequest
from holdfast.local.apiserver.request_info import DeleteOptions, ListOptions
from holdfast.local.apiserver.verbs.get import list_objects
from holdfast.local.apiserver.verbs.writes import delete_listed
from holdfast.local.store import Key


def bind(server: LiveServer, name: str, node: str = "n1") -> None:
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    assert server.post(f"{PODS}/{name}/binding", body).code == 201


def test_a_deletion_answers_with_a_status_that_names_the_object(server: LiveServer) -> None:
    uid = server.post(CONFIG_MAPS, config_map("gone")).body["metadata"]["uid"]
    answer = server.delete(f"{CONFIG_MAPS}/gone")
    assert answer.code == 200
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "gone", "kind": "configmaps", "uid": uid}
    assert server.delete(f"{CONFIG_MAPS}/gone").code == 404


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([1], "the object provided is unrecognized (must be of type DeleteOptions)"),
        ({"gracePeriodSeconds": "x"}, "DeleteOptions.gracePeriodSeconds of type int64"),
        ({"preconditions": 5}, "DeleteOptions.preconditions of type v1.Preconditions"),
        ({"orphanDependents": "x"}, "DeleteOptions.orphanDependents of type bool"),
    ],
)
def test_options_must_be_readable(server: LiveServer, options: Any, words: str) -> None:
    server.post(CONFIG_MAPS, config_map("stays"))
    answer = server.delete(f"{CONFIG_MAPS}/stays", options)
    assert answer.code == 400
    assert words in answer.message


def test_even_an_almost_empty_body_is_the_options(server: LiveServer) -> None:
    server.post(PODS, pod("brief"))
    bind(server, "brief")
    answer = server.delete(f"{PODS}/brief?gracePeriodSeconds=5", {})
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 30


@pytest.mark.parametrize(
    ("precondition", "words"),
    [
        ({"uid": "other"}, "the UID in the precondition (other) does not match the UID in record"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match"),
    ],
)
def test_preconditions_guard_against_deleting_another(
    server: LiveServer, precondition: dict[str, str], words: str
) -> None:
    server.post(CONFIG_MAPS, config_map("guarded"))
    answer = server.delete(f"{CONFIG_MAPS}/guarded", {"preconditions": precondition})
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert words in answer.message
    assert server.get(f"{CONFIG_MAPS}/guarded").code == 200


def test_finalizers_keep_an_object_until_the_last_is_taken_away(server: LiveServer) -> None:
    server.post(CONFIG_MAPS, config_map("kept", finalizers=["a.b/c"]))
    leaving = server.delete(f"{CONFIG_MAPS}/kept").body
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 0
    assert leaving["metadata"]["deletionTimestamp"]
    again = server.delete(f"{CONFIG_MAPS}/kept").body
    assert again["metadata"]["resourceVersion"] == leaving["metadata"]["resourceVersion"]
    more = server.patch(f"{CONFIG_MAPS}/kept", {"metadata": {"finalizers": ["a.b/c", "d.e/f"]}})
    assert (
        more.code,
        "no new finalizers can be added if the object is being deleted" in more.message,
    ) == (
        422,
        True,
    )
    assert server.patch(f"{CONFIG_MAPS}/kept", {"metadata": {"finalizers": None}}).code == 200
    assert server.get(f"{CONFIG_MAPS}/kept").code == 404


@pytest.mark.parametrize(
    ("policy", "finalizers"), [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])]
)
def test_propagation_is_left_to_the_garbage_collector(
    server: LiveServer, policy: str, finalizers: list[str]
) -> None:
    name = policy.lower()
    server.post(CONFIG_MAPS, config_map(name))
    answer = server.delete(f"{CONFIG_MAPS}/{name}", {"propagationPolicy": policy})
    assert answer.body["metadata"]["finalizers"] == finalizers
    assert server.delete(f"{CONFIG_MAPS}/{name}", {"propagationPolicy": "Background"}).code == 200
    assert server.get(f"{CONFIG_MAPS}/{name}").code == 404


def test_a_running_pod_is_given_time_to_stop(server: LiveServer) -> None:
    server.post(PODS, pod("running", terminationGracePeriodSeconds=40))
    bind(server, "running")
    leaving = server.delete(f"{PODS}/running").body["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 40
    later = server.delete(f"{PODS}/running?gracePeriodSeconds=90").body["metadata"]
    assert later["deletionGracePeriodSeconds"] == 40, "it can be made shorter, not longer"
    sooner = server.delete(f"{PODS}/running?gracePeriodSeconds=5").body["metadata"]
    assert sooner["deletionGracePeriodSeconds"] == 5
    assert sooner["deletionTimestamp"] < leaving["deletionTimestamp"]
    assert server.delete(f"{PODS}/running?gracePeriodSeconds=0").code == 200
    assert server.get(f"{PODS}/running").code == 404


def test_a_pod_that_runs_nowhere_goes_at_once(server: LiveServer) -> None:
    server.post(PODS, pod("waiting"))
    assert server.delete(f"{PODS}/waiting").body["kind"] == "Pod"
    assert server.get(f"{PODS}/waiting").code == 404


def test_a_collection_is_deleted_by_selector(server: LiveServer) -> None:
    for name, label in (("c1", "x"), ("c2", "x"), ("c3", "y")):
        server.post(CONFIG_MAPS, config_map(name, labels={"l": label}))
    answer = server.delete(f"{CONFIG_MAPS}?labelSelector=l%3Dx")
    assert answer.names == ["c1", "c2"]
    assert server.get(f"{CONFIG_MAPS}?labelSelector=l").names == ["c3"]


def test_a_namespace_leaves_when_it_is_finalized(server: LiveServer) -> None:
    made = server.post("/api/v1/namespaces", {"metadata": {"name": "leaving"}}).body
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "leaving"}
    assert server.delete("/api/v1/namespaces/leaving").body["status"]["phase"] == "Terminating"
    late = server.post("/api/v1/namespaces/leaving/pods", pod("late"))
    assert (late.code, late.reason) == (403, "Forbidden")
    assert late.message == (
        'pods "late" is forbidden: unable to create new content in namespace leaving because it '
        "is being "
        "terminated"
    )
    leaving = server.get("/api/v1/namespaces/leaving").body
    done = server.put("/api/v1/namespaces/leaving/finalize", {**leaving, "spec": {"finalizers": []}})
    assert done.code == 200
    assert server.get("/api/v1/namespaces/leaving").code == 404


def test_the_default_namespace_stays(server: LiveServer) -> None:
    answer = server.delete("/api/v1/namespaces/default")
    assert (answer.code, answer.message) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


def test_of_a_collection_what_came_under_an_old_name_stays(server: LiveServer) -> None:
    """Others may write while a long list is deleted."""
    cluster = server.cluster
    type = cluster.catalogue.resource("", "v1", "configmaps")
    assert type is not None

    def between() -> list[str]:
        call = ApiRequest(cluster, type, "piecemeal")
        for name in ("a", "b", "c"):
            cluster.store.create(Key("", "ConfigMap", "piecemeal", name), _made(name, "1"))
        steps = delete_listed(call, list_objects(call, ListOptions()), DeleteOptions())
        next(steps)
        cluster.store.delete(Key("", "ConfigMap", "piecemeal", "b"))
        cluster.store.delete(Key("", "ConfigMap", "piecemeal", "c"))
        cluster.store.create(Key("", "ConfigMap", "piecemeal", "c"), _made("c", "2"))
        assert len([*steps]) == 2
        left = cluster.store.list("", "ConfigMap", "piecemeal")
        return [raw["metadata"]["uid"] for raw in left]

    assert server.run(between) == ["2"]


def _made(name: str, uid: str) -> Raw:
    return {"metadata": {"name": name, "namespace": "piecemeal", "uid": uid}}
