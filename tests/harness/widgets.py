"""A custom kind with a bit of everything, for tests."""

from __future__ import annotations

from typing import Any

WIDGET_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
        "label": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
        "port": {"x-kubernetes-int-or-string": True},
        "ratio": {"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "weight": {"type": "integer", "default": 1},
                },
            },
        },
        "extra": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
        "note": {"type": "string", "nullable": True},
        "when": {"type": "string", "format": "date-time"},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "one": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
    },
}


def widget_crd(**spec: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "spec": WIDGET_SPEC,
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
            **spec,
        },
    }
