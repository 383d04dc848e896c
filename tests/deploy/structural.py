"""Structural schemas read as JSON Schema, so that definitions can be tried without a server.

Rules in CEL are not evaluated.
"""

from typing import Any

from jsonschema import Draft4Validator

Raw = dict[str, Any]


def problems(definition: Raw, obj: Raw) -> list[str]:
    """Paths of the fields that are wrong, unknown ones included."""
    schema = _strict(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    found = []
    for error in Draft4Validator(schema).iter_errors(obj):
        path = [str(step) for step in error.absolute_path]
        if error.validator == "additionalProperties":
            path += [name for name in error.instance if name not in error.schema["properties"]]
        if error.validator == "required":
            path += [name for name in error.validator_value if name not in error.instance]
        found.append(".".join(path))
    return found


def _strict(schema: Raw) -> Raw:
    result = {key: value for key, value in schema.items() if not key.startswith("x-")}
    open_ = schema.get("x-kubernetes-preserve-unknown-fields", False)
    if schema.get("nullable"):
        result["type"] = [schema["type"], "null"]
    if "properties" in schema:
        result["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
        if not open_:
            result["additionalProperties"] = False
    elif "additionalProperties" in schema:
        result["additionalProperties"] = _strict(schema["additionalProperties"])
    if "items" in schema:
        result["items"] = _strict(schema["items"])
    if result.get("type") == "object" and "metadata" in result.get("properties", {}):
        result["properties"]["metadata"] = {"type": "object"}
    return result
