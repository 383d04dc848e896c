"""Other clients than kubectl: the official Python client, and an operator made with kopf."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.apiserver import LiveServer
from holdfast.local.apiserver.credentials import make_credentials

kopf: Any = pytest.importorskip("kopf")
kubernetes: Any = pytest.importorskip("kubernetes")

_PATIENCE = 30

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(credentials=make_credentials()) as server:
        yield server


@pytest.fixture
def config(live: LiveServer, tmp_path: Path) -> Path:
    return live.kubeconfig(tmp_path / "config")


@pytest.fixture
def plain() -> Iterator[LiveServer]:
    """Without TLS: there a connection is closed once both sides have agreed, and kopf, when it ends,
    does not wait for the other one."""
    with LiveServer() as server:
        yield server


@pytest.fixture
def client(config: Path) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(config)) as made:
        yield made


def test_the_python_client(client: Any) -> None:
    core, apps = kubernetes.client.CoreV1Api(client), kubernetes.client.AppsV1Api(client)
    container = kubernetes.client.V1Container(name="c", image="i")
    spec = kubernetes.client.V1PodSpec(containers=[container])
    metadata = kubernetes.client.V1ObjectMeta(name="typed", labels={"a": "b"})
    made = core.create_namespaced_pod("default", kubernetes.client.V1Pod(metadata=metadata, spec=spec))
    assert made.status.phase == "Pending"
    assert [each.metadata.name for each in core.list_pod_for_all_namespaces().items] == ["typed"]
    seen = kubernetes.watch.Watch().stream(
        core.list_namespaced_pod, "default", timeout_seconds=1, label_selector="a=b"
    )
    assert [(each["type"], each["object"].metadata.name) for each in seen] == [("ADDED", "typed")]
    core.patch_namespaced_pod("typed", "default", {"metadata": {"labels": {"c": "d"}}})
    assert core.read_namespaced_pod("typed", "default").metadata.labels == {"a": "b", "c": "d"}
    target = kubernetes.client.V1ObjectReference(kind="Node", name="n1")
    binding = kubernetes.client.V1Binding(
        metadata=kubernetes.client.V1ObjectMeta(name="typed"), target=target
    )
    core.create_namespaced_pod_binding("typed", "default", binding, _preload_content=False)
    assert core.read_namespaced_pod("typed", "default").spec.node_name == "n1"
    core.delete_namespaced_pod("typed", "default", grace_period_seconds=0)
    with pytest.raises(kubernetes.client.ApiException) as gone:
        core.read_namespaced_pod("typed", "default")
    assert (gone.value.status, gone.value.reason) == (404, "Not Found")
    assert apps.list_deployment_for_all_namespaces().items == []


def test_the_dynamic_client(client: Any) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(client)
    config_maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    body = {"metadata": {"name": "dynamic"}, "data": {"a": "b"}}
    config_maps.create(body=body, namespace="default")
    assert config_maps.get(name="dynamic", namespace="default").data.a == "b"


def test_a_kopf_operator(plain: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(plain.kubeconfig(tmp_path / "config")))
    plain.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
    registry = kopf.OperatorRegistry()
    handled = threading.Event()
    ready, stop = threading.Event(), threading.Event()

    def login(**how: Any) -> Any:
        return kopf.login_with_kubeconfig(**how)

    def created(spec: Any, patch: Any, **_: Any) -> None:
        patch.status["doubled"] = spec["size"] * 2

    def deleted(**_: Any) -> None:
        handled.set()

    kopf.on.login(registry=registry)(login)
    kopf.on.create("example.com", "v1", "widgets", registry=registry)(created)
    kopf.on.delete("example.com", "v1", "widgets", registry=registry)(deleted)

    async def operate() -> None:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        await kopf.operator(
            registry=registry,
            settings=settings,
            namespaces=["default"],
            standalone=True,
            ready_flag=ready,
            stop_flag=stop,
        )

    operator = threading.Thread(target=lambda: asyncio.run(operate()), daemon=True)
    operator.start()
    try:
        assert ready.wait(_PATIENCE)
        path = "/apis/example.com/v1/namespaces/default/widgets"
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
        with plain.watch(f"{path}?watch=1") as events:
            plain.post(path, {**body, "spec": {"size": 21}})
            doubled = next(
                each["object"]
                for each in events
                if (each["object"].get("status") or {}).get("doubled") is not None
            )
        assert doubled["status"]["doubled"] == 42
        assert doubled["metadata"]["finalizers"], "kopf wants to see it go"
        plain.delete(f"{path}/w")
        assert handled.wait(_PATIENCE)
    finally:
        stop.set()
        operator.join(_PATIENCE)
    assert plain.get(f"{path}/w").code == 404
