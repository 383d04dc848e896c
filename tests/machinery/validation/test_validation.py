"""Well-formed objects that are refused: which field, for what reason, in which words."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.machinery.schema import apply_defaults, read_object
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.machinery.validation.kinds import check_values

CATALOGUE = Catalogue()

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def volume_on(affinity: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/a"},
        "nodeAffinity": affinity,
    }
    return {"spec": spec}


def complaints(group: str, plural: str, raw: dict[str, Any]) -> list[str]:
    type = CATALOGUE.resource(group, "v1", plural)
    assert type is not None
    read, problems = read_object(type, {"apiVersion": type.api_version, "kind": type.kind, **raw})
    assert not problems
    return [problem.text for problem in check_values(type, apply_defaults(type, read))]


def container(**more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", **more}


def resources(**more: Any) -> dict[str, Any]:
    return {"containers": [container(resources=more)]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": []}, ["spec.containers: Required value"]),
        (
            {"containers": [{}]},
            [
                "spec.containers[0].name: Required value",
                "spec.containers[0].image: Required value",
            ],
        ),
        (
            {"containers": [container(name="A_")]},
            [f'spec.containers[0].name: Invalid value: "A_": {LABEL}'],
        ),
        (
            {"containers": [container(), container()]},
            ['spec.containers[1].name: Duplicate value: "c"'],
        ),
        (
            {"containers": [container()], "initContainers": [container()]},
            ['spec.initContainers[0].name: Duplicate value: "c"'],
        ),
        (
            {"restartPolicy": "No"},
            [
                'spec.restartPolicy: Unsupported value: "No": '
                'supported values: "Always", "OnFailure", "Never"'
            ],
        ),
        (
            {"containers": [container(imagePullPolicy="Maybe")]},
            [
                'spec.containers[0].imagePullPolicy: Unsupported value: "Maybe": '
                'supported values: "Always", "IfNotPresent", "Never"'
            ],
        ),
        (
            {"containers": [container(ports=[{"containerPort": 70000}])]},
            [
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: "
                "must be between 1 and 65535, inclusive"
            ],
        ),
        (
            {
                "containers": [
                    container(
                        ports=[
                            {"containerPort": 80, "hostPort": 80},
                            {"containerPort": 81, "hostPort": 80},
                        ]
                    )
                ]
            },
            ['spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//80"'],
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "v", "mountPath": "/a"}])]},
            ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
        ),
        (
            resources(requests={"cpu": "2"}, limits={"cpu": "1"}),
            [
                'spec.containers[0].resources.requests: Invalid value: "2": '
                "must be less than or equal to cpu limit of 1"
            ],
        ),
        (
            resources(requests={"cpu": "-1"}),
            [
                'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": '
                "must be greater than or equal to 0"
            ],
        ),
        (
            resources(requests={"foo": "1"}),
            [
                'spec.containers[0].resources.requests[foo]: Invalid value: "foo": '
                "must be a standard resource type or fully qualified",
                'spec.containers[0].resources.requests[foo]: Invalid value: "foo": '
                "must be a standard resource for containers",
            ],
        ),
        (
            resources(requests={"x.y/z": "1"}),
            [
                "spec.containers[0].resources.limits: Required value: "
                "Limit must be set for non overcommitable resources"
            ],
        ),
        (
            resources(requests={"x.y/z": "1"}, limits={"x.y/z": "2"}),
            [
                'spec.containers[0].resources.requests: Invalid value: "1": '
                "must be equal to x.y/z limit of 2"
            ],
        ),
        (
            {"nodeSelector": {"a b": "c d"}},
            [
                f'spec.nodeSelector: Invalid value: "a b": {KEY}',
                f'spec.nodeSelector: Invalid value: "c d": {VALUE}',
            ],
        ),
        (
            {"tolerations": [{"operator": "Equal"}]},
            [
                'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when '
                '`key` is empty, which means "match all values and all keys"'
            ],
        ),
        (
            {"tolerations": [{"key": "a", "effect": "Foo"}]},
            [
                'spec.tolerations[0].effect: Unsupported value: "Foo": '
                'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
            ],
        ),
        (
            {"topologySpreadConstraints": [{}]},
            [
                "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: "
                "must be greater than zero",
                "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
                'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "": '
                'supported values: "DoNotSchedule", "ScheduleAnyway"',
            ],
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}},
                }
            },
            [
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
                ".nodeSelectorTerms: Required value: must have at least one node selector term"
            ],
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 101, "podAffinityTerm": {"topologyKey": "zone"}}
                        ]
                    }
                }
            },
            [
                "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
                ".weight: Invalid value: 101: must be in the range 1-100"
            ],
        ),
        (
            {"schedulingGates": [{"name": "x"}, {"name": "x"}]},
            ['spec.schedulingGates[1]: Duplicate value: "x"'],
        ),
        (
            {"schedulingGates": [{"name": "x"}], "nodeName": "n"},
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
            ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
            ["spec.volumes[0].persistentVolumeClaim.claimName: Required value"],
        ),
        (
            {"resources": {"limits": {"x.y/z": "1"}}},
            [
                'spec.resources.limits[x.y/z]: Unsupported value: "x.y/z": '
                'supported values: "cpu", "hugepages-", "memory"'
            ],
        ),
        (
            {"containers": [container(livenessProbe={})]},
            ["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
        ),
        ({"activeDeadlineSeconds": 1}, []),
        (
            {"activeDeadlineSeconds": 0},
            [
                "spec.activeDeadlineSeconds: Invalid value: 0: "
                "must be between 1 and 2147483647, inclusive"
            ],
        ),
    ],
)
def test_pods(spec: dict[str, Any], expected: list[str]) -> None:
    whole = {"containers": [container()], **spec}
    assert complaints("", "pods", {"metadata": {"name": "p"}, "spec": whole}) == expected


@pytest.mark.parametrize(
    ("group", "plural", "before"),
    [
        ("apps", "deployments", "spec.template"),
        ("apps", "statefulsets", "spec.template"),
        ("batch", "jobs", "spec.template"),
        ("batch", "cronjobs", "spec.jobTemplate.spec.template"),
    ],
)
def test_templates_are_validated_like_pods(group: str, plural: str, before: str) -> None:
    raw: dict[str, Any] = {"metadata": {"labels": {"a b": "c"}}, "spec": {"containers": [{}]}}
    for step in reversed(before.split(".")):
        raw = {step: raw}
    found = complaints(group, plural, raw)
    own = ("spec.schedule", f"{before}.spec.restartPolicy")  # which a CronJob must have
    assert [each for each in found if not each.startswith(own)] == [
        f'{before}.labels: Invalid value: "a b": {KEY}',
        f"{before}.spec.containers[0].name: Required value",
        f"{before}.spec.containers[0].image: Required value",
    ]


@pytest.mark.parametrize(("name", "is_found"), [("data", True), ("other", False)])
def test_pods_of_statefulsets_mount_the_volumes_of_their_claims(name: str, is_found: bool) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    raw = {
        "metadata": {"name": "db"},
        "spec": {
            "selector": {"matchLabels": {"app": "db"}},
            "serviceName": "db",
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [container(volumeMounts=mounts)]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": name}}],
        },
    }
    where = "spec.template.spec.containers[0].volumeMounts[0].name"
    expected = [] if is_found else [f'{where}: Not found: "data"']
    assert complaints("apps", "statefulsets", raw) == expected


@pytest.mark.parametrize(
    ("group", "plural", "raw", "expected"),
    [
        (
            "",
            "nodes",
            {"spec": {"taints": [{"key": "a"}, {"key": "b", "effect": "Foo"}]}},
            [
                "metadata.taints[0].effect: Required value",
                'metadata.taints[1].effect: Unsupported value: "Foo": '
                'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
            ],
        ),
        (
            "",
            "nodes",
            {"status": {"capacity": {"x.y/z": "1500m"}, "allocatable": {"cpu": "1"}}},
            ['status.capacity.x.y/z: Invalid value: "1500m": must be an integer'],
        ),
        (
            "policy",
            "poddisruptionbudgets",
            {"spec": {"minAvailable": -1}},
            ["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            "policy",
            "poddisruptionbudgets",
            {"spec": {"maxUnavailable": "120%"}},
            ['spec.maxUnavailable: Invalid value: "120%": must not be greater than 100%'],
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            {"metadata": {"name": "x"}, "value": 2_000_000_000},
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            {"metadata": {"name": "system-x"}, "value": 2_000_000_000},
            [],
        ),
        (
            "",
            "persistentvolumeclaims",
            {"spec": {}},
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value",
            ],
        ),
        (
            "",
            "persistentvolumes",
            {"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "0"}}},
            [
                'spec.capacity[storage]: Invalid value: "0": must be greater than zero',
                "spec: Required value: must specify a volume type",
            ],
        ),
        (
            "",
            "persistentvolumes",
            volume_on(
                {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "Near"}]}
                        ]
                    }
                }
            ),
            [
                "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].operator: "
                'Invalid value: "Near": not a valid selector operator'
            ],
        ),
        (
            "",
            "persistentvolumes",
            volume_on({}),
            ["spec.nodeAffinity.required: Required value: must specify required node constraints"],
        ),
    ],
)
def test_other_kinds(group: str, plural: str, raw: Any, expected: list[str]) -> None:
    assert complaints(group, plural, raw) == expected
