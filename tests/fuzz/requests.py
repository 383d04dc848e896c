"""Requests near legal ones: objects with something odd in them, on paths that mostly exist."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, NamedTuple

import yaml
from hypothesis import strategies as st

_CONTAINER = {
    "name": "c",
    "image": "i",
    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1"}},
    "ports": [{"containerPort": 80, "hostPort": 8080}],
    "env": [{"name": "A", "value": "b"}],
}
_POD_SPEC = {
    "containers": [_CONTAINER],
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                ]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        },
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
    ],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}],
}
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_CONTAINER]}}
_DEVICES = "apis/resource.k8s.io/v1"
_CEL = {"cel": {"expression": 'device.attributes["d.io"].index < 3'}}
_CLAIM = {
    "devices": {
        "requests": [
            {
                "name": "r",
                "exactly": {
                    "deviceClassName": "a",
                    "count": 2,
                    "selectors": [_CEL],
                    "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}],
                    "capacity": {"requests": {"memory": "1Gi"}},
                },
            },
            {"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "a"}]},
        ],
        "constraints": [{"requests": ["r"], "matchAttribute": "d.io/numa"}],
        "config": [{"requests": ["f/s"], "opaque": {"driver": "d.io", "parameters": {"a": None}}}],
    }
}
_ALLOCATED = {
    "allocation": {
        "devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p", "device": "d"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": []}]},
    },
    "reservedFor": [{"resource": "pods", "name": "a", "uid": "1"}],
    "devices": [{"driver": "d.io", "pool": "p", "device": "d", "networkData": {"ips": ["10.0.0.1/8"]}}],
}
_DEVICE = {
    "name": "d",
    "attributes": {"index": {"int": 1}, "d.io/version": {"version": "1.2.3"}},
    "capacity": {
        "memory": {
            "value": "8Gi",
            "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
        }
    },
    "allowMultipleAllocations": True,
    "taints": [{"key": "a", "effect": "NoSchedule"}],
    "consumesCounters": [{"counterSet": "c", "counters": {"n": {"value": "1"}}}],
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["b"],
}
_SELECTOR = {"matchLabels": {"a": "b"}}
BASES: list[tuple[str, dict[str, Any]]] = [
    ("api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", "spec": _POD_SPEC}),
    (
        "api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}},
    ),
    (
        "api/v1/namespaces/default/secrets",
        {"apiVersion": "v1", "kind": "Secret", "data": {"a": "Yg=="}},
    ),
    (
        "api/v1/namespaces/default/services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}},
        },
    ),
    (
        "api/v1/namespaces/default/persistentvolumeclaims",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    ),
    (
        "api/v1/nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "4"}},
        },
    ),
    ("api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace"}),
    (
        "apis/apps/v1/namespaces/default/deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {"replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE},
        },
    ),
    (
        "apis/apps/v1/namespaces/default/statefulsets",
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "spec": {"replicas": 1, "serviceName": "s", "selector": _SELECTOR, "template": _TEMPLATE},
        },
    ),
    (
        "apis/batch/v1/namespaces/default/jobs",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {"template": {"spec": {"containers": [_CONTAINER], "restartPolicy": "Never"}}},
        },
    ),
    (
        "apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "spec": {"minAvailable": 1, "selector": _SELECTOR},
        },
    ),
    (
        "apis/scheduling.k8s.io/v1/priorityclasses",
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 7},
    ),
    (
        "apis/storage.k8s.io/v1/storageclasses",
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p"},
    ),
    (
        f"{_DEVICES}/namespaces/default/resourceclaims",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "spec": _CLAIM,
            "status": _ALLOCATED,
        },
    ),
    (
        f"{_DEVICES}/namespaces/default/resourceclaimtemplates",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "spec": {"metadata": {"labels": {"a": "b"}}, "spec": _CLAIM},
        },
    ),
    (
        f"{_DEVICES}/deviceclasses",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "spec": {"selectors": [_CEL], "extendedResourceName": "example.com/gpu"},
        },
    ),
    (
        f"{_DEVICES}/resourceslices",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "spec": {
                "driver": "d.io",
                "nodeName": "node-1",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                "devices": [_DEVICE],
            },
        },
    ),
    (
        f"{_DEVICES}/devicetaintrules",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "spec": {
                "deviceSelector": {"driver": "d.io"},
                "taint": {"key": "a", "effect": "NoExecute"},
            },
        },
    ),
    (
        "api/v1/namespaces/default/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": {
                "resourceClaims": [
                    {"name": "a", "resourceClaimName": "a"},
                    {"name": "b", "resourceClaimTemplateName": "b"},
                ],
                "containers": [{**_CONTAINER, "resources": {"claims": [{"name": "a"}]}}],
            },
            "status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "b"}]},
        },
    ),
    (
        "apis/scheduling.koordinator.sh/v1alpha1/reservations",
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "spec": {
                "template": {"spec": {"containers": [_CONTAINER]}},
                "owners": [{"labelSelector": _SELECTOR}],
                "ttl": "1h",
                "allocateOnce": False,
            },
        },
    ),
    (
        "apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups",
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "spec": {"minMember": 2},
        },
    ),
    (
        "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {
                    "plural": "things",
                    "kind": "Thing",
                    "singular": "thing",
                    "listKind": "ThingList",
                },
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "properties": {
                                    "spec": {
                                        "type": "object",
                                        "properties": {
                                            "n": {"type": "integer", "minimum": 1, "default": 3},
                                            "s": {"type": "string", "pattern": "^a+$"},
                                        },
                                        "x-kubernetes-validations": [{"rule": "self.n < 10"}],
                                    }
                                },
                            }
                        },
                        "subresources": {"status": {}},
                        "additionalPrinterColumns": [
                            {"name": "N", "type": "integer", "jsonPath": ".spec.n"}
                        ],
                    }
                ],
            },
        },
    ),
    (
        "apis/example.com/v1/namespaces/default/things",
        {"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"n": 3, "s": "aa"}},
    ),
    (
        "apis/coordination.k8s.io/v1/namespaces/default/leases",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 5},
        },
    ),
    (
        "api/v1/namespaces/default/events",
        {"apiVersion": "v1", "kind": "Event", "involvedObject": {"namespace": "default"}},
    ),
]
NAMES = ("a", "b", "node-1", "default", "A_", "x" * 300, "..", "%2e", "a%00", "ü", "")
_SUBRESOURCES = (
    "",
    "",
    "",
    "",
    "/status",
    "/scale",
    "/binding",
    "/eviction",
    "/log",
    "/resize",
    "/x/y",
)
_ODD_TEXT = st.sampled_from(
    (
        "",
        "a",
        "-1",
        "1e999",
        "0x",
        "100m",
        "1Ki",
        "-1Gi",
        "1.5.5",
        "\x00",
        "ü",
        "😀",
        "a/b",
        "//",
        "a" * 70,
        "{}",
        "[]",
        "null",
        "true",
        "Always",
        "In",
        "Exists",
        "2026-01-01T00:00:00Z",
        "99h",
        "1h",
    )
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from((0, 1, -1, 2**31, 2**63, 1.5, -0.0, 1e300)),
    _ODD_TEXT,
    st.text(max_size=5),
)
_FIELD_NAMES = st.sampled_from(
    (
        "name",
        "namespace",
        "labels",
        "annotations",
        "metadata",
        "spec",
        "status",
        "items",
        "key",
        "value",
        "generateName",
        "finalizers",
        "ownerReferences",
        "uid",
        "resourceVersion",
        "managedFields",
        "deletionTimestamp",
        "nodeName",
        "priorityClassName",
        "schedulerName",
        "$patch",
        "$setElementOrder/x",
        "replicas",
        "selector",
        "template",
        "resources",
        "requests",
        "cpu",
        "conditions",
        "",
        "a.b/c",
    )
)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(_FIELD_NAMES | st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=6,
)


class Request(NamedTuple):
    method: str
    path: str
    headers: tuple[str, ...]
    body: bytes


@st.composite
def _objects(draw: st.DrawFn) -> tuple[str, Any]:
    """A collection's path and an object for it, with up to three things changed."""
    path, base = draw(st.sampled_from(BASES))
    value = deepcopy(base)
    value.setdefault("metadata", {}).setdefault("name", f"n{draw(st.integers(0, 10**6))}")
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2, 3)))):
        value = _changed(draw, value)
    return path, value


