"""Writes the schema of a pod template as a CustomResourceDefinition can hold it.

    python tools/pod_template_schema.py > src/holdfast/api/crds/podTemplate.json

The fields come from the schemas that kubernetes-validate carries. What is left out is what a
reservation's template does not need (a container's name) or what must not happen to it (defaults:
it comes back as it went in).
"""

import json
import sys
from importlib.resources import files
from typing import Any

VERSION = "v1.37.0-local"
"""The newest at hand: a field an older API server does not know yet is no mistake."""

Schema = dict[str, Any]

_CORE = "io.k8s.api.core.v1."
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SPECIAL: dict[str, Schema] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"part": "amount"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    f"{_META}Time": {"part": "time"},  # generated manifests have creationTimestamp: null
    f"{_META}MicroTime": {"part": "time"},
    f"{_META}FieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_MAY_LACK = {
    f"{_CORE}Container": {"name"},
    f"{_CORE}PodSpec": {"containers"},
}
_ALSO: dict[str, Schema] = {
    # Gone from the newest version, still in use.
    f"{_CORE}PodSpec": {
        "workloadRef": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    # Koordinator's manual shows it there.
    f"{_CORE}PodTemplateSpec": {"namespace": {"type": "string"}},
}
_RULES: dict[str, list[Schema]] = {
    f"{_CORE}PodSpec": [
        {
            "rule": "has(self.resources) || (has(self.containers) && size(self.containers) > 0)",
            "message": "is required: at least one container, or resources of the pod as a whole",
            "fieldPath": ".containers",
        }
    ]
}


def main() -> None:
    package = files("kubernetes_validate")
    text = package.joinpath("kubernetes-json-schema", VERSION, "_definitions.json").read_text()
    whole = _named(f"{_CORE}PodTemplateSpec", json.loads(text)["$defs"])
    json.dump({**whole, "required": ["spec"]}, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


def _named(name: str, definitions: Schema) -> Schema:
    if name in _SPECIAL:
        return _SPECIAL[name]
    schema = _structural(definitions[name], definitions)
    if name in _ALSO:
        schema["properties"] |= _ALSO[name]
    required = [field for field in schema.get("required", ()) if field not in _MAY_LACK.get(name, ())]
    schema.pop("required", None)
    if required:
        schema["required"] = required
    if name in _RULES:
        schema["x-kubernetes-validations"] = _RULES[name]
    return schema


def _structural(given: Schema, definitions: Schema) -> Schema:
    if "$ref" in given:
        return _named(given["$ref"].rpartition("/")[2], definitions)
    kinds = given["type"]
    kind = kinds if isinstance(kinds, str) else next(each for each in kinds if each != "null")
    schema: Schema = {"type": kind}
    if "properties" in given:
        inner = given["properties"]
        schema["properties"] = {name: _structural(inner[name], definitions) for name in inner}
    elif "additionalProperties" in given:
        schema["additionalProperties"] = _structural(given["additionalProperties"], definitions)
    elif kind == "object":
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in given:
        schema["items"] = _structural(given["items"], definitions)
    for key in ("required", "enum", "format"):
        if key in given:
            schema[key] = given[key]
    return schema


if __name__ == "__main__":
    main()
