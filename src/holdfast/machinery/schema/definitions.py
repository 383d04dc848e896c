"""The shapes of Kubernetes' own kinds, read when first asked for.

`data/kubernetes.json.gz` is written by `tools/kubernetes_schemas.py`. It says which fields there are,
not what they are for: the prose that `kubectl explain` shows is taken from the package
`kubernetes-validate` where that is installed (`pip install 'holdfast[explain]'`).
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
SUBRESOURCE_STATUS = (
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceSubresourceStatus"
)
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
MICRO_TIME = META + "MicroTime"
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"

Definition = dict[str, Any]


@cache
def _data() -> dict[str, Any]:
    packed = files("holdfast.machinery.schema").joinpath("data/kubernetes.json.gz").read_bytes()
    data: dict[str, Any] = msgspec.json.decode(gzip.decompress(packed))
    return data


def kubernetes_version() -> str:
    """The minor version whose API this is: `1.35`."""
    return str(_data()["version"])


def definitions() -> dict[str, Definition]:
    """Every type by its OpenAPI name, such as `io.k8s.api.core.v1.Pod`."""
    found: dict[str, Definition] = _data()["definitions"]
    return found


@cache
def described_definitions() -> dict[str, Definition]:
    """The same types with the descriptions of `kubernetes-validate`; without any if it is absent."""
    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        return {}
    folder = Path(package.origin).parent / "kubernetes-json-schema" / f"v{kubernetes_version()}.0-local"
    try:
        whole = msgspec.json.decode((folder / "_definitions.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    described: dict[str, Definition] = whole.get("$defs", {})
    return described
