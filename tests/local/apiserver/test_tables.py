"""One line per object, as kubectl prints it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.times import format_time, parse_time
from holdfast.local.apiserver.tables.columns import human_duration, selector_text
from holdfast.local.apiserver.tables.render import Budget, compile_path, printer_of, table
from holdfast.machinery.schema.catalogue import Catalogue

NOW = parse_time("2026-01-02T00:00:00Z")
CATALOGUE = Catalogue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (735 * 86400, "2y5d"),
        (3000 * 86400, "8y"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def cells(group: str, plural: str, raw: dict[str, Any], version: str = "v1") -> list[Any]:
    type = CATALOGUE.resource(group, version, plural)
    assert type is not None
    raw = {
        **raw,
        "metadata": {
            "name": "x",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **raw.get("metadata", {}),
        },
    }
    made = table(type, [raw], {}, NOW, "meta.k8s.io/v1")
    found: list[Any] = made["rows"][0]["cells"]
    assert len(found) == len(printer_of(type).columns)
    return found


def status(**more: Any) -> dict[str, Any]:
    return {"name": "c", "ready": False, "restartCount": 0, "state": {}, **more}


ENDED_BEFORE = {"terminated": {"finishedAt": format_time(NOW - 300)}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"status": {"phase": "Pending"}}, ["0/1", "Pending", "0"]),
        (
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [status(ready=True, state={"running": {}})],
                }
            },
            ["1/1", "Running", "0"],
        ),
        (
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        status(
                            restartCount=3,
                            lastState=ENDED_BEFORE,
                            state={"waiting": {"reason": "CrashLoopBackOff"}},
                        )
                    ],
                }
            },
            ["0/1", "CrashLoopBackOff", "3 (5m ago)"],
        ),
        (
            {
                "status": {
                    "phase": "Succeeded",
                    "containerStatuses": [
                        status(state={"terminated": {"exitCode": 0, "reason": "Completed"}})
                    ],
                }
            },
            ["0/1", "Completed", "0"],
        ),
        (
            {
                "status": {
                    "phase": "Failed",
                    "containerStatuses": [status(state={"terminated": {"exitCode": 3}})],
                }
            },
            ["0/1", "ExitCode:3", "0"],
        ),
        (
            {
                "spec": {"containers": [{}], "initContainers": [{"name": "i"}, {"name": "j"}]},
                "status": {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        status(name="i", state={"terminated": {"exitCode": 0}}),
                        status(name="j", state={"running": {}}),
                    ],
                },
            },
            ["0/1", "Init:1/2", "0"],
        ),
        (
            {
                "spec": {
                    "containers": [{}],
                    "initContainers": [{"name": "side", "restartPolicy": "Always"}],
                },
                "status": {
                    "phase": "Running",
                    "initContainerStatuses": [
                        status(name="side", started=True, ready=True, restartCount=1)
                    ],
                    "containerStatuses": [status(ready=True, state={"running": {}})],
                },
            },
            ["2/2", "Running", "1"],
        ),
        (
            {
                "metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"},
                "status": {"phase": "Running"},
            },
            ["0/1", "Terminating", "0"],
        ),
        (
            {
                "status": {
                    "phase": "Pending",
                    "conditions": [
                        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
                    ],
                }
            },
            ["0/1", "SchedulingGated", "0"],
        ),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, ["0/1", "Evicted", "0"]),
    ],
)
def test_pods(pod: dict[str, Any], expected: list[str]) -> None:
    assert cells("", "pods", {"spec": {"containers": [{}]}, **pod})[1:4] == expected


READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("group", "plural", "raw", "expected"),
    [
        ("", "nodes", {"status": {"conditions": [READY]}}, ["x", "Ready", "<none>", "24h", ""]),
        (
            "",
            "nodes",
            {
                "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
                "spec": {"unschedulable": True},
                "status": {"nodeInfo": {"kubeletVersion": "v1"}},
            },
            ["x", "Unknown,SchedulingDisabled", "worker", "24h", "v1"],
        ),
        (
            "apps",
            "deployments",
            {"spec": {"replicas": 3}, "status": {"readyReplicas": 2, "updatedReplicas": 3}},
            ["x", "2/3", 3, 0, "24h"],
        ),
        ("apps", "replicasets", {"spec": {"replicas": 3}}, ["x", 3, 0, 0, "24h"]),
        ("apps", "statefulsets", {"spec": {"replicas": 3}}, ["x", "0/3", "24h"]),
        (
            "apps",
            "daemonsets",
            {"status": {"desiredNumberScheduled": 2, "numberReady": 1}},
            ["x", 2, 0, 1, 0, 0, "<none>", "24h"],
        ),
        (
            "batch",
            "jobs",
            {
                "spec": {"completions": 2},
                "status": {
                    "succeeded": 2,
                    "startTime": "2026-01-01T00:00:00Z",
                    "completionTime": "2026-01-01T00:01:30Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                },
            },
            ["x", "Complete", "2/2", "90s", "24h"],
        ),
        (
            "",
            "services",
            {
                "spec": {
                    "clusterIP": "10.0.0.1",
                    "ports": [{"port": 80}, {"port": 9, "nodePort": 30009}],
                }
            },
            ["x", "ClusterIP", "10.0.0.1", "<none>", "80/TCP,9:30009/TCP", "24h"],
        ),
        (
            "policy",
            "poddisruptionbudgets",
            {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 2}},
            ["x", "50%", "N/A", 2, "24h"],
        ),
        (
            "",
            "persistentvolumeclaims",
            {
                "spec": {"volumeName": "pv", "storageClassName": "fast", "volumeMode": "Block"},
                "status": {
                    "phase": "Bound",
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                },
            },
            ["x", "Bound", "pv", "1Gi", "RWO,RWX", "fast", "<unset>", "24h", "Block"],
        ),
        (
            "",
            "events",
            {
                "type": "Warning",
                "reason": "FailedScheduling",
                "message": " no room ",
                "involvedObject": {"kind": "Pod", "name": "p"},
                "eventTime": "2026-01-01T12:00:00.000000Z",
                "series": {"count": 4, "lastObservedTime": "2026-01-01T23:59:00.000000Z"},
                "reportingComponent": "holdfast",
                "reportingInstance": "here",
            },
            [
                "60s",
                "Warning",
                "FailedScheduling",
                "pod/p",
                "",
                "holdfast, here",
                "no room",
                "12h",
                4,
                "x",
            ],
        ),
        ("", "configmaps", {"data": {"a": "b"}, "binaryData": {"c": "d"}}, ["x", "2", "24h"]),
        ("", "namespaces", {"status": {"phase": "Active"}}, ["x", "Active", "24h"]),
        ("coordination.k8s.io", "leases", {"spec": {"holderIdentity": "me"}}, ["x", "me", "24h"]),
        ("node.k8s.io", "runtimeclasses", {"handler": "runc"}, ["x", "runc", "24h"]),
        (
            "networking.k8s.io",
            "ingresses",
            {
                "spec": {"rules": [{"host": host} for host in ("a", "b", "c", "d")]},
                "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}, {"hostname": "lb"}]}},
            },
            ["x", "<none>", "a,b,c + 1 more...", "10.0.0.2,lb", "80", "24h"],
        ),
        (
            "networking.k8s.io",
            "ingresses",
            {"spec": {"tls": [{}]}},
            ["x", "<none>", "*", "", "80, 443"],
        ),
        (
            "networking.k8s.io",
            "ingressclasses",
            {
                "metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
                "spec": {"controller": "c", "parameters": {"apiGroup": "g", "kind": "P", "name": "p"}},
            },
            ["x (default)", "c", "P.g/p", "24h"],
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
            {"spec": {"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}},
            ["x", 1, "v1/ConfigMap", "24h"],
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            {"spec": {"policyName": "p", "paramRef": {"name": "c"}}},
            ["x", "p", "*/c", "24h"],
        ),
        (
            "apps",
            "controllerrevisions",
            {
                "metadata": {
                    "ownerReferences": [
                        {
                            "apiVersion": "apps/v1",
                            "kind": "DaemonSet",
                            "name": "d",
                            "controller": True,
                        }
                    ]
                },
                "revision": 3,
            },
            ["x", "daemonset.apps/d", 3, "24h"],
        ),
        (
            "",
            "podtemplates",
            {
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                }
            },
            ["x", "c", "i", "a=b"],
        ),
        ("", "resourcequotas", {"spec": {"hard": {"pods": "5"}}, "status": {}}, ["x", "", "", "24h"]),
        (
            "",
            "resourcequotas",
            {
                "spec": {"hard": {"pods": "9"}},
                "status": {
                    "hard": {"pods": "5", "limits.cpu": "2", "cpu": "1"},
                    "used": {"pods": "3", "limits.cpu": "1"},
                },
            },
            ["x", "cpu: 0/1, pods: 3/5", "limits.cpu: 1/2", "24h"],
        ),
    ],
)
def test_kinds(group: str, plural: str, raw: dict[str, Any], expected: list[Any]) -> None:
    assert cells(group, plural, raw)[: len(expected)] == expected


@pytest.mark.parametrize(
    "type", [each for each in CATALOGUE if each.stored], ids=lambda each: each.plural
)
def test_every_kind_prints_an_almost_empty_object(type: Any) -> None:
    raw = {"metadata": {"name": "x"}}
    row = printer_of(type).cells(raw, NOW)
    assert len(row) == len(printer_of(type).columns)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, "<none>"),
        ({}, "<none>"),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"matchExpressions": [{"key": "k", "operator": "In", "values": ["y", "x"]}]}, "k in (x,y)"),
        ({"matchExpressions": [{"key": "k", "operator": "DoesNotExist"}]}, "!k"),
    ],
)
def test_selectors_as_they_are_typed(selector: dict[str, Any] | None, text: str) -> None:
    assert selector_text(selector) == text


DOCUMENT = {
    "a": {"b.c": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "deep": {"v": 9}},
    "flag": True,
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".flag", [True]),
        ("{.flag}", [True]),
        (".a.list[0].n", ["x"]),
        (".a.list[-1].n", ["y"]),
        (".a.list[*].v", [1, 2]),
        (".a.list[0:1].v", [1]),
        ('.a.list[?(@.n=="y")].v', [2]),
        (".a.list[?(@.v>1)].n", ["y"]),
        (".a.list[?(@.v)].n", ["x", "y"]),
        (r".a.b\.c", [1]),
        (".a['b.c']", [1]),
        (".a..v", [1, 2, 9]),
        (".nothing.here", []),
        (".a.list[7].n", []),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    assert compile_path(path)(DOCUMENT, Budget()) == found


@pytest.mark.parametrize("path", ["[", ".a[", ".a[?(@.b", ".a[?(b==1)]", ".a[?(@.b==x)]", ".a[::0]"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        compile_path(path)
