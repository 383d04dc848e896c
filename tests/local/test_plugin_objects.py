"""Objects that only plugins read, as an embedded cluster brings them to its scheduler."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from harness.embedded_cluster import SteppedCluster
from harness.team_quotas import QUOTA, TeamQuotas, config, quota, quota_definition
from holdfast.api.raw_objects import ObjectKind
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key, Raw, Store
from holdfast.scheduler.framework.config import load
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE

BETA = ObjectKind("example.com", "v1beta1", "TeamQuota", "teamquotas")
DEFINITION = Key("apiextensions.k8s.io", "CustomResourceDefinition", "", "teamquotas.example.com")


class Beta(Plugin):
    """Reads the same kind in another version."""

    name = "Beta"
    reads_objects: ClassVar[tuple[ObjectKind, ...]] = (BETA,)

    def pre_enqueue(self, pod: Any) -> str:
        return ""


@pytest.fixture
def it() -> SteppedCluster:
    return driven(Store())


def driven(store: Store) -> SteppedCluster:
    registry = Registry([*IN_TREE, TeamQuotas, Beta])
    mapping = config()
    mapping["profiles"][0]["plugins"]["multiPoint"]["enabled"].append({"name": "Beta"})
    return SteppedCluster(store, setup=SchedulerFactory(load(mapping, registry.implements()), registry))


def seen(it: SteppedCluster, kind: ObjectKind) -> dict[str, str]:
    """The teams, and the apiVersion of their quotas."""
    known = it.cluster.world.scheduler.cluster.raw_objects.of(kind)
    return {name: raw["apiVersion"] for (_, name), raw in known.items()}


def definition(**served: bool) -> Raw:
    raw = quota_definition()
    [only] = raw["spec"]["versions"]
    raw["spec"]["versions"] = [{**only, "name": name, "served": each} for name, each in served.items()]
    raw["metadata"]["uid"] = "1"
    return raw


def put(it: SteppedCluster, raw: Raw) -> None:
    put_in = it.store.update if DEFINITION in it.store else it.store.create
    put_in(DEFINITION, raw)
    it.settle()


def test_each_version_a_plugin_reads_is_fed_if_it_is_served(it: SteppedCluster) -> None:
    put(it, definition(v1=True, v1beta1=False))
    it.create(quota("a"))
    assert (seen(it, QUOTA), seen(it, BETA)) == ({"a": "example.com/v1"}, {})
    put(it, definition(v1=True, v1beta1=True))
    assert seen(it, BETA) == {"a": "example.com/v1beta1"}
    it.create(quota("b"))
    assert list(seen(it, QUOTA)) == list(seen(it, BETA)) == ["a", "b"]
    put(it, definition(v1=False, v1beta1=True))
    assert (list(seen(it, QUOTA)), list(seen(it, BETA))) == ([], ["a", "b"])
    it.delete(Key("example.com", "TeamQuota", "default", "a"))
    assert list(seen(it, BETA)) == ["b"]


def test_a_restarted_scheduler_sees_the_same(it: SteppedCluster) -> None:
    put(it, definition(v1=True, v1beta1=False))
    it.create(quota("a"))
    it.cluster.world.restart_scheduler()
    assert (list(seen(it, QUOTA)), seen(it, BETA)) == (["a"], {})


def test_so_does_a_cluster_that_finds_them_in_its_store(it: SteppedCluster) -> None:
    it.create(quota("a"))
    put(it, definition(v1=True, v1beta1=False))
    again = driven(it.store)
    assert (list(seen(again, QUOTA)), seen(again, BETA)) == (["a"], {})


def test_kinds_without_a_definition_are_fed_as_they_are(it: SteppedCluster) -> None:
    it.create(quota("a"))
    assert list(seen(it, QUOTA)) == list(seen(it, BETA)) == ["a"]
    put(it, definition(v1=True))
    assert (list(seen(it, QUOTA)), seen(it, BETA)) == (["a"], {})
    it.delete(DEFINITION)
    assert list(seen(it, BETA)) == ["a"]


def test_an_invalid_object_counts_as_absent(it: SteppedCluster) -> None:
    made = it.create(quota("a"))
    key = Key("example.com", "TeamQuota", "default", "a")
    it.store.update(key, {**made, "metadata": {**made["metadata"], "labels": ["x"]}})
    it.settle()
    assert seen(it, QUOTA) == {}
    events = [raw for raw in it.store.scan("", "Event") if raw["reason"] == "InvalidTeamQuota"]
    assert events and events[0]["involvedObject"]["apiVersion"].startswith("example.com/")
