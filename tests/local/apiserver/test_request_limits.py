"""Large requests: what is refused, in which words, and that other requests are served meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.apiserver import LiveServer
from harness.objects import config_map, pod
from holdfast.local.apiserver.api_state import ApiRequest, ApiState
from holdfast.local.apiserver.request_bodies import read_object
from holdfast.local.apiserver.selection import Selection
from holdfast.local.apiserver.verbs import subresources as scaling
from holdfast.local.apiserver.workers import LARGE, Workers, Written
from holdfast.local.clock import RealClock
from holdfast.local.store import Key, Store, open_store
from holdfast.machinery.status import StatusError

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
YAML = "application/yaml"
KEY = Key("", "ConfigMap", "default", "a")


def large(name: str, size: int) -> dict[str, Any]:
    env = [{"name": "A", "value": "x" * size}]
    return pod(name, containers=[{"name": "c", "image": "i", "env": env}])


def cluster() -> ApiState:
    return ApiState(Store(), RealClock())


def config_maps(of: ApiState) -> ApiRequest:
    type = of.catalogue.resource("", "v1", "configmaps")
    assert type is not None
    return ApiRequest(of, type, "default", "a")


def test_an_object_is_as_large_as_etcd_takes(server: LiveServer) -> None:
    assert server.post(PODS, large("fits", 1_400_000)).code == 201
    refused = server.post(PODS, large("too-large", 1_600_000))
    assert (refused.code, refused.message) == (500, "etcdserver: request is too large")
    assert server.get(f"{PODS}/too-large").code == 404


def test_what_takes_less_capacity_in_etcd_than_as_json_is_stored(server: LiveServer) -> None:
    text = "\n" * 1_000_000
    kept = config_map("lines") | {"data": {"lines": text}}
    assert len(json.dumps(kept)) > 1_900_000
    assert server.post(MAPS, kept).code == 201
    assert server.get(f"{MAPS}/lines").body["data"]["lines"] == text


def test_a_large_object_is_changed_and_listed_as_any_other(server: LiveServer) -> None:
    made = server.post(PODS, large("big", 200_000))
    assert made.code == 201
    revision = int(made.revision)
    patched = server.patch(f"{PODS}/big", {"metadata": {"labels": {"a": "b"}}})
    assert patched.body["metadata"]["labels"] == {"a": "b"}
    assert int(patched.revision) > revision
    assert (
        server.patch(f"{PODS}/big", {"metadata": {"labels": {"a": "b"}}}).revision == patched.revision
    )
    stale = {**patched.body, "metadata": {**patched.body["metadata"], "resourceVersion": str(revision)}}
    assert server.put(f"{PODS}/big", stale).reason == "Conflict"
    assert server.post(PODS, large("big", 200_000)).reason == "AlreadyExists"
    assert "big" in server.get(PODS).names
    table = server.get(f"{PODS}/big", "application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table.body["rows"][0]["cells"][0] == "big"
    assert "name: big" in server.get(f"{PODS}/big", YAML).text
    dry = server.post(f"{PODS}?dryRun=All", large("dry", 200_000))
    assert dry.code == 201
    assert server.get(f"{PODS}/dry").code == 404
    assert server.delete(f"{PODS}/big").code == 200


def test_the_loop_goes_on_while_a_large_request_is_worked_out() -> None:
    async def scenario() -> None:
        of = cluster()
        workers = Workers(of.store)
        served = threading.Event()

        def verb(call: ApiRequest) -> Written:
            assert served.wait(30), "no other request was served"
            return call.cluster.store.create(call.key, {"metadata": {"name": "a"}}), True

        waiting = asyncio.create_task(workers.write(config_maps(of), LARGE + 1, verb))
        await asyncio.sleep(0)
        assert of.store.get(KEY) is None
        served.set()
        raw, new = await waiting
        workers.close()
        assert new and raw is of.store.get(KEY)
        assert raw["metadata"]["resourceVersion"] == "1"

    asyncio.run(scenario())


def test_a_large_request_is_worked_out_again_after_another_write() -> None:
    async def scenario() -> None:
        of = cluster()
        of.store.create(KEY, {"metadata": {"name": "a"}, "data": {"n": "0"}})
        workers = Workers(of.store)
        tries: list[str] = []
        began, written = threading.Event(), threading.Event()

        def verb(call: ApiRequest) -> Written:
            before = call.cluster.store.get(call.key)
            assert before is not None
            tries.append(before["data"]["n"])
            call.warn("said once")
            began.set()
            assert written.wait(30)
            after = {**before, "data": {**before["data"], "mine": "1"}}
            return call.cluster.store.update(call.key, after), False

        call = config_maps(of)
        waiting = asyncio.create_task(workers.write(call, LARGE + 1, verb))
        await asyncio.to_thread(began.wait, 30)
        of.store.update(KEY, {"metadata": {"name": "a"}, "data": {"n": "1"}})
        written.set()
        raw, _ = await waiting
        workers.close()
        assert tries == ["0", "1"]
        assert raw["data"] == {"n": "1", "mine": "1"}
        assert call.warnings == ["said once"]

    asyncio.run(scenario())


def test_large_requests_that_depend_on_each_other_do_not_starve() -> None:
    """Each goes through what the others write, as definitions do: one that was overtaken is next."""

    async def scenario() -> None:
        of = cluster()
        workers = Workers(of.store)
        tries: Counter[str] = Counter()

        def writing(name: str) -> Callable[[ApiRequest], Written]:
            def verb(call: ApiRequest) -> Written:
                tries[name] += 1
                call.cluster.store.scan("", "ConfigMap")
                for _ in range(20):
                    time.sleep(0)  # the other thread has its turn
                key = KEY._replace(name=name)
                return call.cluster.store.create(key, {"metadata": {"name": name}}), True

            return verb

        names = [f"m{i}" for i in range(40)]
        waiting = [workers.write(config_maps(of), LARGE + 1, writing(name)) for name in names]
        await asyncio.gather(*waiting)
        workers.close()
        assert of.store.count("", "ConfigMap") == len(names)
        assert max(tries.values()) <= 2

    asyncio.run(scenario())


def test_a_small_change_of_a_large_object_is_worked_out_beside_the_loop(tmp_path: Path) -> None:
    """However it came to be large, and whether or not anybody has read it since a restart."""

    async def scenario() -> None:
        threads: list[str] = []

        def verb(call: ApiRequest) -> Written:
            threads.append(threading.current_thread().name)
            raw = call.cluster.store.get(call.key)
            assert raw is not None
            return raw, False

        store = open_store(tmp_path)
        workers = Workers(store)
        of = ApiState(store, RealClock())
        main = threading.current_thread().name
        store.create(KEY, {"metadata": {"name": "a"}})
        await workers.write(config_maps(of), 10, verb)
        store.update(KEY, {"metadata": {"name": "a"}, "data": {f"k{i}": "" for i in range(2_000)}})
        await workers.write(config_maps(of), 10, verb)
        workers.close()
        store.close()
        store = open_store(tmp_path)
        workers = Workers(store)
        of = ApiState(store, RealClock())
        await workers.write(config_maps(of), 10, verb)
        assert workers.is_large(KEY)
        store.delete(KEY)
        assert not workers.is_large(KEY), "what is deleted is forgotten"
        workers.close()
        store.close()
        assert [name == main for name in threads] == [True, False, False]

    asyncio.run(scenario())


def test_a_list_of_few_large_objects_is_as_much_work_as_one_of_many() -> None:
    of = cluster()
    workers, type = Workers(of.store), config_maps(of).type
    keys = [KEY._replace(name=f"m{i}") for i in range(40)]
    for key in keys:
        of.store.create(key, {"metadata": {"name": key.name}, "data": {"a": "b"}})
    assert not workers.is_heavy(keys, type)
    for key in keys:
        many = {f"k{i}": "" for i in range(3_000)}
        of.store.update(key, {"metadata": {"name": key.name}, "data": many})
    assert workers.is_heavy(keys, type)


@pytest.mark.parametrize("kind", ["unknown", "duplicate"])
def test_warnings_are_bounded(server: LiveServer, kind: str) -> None:
    body = pod(f"warned-{kind}")
    if kind == "unknown":
        body["spec"] |= {f"unknown{i}": 1 for i in range(50_000)}
        text = json.dumps(body)
    else:
        twice = ",".join('"restartPolicy":"Always"' for _ in range(50_000))
        text = json.dumps(body).replace('"spec": {', '"spec": {' + twice + ",")
    answer = server.ask("POST", f"{PODS}?fieldValidation=Warn", text.encode())
    assert answer.code == 201
    assert 1 <= len(answer.warnings) <= 64
    assert sum(map(len, answer.warnings)) < 6000


def test_errors_about_unknown_fields_are_bounded(server: LiveServer) -> None:
    body = pod("strict")
    body["spec"] |= {f"unknown{i}": 1 for i in range(50_000)}
    answer = server.post(f"{PODS}?fieldValidation=Strict", body)
    assert answer.code == 400
    assert answer.message.count("unknown field") == 100


def test_of_several_yaml_documents_the_first_is_read(server: LiveServer) -> None:
    first = json.dumps(config_map("first"))
    text = first + "\n---\n" + "}" * 1000 + "\n---\n" * 300_000
    assert server.ask("POST", MAPS, text.encode(), YAML).code == 201
    assert server.get(f"{MAPS}/first").code == 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("".join(f"%TAG !a{i}! tag:x,{i}:\n" for i in range(100_000)) + "---\na: b", "more than 100"),
        ("[" * 1_000_000, "nested deeper than 64 levels"),
        ("- " * 1_000_000, "nested deeper than 64 levels"),
        ("a: &x [y]\nb: [" + "*x, " * 200_000 + "]", "more than 100 aliases"),
    ],
)
def test_yaml_that_would_take_long_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatusError, match=message) as error:
        read_object(text.encode(), YAML, "ConfigMap")
    assert error.value.code == 400


@pytest.mark.parametrize("depth", [250, 100_000])
def test_json_that_nests_too_deep_is_refused(server: LiveServer, depth: int) -> None:
    text = '{"apiVersion":"v1","kind":"ConfigMap","data":' + '{"a":' * depth + "1" + "}" * depth + "}"
    answer = server.ask("POST", MAPS, text.encode())
    assert answer.code == 400
    assert "exceeded max depth" in answer.message
    options = server.ask("DELETE", f"{MAPS}/none", text.encode())
    assert options.code == 400


def test_an_applied_configuration_is_the_same_as_json_and_as_yaml(server: LiveServer) -> None:
    apply = "application/apply-patch+yaml"
    as_json = json.dumps(config_map("applied") | {"data": {"a": "1"}}).encode()
    made = server.ask("PATCH", f"{MAPS}/applied?fieldManager=m", as_json, apply)
    assert made.code == 201
    as_yaml = b"# as yaml\n" + as_json
    again = server.ask("PATCH", f"{MAPS}/applied?fieldManager=m", as_yaml, apply)
    assert again.body["metadata"] == made.body["metadata"]
    twice = as_json.replace(b'"a": "1"', b'"a": "1", "a": "2"')
    refused = server.ask("PATCH", f"{MAPS}/applied?fieldManager=m", twice, apply)
    assert refused.code == 400


def _threads_of(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[str]:
    """The threads in which a function is called from now on."""
    threads: list[str] = []
    function = getattr(owner, name)

    def called(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return function(*arguments)

    monkeypatch.setattr(owner, name, called)
    return threads


@pytest.mark.parametrize("method", ["put", "patch"])
def test_a_large_object_is_scaled_beside_the_loop(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    path, labels = "/apis/apps/v1/namespaces/default/deployments", {"a": "b"}
    spec = large("", 200_000)["spec"]
    made = server.post(
        path,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"by-{method}"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    )
    assert made.code == 201
    threads = _threads_of(monkeypatch, scaling, f"{method}_scale")
    where = f"{path}/by-{method}/scale"
    sent = {**server.get(where).body, "spec": {"replicas": 3}}
    scaled = (
        server.put(where, sent)
        if method == "put"
        else server.patch(where, {"spec": {"replicas": 3}}, "application/merge-patch+json")
    )
    assert (scaled.code, scaled.body["kind"], scaled.body["spec"]) == (200, "Scale", {"replicas": 3})
    assert int(scaled.revision) > int(made.revision)
    assert server.get(f"{path}/by-{method}").body["spec"]["replicas"] == 3
    assert [name.partition("_")[0] for name in threads] == ["request"]
    again = server.patch(where, {"spec": {"replicas": 3}}, "application/merge-patch+json")
    assert again.revision == scaled.revision


def test_many_objects_are_searched_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveServer() as server:
        for number in range(5):
            assert server.post(MAPS, config_map(f"m{number}")).code == 201
        threads = _threads_of(monkeypatch, Selection, "matches")
        monkeypatch.setattr("holdfast.local.apiserver.object_handler.MANY", 3)
        found = server.get(f"{MAPS}?labelSelector=!a")
        assert len(found.names) >= 5
        assert {name.partition("_")[0] for name in threads} == {"request"}
        monkeypatch.setattr("holdfast.local.apiserver.object_handler.MANY", 500)
        threads.clear()
        assert server.get(f"{MAPS}?labelSelector=!a").names == found.names
        assert not any(name.startswith("request") for name in threads)