def _alike(value: Any) -> st.SearchStrategy[Any]:
    """Another value of the same type, which gets further than one of another."""
    match value:
        case bool():
            return st.just(not value)
        case int():
            return st.sampled_from((0, -1, 1, 3, 100, 2**31 - 1, 2**31, -(2**31), 2**53))
        case str():
            return _ODD_TEXT
        case list():
            return st.just([]) | st.just(value * 3)
        case _:
            return st.just({})


def _changed(draw: st.DrawFn, value: Any) -> Any:
    """Something inside of it is replaced, taken out, put in or doubled."""
    here: Any = value
    while isinstance(here, dict | list) and here:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = draw(st.sampled_from(keys))
        inner = here[key]
        if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
            here = inner
            continue
        how = draw(st.integers(0, 5))
        if how > 3:
            here[key] = draw(_alike(inner))
        elif how == 0:
            here[key] = draw(VALUES)
        elif how == 1:
            del here[key]
        elif isinstance(here, dict):
            here[draw(_FIELD_NAMES)] = draw(VALUES)
        else:
            here.append(deepcopy(inner))
        return value
    return draw(VALUES)


@st.composite
def _operations(draw: st.DrawFn) -> Any:
    paths = st.sampled_from(
        (
            "/metadata/labels/a",
            "/spec",
            "/spec/replicas",
            "/metadata/name",
            "/data/a",
            "",
            "/",
            "a",
            "/a/-",
            "/spec/containers/0/image",
            "/spec/containers/-",
            "/metadata/~01",
            "/spec/containers/99999",
        )
    )
    return draw(
        st.lists(
            st.fixed_dictionaries(
                {"op": st.sampled_from(("add", "remove", "replace", "copy", "move", "test", "x"))},
                optional={"path": paths, "from": paths, "value": VALUES},
            ),
            max_size=4,
        )
    )


