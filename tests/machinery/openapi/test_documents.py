"""The OpenAPI documents, as `kubectl explain` and `kubectl apply` read them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.widgets import widget_crd
from holdfast.machinery import openapi
from holdfast.machinery.schema.catalogue import Catalogue


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    catalogue = Catalogue()
    catalogue.add_crd(widget_crd())
    return catalogue


def references(part: Any) -> set[str]:
    if isinstance(part, list):
        return {name for item in part for name in references(item)}
    if not isinstance(part, dict):
        return set()
    found = {name for value in part.values() for name in references(value)}
    return found | {part["$ref"]} if isinstance(part.get("$ref"), str) else found


def kind_of(operation: dict[str, Any]) -> tuple[str, str, str]:
    kind = operation["x-kubernetes-group-version-kind"]
    return kind["group"], kind["version"], kind["kind"]


def test_one_document_per_group_and_version(catalogue: Catalogue) -> None:
    paths = openapi.openapi_v3_paths(catalogue)
    assert {"api/v1", "apis/apps/v1", "apis/example.com/v1", "apis/events.k8s.io/v1"} <= set(paths)


def test_every_reference_leads_somewhere(catalogue: Catalogue) -> None:
    for path in openapi.openapi_v3_paths(catalogue):
        document = openapi.openapi_v3(catalogue, path)
        known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert references(document) <= known, path
    document = openapi.openapi_v2(catalogue)
    assert references(document) <= {f"#/definitions/{name}" for name in document["definitions"]}


def test_explain_finds_a_kind_by_its_path(catalogue: Catalogue) -> None:
    document = openapi.openapi_v3(catalogue, "api/v1")
    operation = document["paths"]["/api/v1/namespaces/{namespace}/pods"]["get"]
    assert kind_of(operation) == ("", "v1", "Pod")
    schema = document["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]


def test_apply_finds_merge_keys_and_what_patches_are_taken(catalogue: Catalogue) -> None:
    document = openapi.openapi_v3(catalogue, "apis/apps/v1")
    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert "fieldValidation" in {parameter["name"] for parameter in patch["parameters"]}
    containers = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"][
        "containers"
    ]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]


def test_a_custom_kind(catalogue: Catalogue) -> None:
    document = openapi.openapi_v3(catalogue, "apis/example.com/v1")
    patch = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    schema = document["components"]["schemas"]["com.example.v1.Widget"]
    assert schema["properties"]["spec"]["properties"]["size"]["type"] == "integer"
    assert set(schema["properties"]) >= {"apiVersion", "kind", "metadata", "spec"}


def test_descriptions_come_with_the_package_that_has_them(catalogue: Catalogue) -> None:
    schema = openapi.openapi_v3(catalogue, "api/v1")["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert schema["description"].startswith("Pod is ")
    assert schema["properties"]["spec"]["description"]


def test_without_it_there_is_everything_else(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.machinery import openapi as models

    monkeypatch.setattr(models, "described_definitions", dict)
    schema = openapi.openapi_v3(catalogue, "api/v1")["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert "description" not in schema
    assert "spec" in schema["properties"]


def test_version_2_has_only_what_it_can_express(catalogue: Catalogue) -> None:
    size = openapi.openapi_v2(catalogue)["definitions"]["com.example.v1.Widget"]["properties"]["spec"][
        "properties"
    ]["mode"]
    assert "default" not in size


def test_a_changed_definition_changes_the_documents() -> None:
    catalogue = Catalogue()
    catalogue.add_crd(widget_crd())
    generation = catalogue.generation
    catalogue.remove_crd("widgets.example.com")
    assert catalogue.generation > generation
    assert "apis/example.com/v1" not in openapi.openapi_v3_paths(catalogue)
