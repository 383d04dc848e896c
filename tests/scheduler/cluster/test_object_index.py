"""Objects that only plugins read: what is kept of them, and whom their changes wake."""

from __future__ import annotations

import copy
import json
from typing import Any, ClassVar

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver
from harness.team_quotas import FULL, QUOTA, TeamQuotas, quota, quota_object
from holdfast.api.errors import InvalidObject
from holdfast.api.raw_objects import ObjectKind, RawObject, raw_object
from holdfast.scheduler.cluster.decisions import Emit
from holdfast.scheduler.cluster.events import Malformed
from holdfast.scheduler.cluster.object_index import ObjectsOfKind
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.registry import PluginError, Registry
from reference.setup import Setup, document

ALONE = "0/1 nodes are available: "


def driven(*plugins: type[Plugin]) -> Driver:
    config = document([Setup()])
    enabled = config["profiles"][0]["plugins"]["multiPoint"]["enabled"]
    enabled += [{"name": plugin.name} for plugin in plugins]
    return Driver((Setup(),), *plugins, config=config)


def kept(driver: Driver) -> ObjectsOfKind:
    return driver.scheduler.cluster.raw_objects.of(QUOTA)


def of_team(name: str, team: str = "a") -> Any:
    return make_pod(name).label("team", team).cpu("1").obj()


def test_an_object_wakes_the_pods_that_wait_for_it() -> None:
    driver = driven(TeamQuotas).add(make_node("n").allocatable(cpu="4").obj())
    assert driver.add(of_team("p")).messages(0.0) == {"p": f"{ALONE}no TeamQuota a."}
    assert driver.add(quota_object("b")).binds(5.0) == {}
    assert driver.add(quota_object("a")).binds(10.0) == {"p": "n"}


def test_an_update_and_a_deletion_count_from_then_on() -> None:
    driver = driven(TeamQuotas).add(make_node("n").allocatable(cpu="9").obj(), quota_object("a"))
    assert driver.add(of_team("p1")).binds(0.0) == {"p1": "n"}
    assert driver.add(of_team("p2")).messages(1.0) == {"p2": f"{ALONE}1 {FULL}."}
    assert driver.update(quota_object("a", maxCPU=2)).binds(20.0) == {"p2": "n"}
    driver.delete(quota_object("a", maxCPU=2))
    assert driver.add(of_team("p3")).messages(21.0) == {"p3": f"{ALONE}no TeamQuota a."}
    assert driver.update(quota_object("a", maxCPU=3, closed=True)).messages(40.0) == {
        "p3": f"{ALONE}TeamQuota a is closed."
    }


def test_same_name_again_is_another_object() -> None:
    driver = driven(TeamQuotas).add(quota_object("a"))
    driver.delete(quota_object("a")).add(quota_object("a", uid="2"))
    assert kept(driver)["default", "a"]["metadata"]["uid"] == "2"
    assert kept(driver).version == 3


def test_what_says_the_same_as_before_changes_nothing() -> None:
    driver = driven(TeamQuotas)
    first = {**quota("a")["metadata"], "resourceVersion": "1", "managedFields": [{"manager": "x"}]}
    again = {**first, "resourceVersion": "2", "generation": 4, "managedFields": [{"manager": "y"}]}
    for metadata in (first, again):
        driver.add(raw_object(QUOTA.info(), {**quota("a"), "metadata": metadata}))
    assert kept(driver).version == 1
    found = kept(driver)["default", "a"]["metadata"]
    assert found["resourceVersion"] == "2" and "managedFields" not in found
    driver.round(0.0)
    driver.add(raw_object(QUOTA.info(), {**quota("a"), "metadata": again}))
    assert not driver.scheduler.cluster.has_changes()


def test_objects_are_in_the_order_of_their_names_however_they_came() -> None:
    driver = driven(TeamQuotas)
    for name, namespace in (("b", "y"), ("a", "y"), ("c", "x")):
        driver.add(quota_object(name, namespace))
    assert list(kept(driver)) == [("x", "c"), ("y", "a"), ("y", "b")]
    driver.add(quota_object("a", "x")).delete(quota_object("a", "y"))
    assert next(iter(kept(driver))) == ("x", "a")
    assert len(kept(driver)) == 3


def test_a_malformed_object_is_as_good_as_none_and_is_reported() -> None:
    driver = driven(TeamQuotas).add(make_node("n").allocatable(cpu="4").obj(), quota_object("a"))
    error = InvalidObject("TeamQuota/default/a", "metadata.labels", "expected a map")
    driver.feed(Malformed("TeamQuota", "default", "a", "1", error, QUOTA.api_version))
    decisions = driver.add(of_team("p")).round(0.0)
    assert ("default", "a") not in kept(driver)
    [event] = [d for d in decisions if isinstance(d, Emit) and d.reason == "InvalidTeamQuota"]
    assert event.about.reference()["apiVersion"] == "example.com/v1"
    assert driver.update(quota_object("a")).binds(10.0) == {"p": "n"}


def test_nothing_is_kept_of_kinds_that_no_plugin_declares() -> None:
    driver = driven(TeamQuotas)
    other = ObjectKind("example.com", "v1", "Other", "others")
    raw = {**quota("a"), "kind": "Other"}
    driver.add(raw_object(other.info(), raw)).delete(raw_object(other.info(), raw))
    assert not driver.scheduler.cluster.has_changes()
    with pytest.raises(KeyError):
        driver.scheduler.cluster.raw_objects.of(other)


def test_a_change_does_not_wake_pods_that_other_plugins_rejected() -> None:
    driver = driven(TeamQuotas).add(make_node("n").allocatable(cpu="1").obj())
    pod = make_pod("p").cpu("2").obj()
    driver.add(pod).round(0.0)
    driver.add(quota_object("a")).round(20.0)
    assert driver.queued_in(pod) == "unschedulable"
    assert driver.record(pod).attempts == 1


