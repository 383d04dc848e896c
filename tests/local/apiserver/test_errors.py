"""What the server refuses, and in which words: those of Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.apiserver import CONFIG_MAPS, MERGE, PODS, LiveServer
from harness.objects import config_map, pod
from harness.served_cluster import ServedCluster

NOT_FOUND = "the server could not find the requested resource"
NOT_ALLOWED = "the server does not allow this method on the requested resource"
UNRECOGNIZED = "the object provided is unrecognized (must be of type Pod): "
NOT_JSON = f"{UNRECOGNIZED}couldn't get version/kind; json parse error: "

MANY = "9" * 5000
"""More digits than Python turns into a number."""


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/v1/widgets", NOT_FOUND),
        ("/apis/apps/v2/deployments", NOT_FOUND),
        ("/api/v1/namespaces/default/nodes", NOT_FOUND),
        ("/api/v1/pods/a", NOT_FOUND),
        (f"{PODS}/none", 'pods "none" not found'),
        ("/api/v1/nodes/none", 'nodes "none" not found'),
        ("/apis/apps/v1/namespaces/default/deployments/none", 'deployments.apps "none" not found'),
        (f"{PODS}/none/log", 'pods "none" not found'),
    ],
)
def test_what_is_not_there_is_404(server: LiveServer, path: str, message: str) -> None:
    answer = server.get(path)
    assert (answer.code, answer.reason, answer.message) == (404, "NotFound", message)
    assert answer.body["kind"] == "Status"


@pytest.mark.parametrize("path", ["/nothing", "/apis/no.such.group/v1/things", "/apis/no.such.group"])
def test_a_path_that_never_was_is_not_found_in_plain_text(server: LiveServer, path: str) -> None:
    answer = server.get(path)
    assert (answer.code, answer.text) == (404, "404 page not found\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", PODS),
        ("POST", f"{PODS}/a"),
        ("PATCH", PODS),
        ("DELETE", "/api/v1"),
        ("POST", "/api/v1/pods"),
    ],
)
def test_wrong_methods_are_405(server: LiveServer, method: str, path: str) -> None:
    answer = server.ask(method, path, pod("a"))
    assert (answer.code, answer.reason, answer.message) == (405, "MethodNotAllowed", NOT_ALLOWED)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{bad", f"{NOT_JSON}invalid character 'b' looking for beginning of object key string ({{bad)"),
        ("", f"{NOT_JSON}unexpected end of JSON input (<empty>)"),
        ('{"a":}', f"{NOT_JSON}invalid character '}}' looking for beginning of value ({{\"a\":}})"),
        ("xyz", f"{NOT_JSON}invalid character 'x' looking for beginning of value (78797a)"),
        ("{} x", f"{NOT_JSON}invalid character 'x' after top-level value ({{}} x)"),
        ('{"a":1 "b"', f'{NOT_JSON}invalid character \'"\' after object key:value pair ({{"a":1 "b")'),
    ],
)
def test_malformed_json_is_400(server: LiveServer, text: str, message: str) -> None:
    answer = server.post(PODS, text)
    assert (answer.code, answer.reason, answer.message) == (400, "BadRequest", message)


@pytest.mark.parametrize("text", ["a: [b", "a: b: c", "- 1", "a: *nowhere", "a: &x {b: *x"])
def test_malformed_yaml_is_400(server: LiveServer, text: str) -> None:
    answer = server.ask("POST", PODS, text, "application/yaml")
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message.startswith(UNRECOGNIZED)


def test_yaml_aliases_cannot_blow_up(server: LiveServer) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    answer = server.ask("POST", PODS, "\n".join(lines), "application/yaml")
    assert answer.code == 400
    assert "aliases" in answer.message


def test_bodies_may_not_nest_without_end(server: LiveServer) -> None:
    answer = server.post(PODS, "[" * 50_000 + "]" * 50_000)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    deep: Any = {}
    for _ in range(100):
        deep = {"x": deep}
    answer = server.post(f"{PODS}?dryRun=All", {**pod("deep"), "more": deep})
    assert answer.code == 201, "what is unknown is dropped, however deep it is"


def test_bodies_over_3_mib_are_413(server: LiveServer) -> None:
    answer = server.post(CONFIG_MAPS, {**config_map("big"), "data": {"a": "x" * (3 * 1024 * 1024)}})
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    assert answer.message == "Request entity too large: limit is 3145728"


@pytest.mark.parametrize(
    ("content_type", "code"),
    [("text/plain", 415), ("application/xml", 415), ("application/json; charset=utf-8", 201)],
)
def test_content_types(server: LiveServer, content_type: str, code: int) -> None:
    answer = server.ask("POST", f"{PODS}?dryRun=All", pod("a"), content_type)
    assert answer.code == code
    if code == 415:
        assert answer.reason == "UnsupportedMediaType"
        assert answer.message.startswith("the body of the request was in an unknown format - accepted")


@pytest.mark.parametrize("accept", ["application/xml", "application/vnd.kubernetes.protobuf"])
def test_answers_only_in_what_is_spoken(server: LiveServer, accept: str) -> None:
    answer = server.get(PODS, accept)
    assert (answer.code, answer.reason) == (406, "NotAcceptable")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"apiVersion": "v1", "kind": "Service"},
            'Service in version "v1" cannot be handled as a Pod: converting (v1.Service) to '
            "(core.Pod): "
            "unknown conversion",
        ),
        (
            {"apiVersion": "foo/v1", "kind": "Bar"},
            'Bar in version "v1" cannot be handled as a Pod: no kind "Bar" is registered for version '
            '"foo/v1"',
        ),
        (
            {**pod("a"), "metadata": {"name": "a", "namespace": "other"}},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {"metadata": {"name": "a", "labels": {"a": 3}}},
            'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into '
            "Go struct "
            "field ObjectMeta.metadata.labels of type string",
        ),
    ],
)
def test_objects_that_do_not_belong_are_400(server: LiveServer, body: Any, message: str) -> None:
    answer = server.post(PODS, body)
    assert (answer.code, answer.reason, answer.message) == (400, "BadRequest", message)


def test_a_suggestion_for_an_unknown_field_is_a_warning(server: LiveServer) -> None:
    body = {**pod("a"), "spec": {"nodeNmae": "n", "labels": {}, "containers": []}}
    answer = server.post(f"{PODS}?fieldValidation=Strict", body)
    assert answer.code == 400 and "did you mean" not in answer.message
    assert answer.warnings == [
        '299 - "unknown field \\"spec.nodeNmae\\": did you mean nodeName?"',
        '299 - "unknown field \\"spec.labels\\": it belongs to metadata"',
    ]


def test_unknown_fields_are_errors_warnings_or_nothing(server: LiveServer) -> None:
    body = {**pod("a"), "spec": {"foo": 1, "containers": [{"name": "c", "image": "i", "bar": 2}]}}
    strict = server.post(f"{PODS}?fieldValidation=Strict&dryRun=All", body)
    assert strict.code == 400
    assert strict.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field '
        '"spec.foo", '
        'unknown field "spec.containers[0].bar"'
    )
    warned = server.post(f"{PODS}?fieldValidation=Warn&dryRun=All", body)
    assert (warned.code, warned.warnings) == (
        201,
        ['299 - "unknown field \\"spec.foo\\""', '299 - "unknown field \\"spec.containers[0].bar\\""'],
    )
    ignored = server.post(f"{PODS}?fieldValidation=Ignore&dryRun=All", body)
    assert (ignored.code, ignored.warnings) == (201, [])
    silly = server.post(f"{PODS}?fieldValidation=Silly", body)
    assert (silly.code, silly.reason) == (422, "Invalid")


def test_a_key_given_twice_is_found(server: LiveServer) -> None:
    text = '{"metadata":{"name":"a","name":"b"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
    answer = server.post(f"{PODS}?fieldValidation=Strict&dryRun=All", text)
    assert answer.code == 400
    assert 'duplicate field "metadata.name"' in answer.message


def test_invalid_objects_are_422_with_a_cause_for_each_field(server: LiveServer) -> None:
    answer = server.post(PODS, {"metadata": {"name": "A_b"}, "spec": {}})
    assert (answer.code, answer.reason) == (422, "Invalid")
    causes = {each["field"]: each["reason"] for each in answer.body["details"]["causes"]}
    assert causes == {"metadata.name": "FieldValueInvalid", "spec.containers": "FieldValueRequired"}
    assert answer.message.startswith(
        'Pod "A_b" is invalid: [metadata.name: Invalid value: "A_b": a lower'
    )


def test_a_name_is_taken_once(server: LiveServer) -> None:
    assert server.post(PODS, pod("taken")).code == 201
    again = server.post(PODS, pod("taken"))
    assert (again.code, again.reason, again.message) == (
        409,
        "AlreadyExists",
        'pods "taken" already exists',
    )


def test_a_namespace_must_be_there(server: LiveServer) -> None:
    answer = server.post("/api/v1/namespaces/nope/pods", pod("a"))
    assert (answer.code, answer.message) == (404, 'namespaces "nope" not found')


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("fieldSelector=spec.foo=1", "field label not supported: spec.foo"),
        ("fieldSelector=xx", "invalid selector: 'xx'; can't understand 'xx'"),
        (
            "labelSelector=a+b+c",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("labelSelector=a+in+b", "unable to parse requirement: found 'b' expected: '('"),
        (
            "labelSelector=a,!%24",
            'unable to parse requirement: <nil>: Invalid value: "$": name part must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
            "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "labelSelector=a%3Eb",
            'unable to parse requirement: values[0]: Invalid value: "b": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("labelSelector=a%3D,", "found '', expected: identifier after ','"),
        ("labelSelector=,a", "found ',', expected: !, identifier, or 'end of string'"),
        ("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        (f"limit={MANY}", f'strconv.ParseInt: parsing "{MANY}": value out of range'),
        (
            f"resourceVersion={MANY}",
            f'invalid resource version: resourceVersion: Invalid value: "{MANY}": strconv.ParseUint: '
            f'parsing "{MANY}": value out of range',
        ),
        (
            "continue=abc",
            "invalid continue token: continue key is not valid: invalid character 'i' looking for "
            "beginning of value",
        ),
        (
            "resourceVersion=abc",
            'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: '
            "parsing "
            '"abc": invalid syntax',
        ),
    ],
)
def test_bad_list_options_are_400(server: LiveServer, query: str, message: str) -> None:
    answer = server.get(f"{PODS}?{query}")
    assert (answer.code, answer.reason, answer.message) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Foo",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "watch=1&sendInitialEvents=true",
        "watch=1&resourceVersion=1&resourceVersionMatch=Exact",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
    ],
)
def test_list_options_that_contradict_each_other_are_422(server: LiveServer, query: str) -> None:
    answer = server.get(f"{PODS}?{query}")
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('ListOptions.meta.k8s.io "" is invalid: ')


def test_errors_come_in_the_media_type_asked_for(server: LiveServer) -> None:
    answer = server.get(f"{PODS}/none", "application/yaml")
    assert (answer.code, answer.media) == (404, "application/yaml")
    assert "reason: NotFound" in answer.text


def test_a_patch_needs_a_patch_type(server: LiveServer) -> None:
    server.post(CONFIG_MAPS, config_map("patched"))
    answer = server.patch(f"{CONFIG_MAPS}/patched", {"data": {}}, "application/json")
    assert (answer.code, answer.message) == (415, "415: Unsupported Media Type")
    assert server.patch(f"{CONFIG_MAPS}/patched", "{bad", MERGE).code == 400


@pytest.mark.parametrize(
    ("path", "body", "complaint"),
    [
        (
            "/api/v1/namespaces/default/events",
            {"metadata": {"name": "e"}, "involvedObject": {"namespace": "other"}},
            'involvedObject.namespace: Invalid value: "other": does not match event.namespace',
        ),
        (
            "/apis/events.k8s.io/v1/namespaces/default/events",
            {"metadata": {"name": "e"}, "type": "Normal"},
            "eventTime: Required value",
        ),
        (
            CONFIG_MAPS,
            {"metadata": {"name": "c"}, "data": {"a b": "x"}},
            'data[a b]: Invalid value: "a b": a valid config key must consist of',
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": -1}},
            "spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0",
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            {"metadata": {"name": "s"}},
            "provisioner: Required value",
        ),
        (
            "/api/v1/namespaces/default/services",
            {"metadata": {"name": "s"}, "spec": {"type": "Foo", "ports": [{"port": 80}]}},
            'spec.type: Unsupported value: "Foo": supported values: "ClusterIP", "ExternalName", ',
        ),
        (
            "/api/v1/nodes",
            {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "Foo"}]}},
            'metadata.taints[0].effect: Unsupported value: "Foo": supported values: "NoSchedule", ',
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            {"metadata": {"name": "d"}},
            "spec.selector: Required value",
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod("x")["spec"]}}},
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "system-mine"}, "value": 1},
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved",
        ),
    ],
)
def test_kinds_have_rules_of_their_own(
    server: LiveServer, path: str, body: dict[str, Any], complaint: str
) -> None:
    answer = server.post(path, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert complaint in answer.message


def test_bytes_that_are_not_utf_8_are_replaced_as_go_does(server: LiveServer) -> None:
    body = b'{"metadata": {"name": "bytes"}, "data": {"a": "x\xd7\xd8y"}}'
    assert server.ask("POST", CONFIG_MAPS, body).code == 201
    assert server.get(f"{CONFIG_MAPS}/bytes").body["data"] == {"a": "x\ufffd\ufffdy"}
    patch = b'{"data": {"a": "\xff"}}'
    assert server.ask("PATCH", f"{CONFIG_MAPS}/bytes", patch, MERGE).code == 200
    assert server.ask("POST", CONFIG_MAPS, b'{"\xff').code == 400


def test_all_errors_of_a_schedule_are_in_one_response(tmp_path: Path) -> None:
    path = "/apis/scheduling.holdfast.io/v1alpha1/reservationschedules"
    template = {"spec": {"containers": [{"name": "c"}]}}
    owners = [{"labelSelector": {"matchLabels": {"a": "b"}}}]
    metadata = {"annotations": {"holdfast.io/at-end": "evict", "holdfast.io/leed": "5m"}}
    spec = {
        "schedule": "0 25 * * *",
        "timeZone": "Europe/Zurch",
        "duration": "4 h",
        "template": {"metadata": metadata, "spec": {"owners": owners, "template": template}},
    }
    raw: dict[str, Any] = {"apiVersion": "scheduling.holdfast.io/v1alpha1"}
    raw |= {"kind": "ReservationSchedule", "metadata": {"name": "wrong"}}
    with ServedCluster(tmp_path) as cluster:
        answer = cluster.server.post(path, {**raw, "spec": spec})
        assert answer.code == 422
        assert [each["field"] for each in answer.body["details"]["causes"]] == [
            "spec.duration",
            "spec.timeZone",
            "spec.schedule",
            "spec.template.metadata.annotations[holdfast.io/at-end]",
        ]
        assert len(answer.warnings) == 1 and "did you mean holdfast.io/lead?" in answer.warnings[0]
        assert cluster.server.post(path, {**raw, "spec": "x"}).code == 422
