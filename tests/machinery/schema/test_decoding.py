"""Reading built-in objects as Kubernetes' own types would."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.machinery.schema import MALFORMED, read_object, strict_error
from holdfast.machinery.schema.catalogue import Catalogue

CATALOGUE = Catalogue()


def minimal_pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}], **spec},
        "status": {},
    }


def read(raw: dict[str, Any], group: str = "", plural: str = "pods") -> tuple[Any, list[str]]:
    type = CATALOGUE.resource(group, "v1", plural)
    assert type is not None
    result, problems = read_object(type, raw)
    return result, [problem.text for problem in problems]


def test_an_object_in_its_usual_form_is_given_back_as_it_is() -> None:
    raw = minimal_pod(nodeName="n1")
    result, problems = read(raw)
    assert result is raw
    assert not problems


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"hostNetwork": False, "nodeName": "", "tolerations": []}, {}),
        ({"automountServiceAccountToken": False, "priority": 0}, None),
        ({"nodeSelector": None, "affinity": None}, {}),
        ({"affinity": {}}, None),
        ({"nodeSelector": {"a": None}}, {"nodeSelector": {"a": ""}}),
        ({"overhead": {"cpu": 1, "memory": "1024Ki"}}, {"overhead": {"cpu": "1", "memory": "1Mi"}}),
    ],
)
def test_empty_parts(given: dict[str, Any], kept: dict[str, Any] | None) -> None:
    assert read(minimal_pod(**given))[0] == minimal_pod(**(given if kept is None else kept))


def test_parts_that_are_always_written() -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": "i"}]}}
    assert read(raw)[0] == {
        **raw,
        "metadata": {},
        "spec": {"containers": [{"image": "i", "name": "", "resources": {}}]},
        "status": {},
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"terminationGracePeriodSeconds": "x"},
            "json: cannot unmarshal string into Go struct field "
            "PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            {"containers": [{"name": "c", "image": 5}]},
            "json: cannot unmarshal number into Go struct field "
            "Container.spec.containers.image of type string",
        ),
        (
            {"hostNetwork": "yes"},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            {"containers": {}},
            "json: cannot unmarshal object into Go struct field "
            "PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"priority": 1.5},
            "json: cannot unmarshal number 1.5 into Go struct field "
            "PodSpec.spec.priority of type int32",
        ),
        (
            {"overhead": {"cpu": "much"}},
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_a_value_of_the_wrong_type(spec: dict[str, Any], message: str) -> None:
    type = CATALOGUE.resource("", "v1", "pods")
    assert type is not None
    raw = minimal_pod(**spec)
    result, problems = read_object(type, raw)
    assert result is raw
    assert [(problem.reason, problem.text) for problem in problems] == [(MALFORMED, message)]


def test_unknown_fields_fall_out_and_are_named() -> None:
    raw = minimal_pod(
        nodeNmae="n", containers=[{"name": "c", "image": "i", "resources": {}, "imag": 1}]
    )
    type = CATALOGUE.resource("", "v1", "pods")
    assert type is not None
    result, problems = read_object(type, raw)
    assert result == minimal_pod()
    assert strict_error(problems) == (
        'strict decoding error: unknown field "spec.containers[0].imag", unknown field "spec.nodeNmae"'
    ) or strict_error(problems) == (
        'strict decoding error: unknown field "spec.nodeNmae", unknown field "spec.containers[0].imag"'
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("0.5Gi", "512Mi"),
        ("1000Mi", "1000Mi"),
        ("1.5Gi", "1536Mi"),
        ("1024", "1024"),
        ("512Ki", "512Ki"),
        ("1e3", "1e3"),
        ("1000", "1k"),
        ("0", "0"),
        (2, "2"),
        (0.1, "100m"),
        ("100000n", "100u"),
    ],
)
def test_quantities_take_their_usual_form(given: Any, kept: str) -> None:
    assert read(minimal_pod(overhead={"x": given}))[0]["spec"]["overhead"] == {"x": kept}


def test_times_and_bytes() -> None:
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"creationTimestamp": "2026-01-01T01:00:00.5+01:00"},
        "spec": {"renewTime": "2026-01-01T01:00:00.500000+01:00"},
    }
    result, _ = read(lease, "coordination.k8s.io", "leases")
    assert result["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert result["spec"]["renewTime"] == "2026-01-01T00:00:00.500000Z"
    lease["spec"] = {"renewTime": "2026-01-01T00:00:00Z"}
    assert read(lease, "coordination.k8s.io", "leases")[1] == [
        'parsing time "2026-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": '
        'cannot parse "Z" as ".000000"'
    ]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"a": "!!"}}
    assert read(secret, "", "secrets")[1] == ["illegal base64 data at input byte 0"]


def test_an_empty_list_that_is_always_written_is_null() -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []}
    assert read(role, "rbac.authorization.k8s.io", "roles")[0]["rules"] is None


def test_a_schema_inside_a_schema_is_read_too() -> None:
    inner = {"type": "array", "items": {"type": "object", "nullable": False, "typo": 1}}
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"a": inner}}}}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "spec": {"versions": [version]}}
    result, problems = read(crd, "apiextensions.k8s.io", "customresourcedefinitions")
    assert problems == [
        'unknown field "spec.versions[0].schema.openAPIV3Schema.properties.a.items.typo"'
    ]
    schema = result["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["a"]["items"] == {"type": "object"}