_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_MEDIA = st.sampled_from(
    ("application/json",) * 6
    + (
        "application/yaml",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "text/plain",
        "",
        "ü",
    )
)
_ACCEPT = st.sampled_from(
    ("application/json",) * 4
    + ("application/yaml", "*/*", "", "application/json;as=Table;v=v1;g=meta.k8s.io", ";;=,,", "a/b")
    + ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/*;q=x")
    + ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",)
)
_QUERIES = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(
                ("labelSelector", "fieldSelector", "continue", "fieldManager", "includeObject")
            ),
            st.sampled_from(
                (
                    "a=b",
                    "a in (b,c)",
                    "!a",
                    "metadata.name=a",
                    "spec.nodeName!=x",
                    "a in (",
                    "==",
                    "x" * 200,
                    "%00",
                    "ü",
                    "Metadata",
                    "None",
                    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
                )
            ),
        ),
        st.tuples(
            st.sampled_from(("limit", "resourceVersion", "timeoutSeconds", "gracePeriodSeconds")),
            st.sampled_from(("0", "1", "-1", "9" * 30, "x", "", "1.5", "18446744073709551615")),
        ),
        st.tuples(
            st.sampled_from(
                ("watch", "allowWatchBookmarks", "sendInitialEvents", "force", "dryRun", "pretty")
            ),
            st.sampled_from(("1", "true", "false", "All", "x", "")),
        ),
        st.tuples(
            st.sampled_from(("resourceVersionMatch", "propagationPolicy", "fieldValidation")),
            st.sampled_from(
                ("Exact", "NotOlderThan", "Orphan", "Foreground", "Strict", "Warn", "Ignore", "x")
            ),
        ),
    ),
    max_size=3,
)


def _quoted(text: str) -> str:
    return "".join(
        c if c.isascii() and c.isprintable() and c not in ' "<>\\^`{|}#&+' else _escaped(c)
        for c in text
    )


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))


def _rarely(draw: st.DrawFn) -> bool:
    return bool(draw(st.sampled_from((False,) * 5 + (True,))))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    path, value = draw(_objects())
    method = draw(
        st.sampled_from(
            ("POST",) * 5 + ("PUT", "PATCH", "PATCH", "PATCH", "GET", "DELETE", "HEAD", "X")
        )
    )
    media = (
        draw(_MEDIA)
        if _rarely(draw)
        else draw(st.sampled_from(("application/json", "application/yaml")))
    )
    if method == "PATCH":
        media = draw(st.sampled_from(_PATCHES))
        if media == _PATCHES[0]:
            value = draw(_operations())
    if method != "POST" or _rarely(draw):
        name = draw(st.sampled_from(NAMES)) if _rarely(draw) else draw(st.sampled_from(NAMES[:2]))
        path += "/" + _quoted(name) + draw(st.sampled_from(_SUBRESOURCES))
    if _rarely(draw) and _rarely(draw):
        path = draw(
            st.sampled_from(
                (
                    "",
                    "api",
                    "apis",
                    "version",
                    "openapi/v2",
                    "openapi/v3",
                    "openapi/v3/api/v1",
                    "metrics",
                    "configz",
                    "readyz/x",
                    "healthz?verbose",
                    "apis/apps",
                    "apis/x/y/z",
                    "api/v1/watch/pods",
                    "api/v1/watch/namespaces/default/pods/a",
                    "api//v1",
                    "*",
                    "../..",
                    "apis/authorization.k8s.io/v1/",
                )
            )
        )
    asked = draw(_QUERIES) if method in ("GET", "DELETE") or _rarely(draw) else []
    query = "&".join(f"{name}={_quoted(text)}" for name, text in asked)
    if media == _PATCHES[3] and not _rarely(draw):
        query += "&fieldManager=m"
    body = _encoded(draw, value, media)
    headers = (f"Content-Type: {media}", f"Accept: {draw(_ACCEPT) if _rarely(draw) else '*/*'}")
    return Request(method, f"/{path}?{query}" if query else f"/{path}", headers, body)


def _encoded(draw: st.DrawFn, value: Any, media: str) -> bytes:
    if "yaml" in media and draw(st.booleans()):
        body: bytes = yaml.safe_dump(value, allow_unicode=True).encode(errors="replace")
    elif "protobuf" in media:
        body = b"k8s\x00" + draw(st.binary(max_size=60))
    else:
        body = json.dumps(value).encode()
    how = draw(st.integers(0, 2)) if _rarely(draw) and _rarely(draw) else 3
    if how == 0:
        return body[: draw(st.integers(0, len(body)))]
    if how == 1:
        at = draw(st.integers(0, len(body)))
        return body[:at] + draw(st.binary(min_size=1, max_size=4)) + body[at:]
    return draw(st.binary(max_size=50)) if how == 2 else body


_LINES = st.sampled_from(
    (
        b"GET / HTTP/1.1",
        b"GET /readyz HTTP/1.0",
        b"POST /api/v1/namespaces/default/pods HTTP/1.1",
        b"GET",
        b"Host: h",
        b"Content-Length: 5",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: x",
        b"Expect: 100-continue",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Upgrade: h2c",
        b"HTTP2-Settings: AAMAAABkAAQAAP__",
        b"Content-Encoding: gzip",
        b"Authorization: Bearer",
        b"Authorization: \xff\xfe",
        b"A: " + b"a" * 9000,
        b"5",
        b"hello",
        b"0",
        b"",
        b"PRI * HTTP/2.0",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT h:1 HTTP/1.1",
        b"GET http://h/x HTTP/1.1",
    )
)


@st.composite
def raw_bytes(draw: st.DrawFn, token: str) -> bytes:
    """What may arrive at the port, from requests with something wrong to noise."""
    lines = draw(st.lists(_LINES | st.binary(max_size=20), max_size=12))
    if draw(st.booleans()):
        lines.insert(min(1, len(lines)), b"Authorization: Bearer " + token.encode())
    end = draw(st.sampled_from((b"\r\n", b"\r\n", b"\n", b"\r")))
    return end.join(lines) + draw(st.sampled_from((b"", b"\r\n\r\n", b"\r\n\r\n\r\n", b"\n\n")))
