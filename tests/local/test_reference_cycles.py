"""What is kept for a class of pods goes when the class does, without waiting for Python to find cycles:
of what is old it looks for them once in an hour, and by then there are tens of MiB."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from harness.embedded_cluster import SteppedCluster
from holdfast.local.store import pod_key
from holdfast.scheduler.framework.feasibility.column import ClassColumn


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def owned(it: SteppedCluster) -> None:
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    it.create(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "r"},
            "spec": {
                "template": {"spec": {"containers": [container]}},
                "owners": owners,
                "allocateOnce": False,
            },
        }
    )


@pytest.mark.parametrize("reserved", [True, False])
@pytest.mark.parametrize("cpu", ["1", "100"])
@pytest.mark.usefixtures("no_collection")
def test_the_column_of_a_class_goes_with_the_class(reserved: bool, cpu: str) -> None:
    it = SteppedCluster()
    it.create_node("n")
    cluster = it.cluster.world.scheduler.cluster
    cluster.classes._keep = 0
    if reserved:
        owned(it)
    it.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "labels": {"app": "web"}},
            "spec": {
                "schedulerName": "holdfast-scheduler",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
            },
            "status": {"phase": "Pending"},
        }
    )
    columns = [
        weakref.ref(column)
        for column in gc.get_objects()
        if issubclass(type(column), ClassColumn)
        and column.owned is reserved
        and column._cluster is cluster
    ]
    assert columns
    it.store.delete(pod_key("default", "p"))
    it.settle()
    assert not any(each() for each in columns)