class Gate(Plugin):
    """Keeps pods out of the queue until there is a TeamQuota."""

    name = "Gate"
    reads_objects = (QUOTA,)

    def pre_enqueue(self, pod: PodRecord) -> str:
        return "" if self.handle.objects(QUOTA) else "no TeamQuota yet"


def test_two_plugins_share_a_kind_and_one_may_keep_pods_out_of_the_queue() -> None:
    driver = driven(TeamQuotas, Gate).add(make_node("n").allocatable(cpu="4").obj())
    gated = make_pod("gated").gate("other").obj()
    assert driver.add(of_team("p"), gated).binds(0.0) == {}
    assert driver.queued_in(of_team("p")) == "gated"
    assert driver.add(quota_object("a")).binds(1.0) == {"p": "n"}
    assert driver.queued_in(gated) == "gated"


class Twice(Plugin):
    name = "Twice"
    reads_objects = (ObjectKind("example.com", "v1", "TeamQuota", "teamquotas", namespaced=False),)


class Careless(Plugin):
    name = "Careless"
    reads_objects: ClassVar[Any] = ["teamquotas"]


def test_plugins_that_disagree_about_a_kind_are_refused_by_name() -> None:
    registry = Registry([TeamQuotas, Gate, Twice])
    assert registry.object_kinds(["TeamQuotas", "Gate"]) == {QUOTA: ("TeamQuotas", "Gate")}
    with pytest.raises(PluginError, match="plugin Gate and Twice: reads_objects disagree"):
        registry.object_kinds(["Gate", "Twice"])


def test_a_declaration_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(PluginError, match="plugin Careless: reads_objects must be a tuple"):
        Registry([Careless])


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (("", "v1", "Secret", "secrets"), "Secret cannot be declared: plugins cannot read Secrets"),
        (("", "v1", "Pod", "pods"), "Pod cannot be declared: use handle.pods"),
        (("", "v1", "Node", "nodes", False), "Node cannot be declared: use handle.nodes"),
        (("events.k8s.io", "v1", "Event", "events"), "Event cannot be declared"),
        (("coordination.k8s.io", "v1", "Lease", "leases"), "Lease cannot be declared"),
        (("Example.com", "v1", "Widget", "widgets"), "invalid group 'Example.com'"),
        (("example.com", "example.com/v1", "Widget", "widgets"), "invalid version"),
        (("example.com", "v1", "widget", "widgets"), "invalid kind 'widget'; such as Widget"),
        (("example.com", "v1", "Widget", "Widgets"), "invalid plural 'Widgets'"),
        (("example.com", "v1", "Widget", ""), "invalid plural ''"),
        (("example.com", "v1", "Widget", None), "plural must be a string: None"),
        (("example.com", "v1", "Widget", "widgets", "yes"), "namespaced must be True or False"),
    ],
)
def test_a_kind_that_cannot_be_declared_is_refused(declared: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ObjectKind(*declared)


@pytest.mark.parametrize("group", ["", "example.com", "autoscaling"])
def test_kinds_of_any_group_can_be_declared(group: str) -> None:
    kind = ObjectKind(group, "v1", "ConfigMap", "configmaps")
    assert kind.api_version == (f"{group}/v1" if group else "v1")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "expected an object"),
        ([], "expected an object"),
        ({}, "metadata: expected a map"),
        ({"metadata": {"name": 5}}, "metadata.name: expected a string"),
        ({"metadata": {"name": "a", "labels": {"x": 1}}}, r"metadata.labels\[x\]: expected a string"),
    ],
)
def test_what_has_no_metadata_is_no_object(raw: Any, message: str) -> None:
    with pytest.raises(InvalidObject, match=message):
        raw_object(QUOTA.info(), raw)


def test_an_object_of_a_list_gets_its_kind_and_the_original_stays_as_it_is() -> None:
    given = {"metadata": {"name": "a", "managedFields": []}, "spec": {"x": None}}
    found = raw_object(QUOTA.info(), given)
    assert isinstance(found, RawObject)
    assert found.raw["kind"] == "TeamQuota" and found.raw["apiVersion"] == "example.com/v1"
    assert found.raw["spec"] == {"x": None}
    assert given == {"metadata": {"name": "a", "managedFields": []}, "spec": {"x": None}}


def test_objects_are_read_only_all_the_way_down() -> None:
    raw = {"metadata": {}, "spec": {"teams": [{"name": "a"}], "most": 3}}
    kept = ObjectsOfKind()
    kept.put(("ns", "q"), raw)
    found: Any = kept["ns", "q"]
    assert found == raw and isinstance(found["spec"]["teams"], list)
    assert json.loads(json.dumps(found)) == raw
    for change in (
        lambda: found.update(spec={}),
        lambda: found["spec"].pop("most"),
        lambda: found["spec"].__setitem__("most", 9),
        lambda: found["spec"]["teams"].append({}),
        lambda: found["spec"]["teams"][0].setdefault("x", 1),
        lambda: found["spec"]["teams"].sort(),
        lambda: found["spec"]["teams"].__iadd__([1]),
    ):
        with pytest.raises(TypeError, match=r"copy\.deepcopy"):
            change()
    own = copy.deepcopy(found)
    own["spec"]["teams"].append({})
    assert raw["spec"] == {"teams": [{"name": "a"}], "most": 3}
    assert type(found["spec"].copy()) is dict
    kept.put(("ns", "q"), {"metadata": {}})
    assert kept["ns", "q"] == {"metadata": {}}
    kept.drop(("ns", "q"))
    assert ("ns", "q") not in kept and kept.get(("ns", "q")) is None
