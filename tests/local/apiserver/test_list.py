"""list: selectors, pages, revisions, forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from harness.apiserver import CONFIG_MAPS, PODS, TABLE, LiveServer
from harness.objects import config_map, pod
from holdfast.local.apiserver.responses import YAML, to_bytes
from holdfast.local.apiserver.selection import select
from holdfast.local.store import Store
from holdfast.machinery.schema.catalogue import Catalogue


@pytest.fixture(scope="module")
def stocked() -> Iterator[LiveServer]:
    with LiveServer() as server:
        for name, labels in (
            ("a", {"app": "web", "tier": "1"}),
            ("b", {"app": "web", "tier": "2"}),
            ("c", {"app": "db"}),
            ("d", {}),
        ):
            server.post(PODS, {**pod(name), "metadata": {"name": name, "labels": labels}})
        server.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
        server.post("/api/v1/namespaces/other/pods", pod("z"))
        body = {"metadata": {"name": "b"}, "target": {"kind": "Node", "name": "n1"}}
        server.post(f"{PODS}/b/binding", body)
        yield server


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["a", "b", "c", "d"]),
        ("labelSelector=app%3Dweb", ["a", "b"]),
        ("labelSelector=app!%3Dweb", ["c", "d"]),
        ("labelSelector=app+in+(web,db),!tier", ["c"]),
        ("labelSelector=tier%3E1", ["b"]),
        ("fieldSelector=metadata.name%3Dc", ["c"]),
        ("fieldSelector=spec.nodeName%3Dn1", ["b"]),
        ("fieldSelector=spec.nodeName%3D", ["a", "c", "d"]),
        ("fieldSelector=status.phase!%3DPending", []),
        ("fieldSelector=spec.hostNetwork%3Dfalse,metadata.name!%3Da", ["b", "c", "d"]),
        ("fieldSelector=metadata.name!%3Da,metadata.name!%3Dc", ["b", "d"]),
        ("fieldSelector=metadata.name%3Da,metadata.name%3Da", ["a"]),
        ("fieldSelector=metadata.name%3Da,metadata.name%3Dc", []),
        ("fieldSelector=metadata.name%3Da,metadata.name!%3Da", []),
        ("fieldSelector=metadata.name%3Da,metadata.name!%3Dc", ["a"]),
        ("labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dn1", ["b"]),
    ],
)
def test_selectors(stocked: LiveServer, query: str, names: list[str]) -> None:
    assert stocked.get(f"{PODS}?{query}").names == names


def test_all_namespaces(stocked: LiveServer) -> None:
    assert stocked.get("/api/v1/pods").names == ["a", "b", "c", "d", "z"]
    assert stocked.get("/api/v1/pods?fieldSelector=metadata.namespace%3Dother").names == ["z"]
    assert stocked.get("/api/v1/namespaces/nowhere/pods").names == []


def test_items_of_builtin_lists_do_not_repeat_what_they_are(stocked: LiveServer) -> None:
    body = stocked.get(PODS).body
    assert (body["kind"], body["apiVersion"]) == ("PodList", "v1")
    assert not any("kind" in each for each in body["items"])


def test_pages_show_one_moment() -> None:
    with LiveServer() as server:
        for name in "abcde":
            server.post(CONFIG_MAPS, config_map(name))
        first = server.get(f"{CONFIG_MAPS}?limit=2")
        assert (first.names, first.body["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
        server.delete(f"{CONFIG_MAPS}/c")
        server.post(CONFIG_MAPS, config_map("bb"))
        token = first.body["metadata"]["continue"]
        second = server.get(f"{CONFIG_MAPS}?limit=2&continue={token}")
        assert (second.names, second.revision) == (["c", "d"], first.revision)
        token = second.body["metadata"]["continue"]
        third = server.get(f"{CONFIG_MAPS}?limit=2&continue={token}")
        assert third.names == ["e"]
        assert "continue" not in third.body["metadata"]
        assert server.get(CONFIG_MAPS).names == ["a", "b", "bb", "d", "e"]


def test_a_forgotten_page_can_be_gone_on_from() -> None:
    with LiveServer() as server:
        for name in "abcd":
            server.post(CONFIG_MAPS, config_map(name))
        token = server.get(f"{CONFIG_MAPS}?limit=2").body["metadata"]["continue"]
        server.post(CONFIG_MAPS, config_map("e"))
        server.run(lambda: server.cluster.store.compact(server.cluster.store.revision))
        gone = server.get(f"{CONFIG_MAPS}?limit=2&continue={token}")
        assert (gone.code, gone.reason) == (410, "Expired")
        assert gone.message.startswith(
            "The provided continue parameter is too old to display a consistent"
        )
        token = gone.body["metadata"]["continue"]
        assert server.get(f"{CONFIG_MAPS}?limit=10&continue={token}").names == ["c", "d", "e"]


def test_revisions_past_present_and_future() -> None:
    with LiveServer() as server:
        before = server.post(CONFIG_MAPS, config_map("a")).revision
        server.post(CONFIG_MAPS, config_map("b"))
        exact = server.get(f"{CONFIG_MAPS}?resourceVersion={before}&resourceVersionMatch=Exact")
        assert (exact.names, exact.revision) == (["a"], before)
        for query in (f"resourceVersion={before}", "resourceVersion=0"):
            assert server.get(f"{CONFIG_MAPS}?{query}").names == ["a", "b"]
        future = server.get(f"{CONFIG_MAPS}?resourceVersion=999999")
        assert (future.code, future.reason) == (504, "Timeout")
        assert future.message.startswith("Timeout: Too large resource version: 999999, current: ")
        assert future.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert server.get(f"{CONFIG_MAPS}/a?resourceVersion=999999").code == 504
        server.run(lambda: server.cluster.store.compact(server.cluster.store.revision))
        past = server.get(f"{CONFIG_MAPS}?resourceVersion={before}&resourceVersionMatch=Exact")
        assert (past.code, past.reason, past.message) == (
            410,
            "Expired",
            "The resourceVersion for the provided list is too old.",
        )


def test_tables(stocked: LiveServer) -> None:
    table = stocked.get(PODS, TABLE).body
    assert table["kind"] == "Table"
    shown = [(each["name"], each["priority"]) for each in table["columnDefinitions"]]
    assert shown == [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ]
    row = table["rows"][1]
    assert row["cells"][:4] == ["b", "0/1", "Pending", "0"]
    assert row["cells"][5:] == ["<none>", "n1", "<none>", "<none>"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    bare = stocked.get(f"{PODS}?includeObject=None", TABLE).body
    assert bare["rows"][0]["object"] is None
    whole = stocked.get(f"{PODS}/b?includeObject=Object", TABLE).body
    assert whole["rows"][0]["object"]["spec"]["nodeName"] == "n1"
    wrong = stocked.get(f"{PODS}?includeObject=Foo", TABLE)
    assert (wrong.code, "must be 'Metadata', 'Object', 'None', or empty" in wrong.message) == (
        400,
        True,
    )


def test_partial_metadata(stocked: LiveServer) -> None:
    one = stocked.get(f"{PODS}/a", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").body
    assert (one["kind"], one["metadata"]["name"], "spec" in one) == (
        "PartialObjectMetadata",
        "a",
        False,
    )
    many = stocked.get(PODS, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").body
    assert [each["kind"] for each in many["items"]] == ["PartialObjectMetadata"] * 4
    wrong = stocked.get(PODS, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert wrong.code == 406


def test_lists_in_yaml(stocked: LiveServer) -> None:
    answer = stocked.get(f"{PODS}?limit=1", "application/yaml")
    assert answer.media == "application/yaml"
    assert answer.text.startswith("apiVersion: v1\nitems:\n")


def test_a_server_without_history_still_lists() -> None:
    with LiveServer(store=Store(keep=0)) as server:
        server.post(CONFIG_MAPS, config_map("a"))
        assert server.get(CONFIG_MAPS).names == ["a"]


def test_long_lists_are_the_same_yaml_in_pieces() -> None:
    items = [{"metadata": {"name": f"a{i}", "text": "ü: '\n"}, "n": [i, []]} for i in range(75)]
    listed = {"kind": "L", "items": items, "apiVersion": "v1", "z": {}}
    documents: tuple[object, ...] = (listed, {"items": []}, items)
    for document in documents:
        whole = yaml.safe_dump(document, sort_keys=True, allow_unicode=True)
        assert to_bytes(document, YAML).decode() == whole


def test_what_objects_share_is_written_out(server: LiveServer) -> None:
    for name in ("shared-1", "shared-2"):
        server.post(PODS, pod(name))
    answer = server.get(f"{PODS}?limit=100", "application/yaml")
    assert answer.code == 200
    assert len(yaml.safe_load(answer.text)["items"]) >= 2
    assert "&id" not in answer.text and "*id" not in answer.text


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("status.podIPs=1.1.1.1", True),
        ("status.podIPs=1.1.1.1,status.podIPs=2.2.2.2", True),
        ("status.podIPs=1.1.1.1,status.podIPs=3.3.3.3", False),
        ("status.podIPs!=3.3.3.3", True),
        ("status.podIPs!=3.3.3.3,status.podIPs!=2.2.2.2", False),
    ],
)
def test_pods_are_selected_by_any_of_their_addresses(text: str, matches: bool) -> None:
    type = Catalogue().resource("", "v1", "pods")
    assert type is not None
    pod = {"metadata": {}, "status": {"podIPs": [{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]}}
    assert select(type, "", text).matches(pod) is matches


def test_a_field_is_looked_at_once_however_often_it_is_named() -> None:
    type = Catalogue().resource("", "v1", "pods")
    assert type is not None

    class Counted(dict[str, Any]):
        looks = 0

        def get(self, key: str, default: Any = None) -> Any:
            self.looks += 1
            return super().get(key, default)

    pod = Counted(metadata={"name": "a"})
    text = ",".join(f"metadata.name!=p{number}" for number in range(1_000))
    assert select(type, "", text).matches(pod)
    assert pod.looks == 1
