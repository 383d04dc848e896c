"""Keys that are not strings, which YAML can write and JSON cannot hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.apiserver import CONFIG_MAPS, PODS, LiveServer
from harness.objects import config_map, pod
from holdfast.local.store import open_store

YAML = "application/yaml"
APPLY = "application/apply-patch+yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SCHEMA = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {true: {type: string}}}}
"""
_CONFIG_MAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: keys}, %s}"
_KEYS = [
    ("true", 'bool, key: true, value: "x"'),
    ("no", 'bool, key: false, value: "x"'),
    ("null", '%!s(<nil>), key: <nil>, value: "x"'),
    ("~", '%!s(<nil>), key: <nil>, value: "x"'),
    ("1", 'int, key: 1, value: "x"'),
    ("1.5", 'float64, key: 1.5, value: "x"'),
]


@pytest.mark.parametrize(("key", "go_type"), _KEYS)
@pytest.mark.parametrize(
    "where",
    ["data: {%s: x}", "metadata: {name: keys, labels: {%s: x}}", "%s: x", "unknown: [{%s: x}]"],
)
def test_a_key_that_is_no_string_is_400(server: LiveServer, key: str, go_type: str, where: str) -> None:
    text = "{apiVersion: v1, kind: ConfigMap, " + (where % key)
    text += "}" if "metadata" in where else ", metadata: {name: keys}}"
    answer = server.ask("POST", CONFIG_MAPS, text, YAML)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert f"unsupported map key of type: {go_type}" in answer.message
    assert server.get(f"{CONFIG_MAPS}/keys").code == 404


@pytest.mark.parametrize("key", ["true", "null", "1"])
def test_nor_does_apply_take_one(server: LiveServer, key: str) -> None:
    path = f"{CONFIG_MAPS}/applied?fieldManager=m"
    for text in (f"data: {{{key}: x}}", f"metadata: {{name: applied, annotations: {{{key}: x}}}}"):
        body = f"{{apiVersion: v1, kind: ConfigMap, {text}}}"
        assert server.ask("PATCH", path, body, APPLY).code == 400


def test_nor_do_options_of_a_deletion(server: LiveServer) -> None:
    server.post(PODS, pod("kept"))
    assert server.ask("DELETE", f"{PODS}/kept", "true: x", YAML).code == 400
    assert server.get(f"{PODS}/kept").code == 200


def test_nor_does_a_schema_and_the_store_goes_on(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with LiveServer(store) as server:
        answer = server.ask("POST", DEFINITIONS, _SCHEMA, YAML)
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert server.post(CONFIG_MAPS, config_map("after")).code == 201
        assert server.get(DEFINITIONS).code == 200
    store.close()
