"""Reading protobuf: what kubectl sends, byte by byte."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.apiserver import LiveServer
from holdfast.local.apiserver.protobuf import MEDIA_TYPE, ProtobufError, decode

MAGIC = b"k8s\x00"


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    return bytes([field << 3]) + varint(value)


def varint(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])


def envelope(api_version: str, kind: str, body: bytes) -> bytes:
    type_meta = part(1, api_version.encode()) + part(2, kind.encode())
    return MAGIC + part(1, type_meta) + part(2, body)


METADATA = part(
    1, part(1, b"m") + part(2, b"") + part(8, b"") + part(11, part(1, b"k") + part(2, b"v"))
)


def test_a_config_map() -> None:
    body = METADATA + part(2, part(1, b"a") + part(2, b"b")) + part(3, part(1, b"x") + part(2, b"\0\1"))
    assert decode(envelope("v1", "ConfigMap", body)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m", "labels": {"k": "v"}},
        "data": {"a": "b"},
        "binaryData": {"x": "AAE="},
    }


def test_numbers_quantities_and_choices() -> None:
    budget = part(1, part(1, number(1, 1) + number(2, 0) + part(3, b"50%")))
    assert decode(envelope("policy/v1", "PodDisruptionBudget", part(2, budget[2:])))["spec"] == {
        "minAvailable": "50%"
    }
    priority = number(2, (1 << 64) - 5) + number(3, 0)
    assert decode(envelope("scheduling.k8s.io/v1", "PriorityClass", priority))["value"] == -5


def test_times_and_zeros() -> None:
    lease = part(
        2, part(1, b"me") + number(2, 15) + part(4, number(1, 1767225600) + number(2, 500000000))
    )
    assert decode(envelope("coordination.k8s.io/v1", "Lease", lease))["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.500000Z",
    }
    scale = part(2, number(1, 0))
    assert decode(envelope("autoscaling/v1", "Scale", scale))["spec"] == {}
    replicas = part(2, number(1, 0))
    assert decode(envelope("apps/v1", "Deployment", replicas))["spec"] == {"replicas": 0}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        MAGIC,
        MAGIC + b"\xff",
        MAGIC + b"\x0a\xff",
        envelope("v1", "Nothing", b""),
        envelope("v1", "ConfigMap", b"\x0a\x7f"),
        envelope("v1", "ConfigMap", b"\x0f"),
        envelope("v1", "ConfigMap", b"\x08" + b"\xff" * 11),
        envelope("v1", "ConfigMap", part(1, part(1, b"\xff\xfe"))),
        envelope("v1", "ConfigMap", part(1, part(17, part(7, part(1, b"[" * 100_000))))),
    ],
)
def test_what_is_broken_is_refused(data: bytes) -> None:
    with pytest.raises(ProtobufError):
        decode(data)


@given(st.sampled_from(["Pod", "ConfigMap", "Node", "Event"]), st.binary(max_size=200))
def test_no_bytes_do_harm(kind: str, body: bytes) -> None:
    with contextlib.suppress(ProtobufError):
        decode(envelope("v1", kind, body))


def test_over_http(server: LiveServer) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    data = envelope("v1", "ConfigMap", METADATA)
    made = server.ask("POST", path, data, MEDIA_TYPE, f"{MEDIA_TYPE},application/json")
    assert (made.code, made.media, made.body["metadata"]["name"]) == (201, "application/json", "m")
    broken = server.ask("POST", path, MAGIC + b"\xff", MEDIA_TYPE)
    assert (broken.code, broken.reason) == (400, "BadRequest")


def test_a_resource_slice_and_a_claim() -> None:
    attribute = part(1, b"index") + part(2, number(2, 3))
    memory = part(1, b"memory") + part(2, part(1, part(1, b"80Gi")))
    device = part(1, b"gpu-0") + part(2, attribute) + part(3, memory) + number(9, 1)
    pool = part(1, b"n1") + number(2, 0) + number(3, 1)
    body = part(2, part(1, b"d.io") + part(2, pool) + part(3, b"n1") + part(6, device))
    assert decode(envelope("resource.k8s.io/v1", "ResourceSlice", body))["spec"] == {
        "driver": "d.io",
        "pool": {"name": "n1", "generation": 0, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"index": {"int": 3}},
                "capacity": {"memory": {"value": "80Gi"}},
                "bindsToNode": True,
            }
        ],
    }
    opaque = part(1, part(1, b"d.io") + part(2, part(1, b'{"a": null}')))
    claim = part(1, part(1, part(1, b"r")) + part(3, part(1, b"r") + part(2, opaque)))
    assert decode(envelope("resource.k8s.io/v1", "ResourceClaim", part(2, claim)))["spec"] == {
        "devices": {
            "requests": [{"name": "r"}],
            "config": [{"requests": ["r"], "opaque": {"driver": "d.io", "parameters": {"a": None}}}],
        }
    }
