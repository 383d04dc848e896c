"""What every namespace of `up` has, the Service `kubernetes`, and kinds that are only stored."""

import asyncio
from pathlib import Path

from holdfast.local.apiserver.api_state import ApiRequest
from holdfast.local.apiserver.system_objects import SystemObjects
from holdfast.local.apiserver.verbs.writes import create_object
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key
from holdfast.local.up import Up, UpSettings

ACCOUNT = Key("", "ServiceAccount", "team", "default")
AUTHORITY = Key("", "ConfigMap", "team", "kube-root-ca.crt")


def _up(tmp_path: Path) -> Up:
    return Up(UpSettings(SchedulerFactory.of(), tmp_path / "config"))


def _create(
    up: Up, group: str, kind: str, name: str, namespace: str = "", **parts: object
) -> list[str]:
    """Returns the warnings."""
    version = "v2" if kind == "HorizontalPodAutoscaler" else "v1"
    type = up.api.catalogue.kind(group, version, kind)
    assert type is not None
    call = ApiRequest(up.api, type, namespace, name)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    create_object(call, {"apiVersion": type.api_version, "kind": kind, "metadata": metadata, **parts})
    asyncio.run(up.cluster.quiet())
    return call.warnings


def test_every_namespace_has_an_account_and_the_authority(tmp_path: Path) -> None:
    up = _up(tmp_path)
    asyncio.run(up.cluster.quiet())
    for name in ("default", "kube-system"):
        assert ACCOUNT._replace(namespace=name) in up.store
    _create(up, "", "Namespace", "team")
    stored = up.store.get(AUTHORITY)
    assert stored is not None
    assert stored["data"]["ca.crt"] == up.credentials.authority.decode()
    for key in (ACCOUNT, AUTHORITY):
        up.store.delete(key)
    asyncio.run(up.cluster.quiet())
    assert ACCOUNT in up.store
    assert AUTHORITY in up.store
    namespace = up.store.get(Key("", "Namespace", "", "team"))
    assert namespace is not None
    going = {**namespace["metadata"], "deletionTimestamp": up.cluster.clock.stamp()}
    up.store.update(Key("", "Namespace", "", "team"), {**namespace, "metadata": going})
    asyncio.run(up.cluster.quiet())
    assert not up.store.keys_in("team")
    up.store.close()


def test_the_kubernetes_service_follows_the_port(tmp_path: Path) -> None:
    up = _up(tmp_path)
    for port in (6443, 7443):
        SystemObjects(up.api, "127.0.0.1", port)
        service = up.store.get(Key("", "Service", "default", "kubernetes"))
        found = up.store.get(Key("discovery.k8s.io", "EndpointSlice", "default", "kubernetes"))
        assert service is not None
        assert found is not None
        assert service["spec"]["ports"][0]["port"] == 443
        assert service["spec"]["ports"][0]["targetPort"] == found["ports"][0]["port"] == port
        assert found["endpoints"][0]["addresses"] == ["127.0.0.1"]
    up.store.close()


def test_the_kubernetes_service_and_its_endpoints_are_created_again(tmp_path: Path) -> None:
    up = _up(tmp_path)
    up.cluster.world.components.append(SystemObjects(up.api, "127.0.0.1", 6443))
    service = Key("", "Service", "default", "kubernetes")
    slice = Key("discovery.k8s.io", "EndpointSlice", "default", "kubernetes")
    endpoints = Key("", "Endpoints", "default", "kubernetes")
    for key in (service, slice, endpoints):
        asyncio.run(up.cluster.quiet())
        up.store.delete(key)
    asyncio.run(up.cluster.quiet())
    found = up.store.get(service)
    assert found is not None
    assert found["spec"]["clusterIP"] == "10.96.0.1"
    assert (slice in up.store, endpoints in up.store) == (True, True)
    # Endpoints that others change are restored; a Service that is no longer one of ports is kept.
    wrong = up.store.get(endpoints)
    assert wrong is not None
    up.store.update(endpoints, {**wrong, "subsets": []})
    up.store.update(service, {**found, "spec": {"type": "ExternalName", "externalName": "a.b"}})
    asyncio.run(up.cluster.quiet())
    restored = up.store.get(endpoints)
    assert restored is not None
    assert restored["subsets"] == wrong["subsets"]
    up.store.close()


def test_leases_come_back_with_their_namespace(tmp_path: Path) -> None:
    up = _up(tmp_path)
    up.cluster.world.components.append(SystemObjects(up.api, "127.0.0.1", 6443))
    up.cluster.add_nodes(2)
    asyncio.run(up.cluster.quiet())
    leases, namespace = ("coordination.k8s.io", "Lease"), Key("", "Namespace", "", "kube-node-lease")
    assert up.store.count(*leases) == 2
    found = up.store.get(namespace)
    assert found is not None
    going = {**found["metadata"], "deletionTimestamp": up.cluster.clock.stamp()}
    up.store.update(namespace, {**found, "metadata": going})
    for name in ("node-1", "node-2"):
        up.store.delete(Key(*leases, "kube-node-lease", name))
    asyncio.run(up.cluster.quiet())
    again = up.store.get(namespace)
    assert again is not None
    assert again["metadata"]["uid"] != found["metadata"]["uid"]
    assert up.store.count(*leases) == 2
    up.store.close()


def test_the_first_object_of_a_kind_that_is_only_stored_gets_a_warning(tmp_path: Path) -> None:
    up = _up(tmp_path)
    quota = {"spec": {"hard": {"pods": "3"}}}
    warning = "resourcequotas are stored but not acted on by this cluster"
    assert _create(up, "", "ResourceQuota", "q", "default", **quota) == [warning]
    assert _create(up, "", "ResourceQuota", "r", "default", **quota) == []
    target = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3}
    (warning,) = _create(up, "autoscaling", "HorizontalPodAutoscaler", "web", "default", spec=spec)
    assert warning.startswith("horizontalpodautoscalers are stored")
    assert _create(up, "", "ConfigMap", "c", "default") == []
    up.store.close()


def test_a_pod_gets_the_default_account_of_its_namespace(tmp_path: Path) -> None:
    up = _up(tmp_path)
    asyncio.run(up.cluster.quiet())
    spec = {"containers": [{"name": "c", "image": "i"}]}
    _create(up, "", "Pod", "plain", "default", spec=spec)
    _create(up, "", "Pod", "named", "default", spec={**spec, "serviceAccountName": "robot"})
    for name, account in (("plain", "default"), ("named", "robot")):
        pod = up.store.get(Key("", "Pod", "default", name))
        assert pod is not None
        found = pod["spec"].get("serviceAccountName"), pod["spec"].get("serviceAccount")
        assert found == (account, account), name
        assert "volumes" not in pod["spec"]
    up.store.close()
