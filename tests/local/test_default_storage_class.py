"""The storage class `standard` of `holdfast up`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from harness.objects import pod
from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key
from holdfast.local.up import Up, UpSettings

_CLASS = ("storage.k8s.io", "StorageClass")


def _up(folder: Path, documents: Sequence[Document] = ()) -> Up:
    settings = UpSettings(
        SchedulerFactory.of(),
        folder / "kubeconfig",
        nodes=1,
        documents=documents,
        folder=folder / "data",
    )
    return Up(settings)


def _classes(up: Up) -> list[str]:
    return [each["metadata"]["name"] for each in up.store.list(*_CLASS)]


def test_a_claim_without_a_class_gets_a_volume_with_its_first_pod(tmp_path: Path) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    up = _up(tmp_path)
    key = Key("", "PersistentVolumeClaim", "default", "c")
    try:
        objects = up.cluster.world.objects
        objects.submit(claim)
        asyncio.run(up.cluster.quiet())
        found = up.store.get(key)
        assert found is not None
        assert (found["spec"]["storageClassName"], found["status"]["phase"]) == ("standard", "Pending")
        objects.submit(pod("p", volumes=volumes))
        asyncio.run(up.cluster.quiet())
        found = up.store.get(key)
        assert found is not None and found["status"]["phase"] == "Bound"
    finally:
        up.store.close()


def test_claims_that_controllers_create_have_the_class_from_the_start(tmp_path: Path) -> None:
    """Without it, their pods would be refused once, with a warning."""
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    labels = {"app": "db"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "serviceName": "db",
            "selector": {"matchLabels": labels},
            "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": wanted}],
        },
    }
    scratch = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": wanted}}}
    up = _up(tmp_path)
    try:
        objects = up.cluster.world.objects
        objects.submit(stateful_set)
        objects.submit(pod("p", volumes=[scratch]))
        asyncio.run(up.cluster.quiet())
        claims = up.store.list("", "PersistentVolumeClaim")
        assert {each["metadata"]["name"]: each["status"]["phase"] for each in claims} == {
            "data-db-0": "Bound",
            "p-v": "Bound",
        }
        events = up.store.list("", "Event")
        assert events
        assert not [each for each in events if each["reason"] == "FailedScheduling"]
    finally:
        up.store.close()


def test_a_deleted_class_stays_deleted(tmp_path: Path) -> None:
    up = _up(tmp_path)
    assert _classes(up) == ["standard"]
    up.store.delete(Key(*_CLASS, "", "standard"))
    up.store.close()
    again = _up(tmp_path)
    assert _classes(again) == []
    again.store.close()


def test_manifests_with_classes_have_no_other(tmp_path: Path) -> None:
    own = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "own"},
        "provisioner": "csi.example.com",
    }
    up = _up(tmp_path, [Document("own.yaml", 1, 1, own)])
    assert _classes(up) == ["own"]
    up.store.close()
