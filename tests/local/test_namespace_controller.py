"""Deleted namespaces: what is in them stays for a moment, then goes."""

from harness.embedded_cluster import SteppedCluster
from holdfast.local.namespace_controller import GRACE
from holdfast.local.store import Key

TEAM = Key("", "Namespace", "", "team")
SETTINGS = Key("", "ConfigMap", "team", "settings")


def _namespace(it: SteppedCluster) -> None:
    it.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})


def _object(it: SteppedCluster, kind: str, name: str) -> None:
    key = Key("", kind, "team", name)
    raw = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "team"}}
    it.store.create(key, it.cluster.identity.new(key, raw))
    it.settle()


def _delete(it: SteppedCluster) -> None:
    it.update(TEAM, metadata={"deletionTimestamp": it.clock.stamp()})


def test_a_client_can_delete_the_namespace_first_and_then_what_is_in_it() -> None:
    it = SteppedCluster()
    _namespace(it)
    _object(it, "ConfigMap", "settings")
    _object(it, "Secret", "password")
    _delete(it)
    it.after(1)
    it.delete(SETTINGS)
    assert TEAM in it.store
    it.delete(Key("", "Secret", "team", "password"))
    assert TEAM not in it.store, "nothing is left to wait for"


def test_what_nobody_deletes_goes_after_a_moment() -> None:
    it = SteppedCluster()
    _namespace(it)
    _object(it, "ConfigMap", "settings")
    _delete(it)
    it.after(GRACE - 1)
    assert SETTINGS in it.store
    it.after(1)
    assert SETTINGS not in it.store
    assert TEAM not in it.store


def test_what_every_namespace_has_is_not_waited_for() -> None:
    it = SteppedCluster()
    _namespace(it)
    _object(it, "ServiceAccount", "default")
    _object(it, "ConfigMap", "kube-root-ca.crt")
    _object(it, "Event", "e")
    _delete(it)
    assert TEAM not in it.store
    assert not it.store.keys_in("team")


def test_a_new_namespace_of_the_same_name_is_left_alone() -> None:
    it = SteppedCluster()
    _namespace(it)
    _object(it, "ConfigMap", "settings")
    _delete(it)
    it.delete(SETTINGS)
    _namespace(it)
    _object(it, "ConfigMap", "settings")
    it.after(GRACE + 1)
    assert SETTINGS in it.store


def test_a_restart_continues_the_deletion() -> None:
    before = SteppedCluster()
    _namespace(before)
    _object(before, "ConfigMap", "settings")
    _delete(before)
    it = SteppedCluster(before.store, before.clock)
    it.after(GRACE)
    assert TEAM not in it.store
