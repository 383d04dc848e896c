"""The Helm chart, rendered as `helm template` would."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

from deploy.gotemplate import Templates

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "holdfast"
Raw = dict[str, Any]

SCHEMA: Raw = json.loads((CHART / "values.schema.json").read_text("utf-8"))
VALUES: Raw = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))


def overlaid(values: Raw, changes: Raw) -> Raw:
    """Values with some of them changed; null takes one away."""
    result = copy.deepcopy(values)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = overlaid(result[key], value)
        else:
            result[key] = value
    return result


def problems(changes: Raw) -> list[str]:
    """Where the schema finds fault with the values."""
    errors = Draft7Validator(SCHEMA).iter_errors(overlaid(VALUES, changes))
    return sorted(".".join(map(str, error.absolute_path)) for error in errors)


def rendered(
    changes: Raw | None = None, release: str = "holdfast", namespace: str = "holdfast-system"
) -> list[Raw]:
    return [
        document
        for name, text in rendered_files(changes, release, namespace).items()
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document is not None
    ]


def rendered_files(changes: Raw | None, release: str, namespace: str) -> dict[str, str]:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    data = {
        "Values": overlaid(VALUES, changes or {}),
        "Release": {"Name": release, "Namespace": namespace, "Service": "Helm"},
        "Files": {"Get": lambda name: (CHART / name).read_text("utf-8")},
        "Chart": {
            "Name": chart["name"],
            "Version": chart["version"],
            "AppVersion": chart["appVersion"],
        },
    }
    templates = Templates()
    paths = sorted((CHART / "templates").iterdir())
    bodies = {path.name: templates.add(path.read_text("utf-8")) for path in paths}
    return {name: templates.render(body, copy.deepcopy(data)) for name, body in bodies.items()}
