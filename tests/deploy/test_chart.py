"""The Helm chart: what it makes of which values, and which values it refuses."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.chart import CHART, ROOT, SCHEMA, VALUES, problems, rendered, rendered_files
from holdfast import __version__
from holdfast.scheduler.framework.config import load
from holdfast.scheduler.framework.config.document import ConfigurationDocument
from holdfast.scheduler.plugins import registry

Raw = dict[str, Any]

_UNKNOWN_TO_KUBERNETES = ("ServiceMonitor", "PrometheusRule")


def _one(documents: list[Raw], kind: str) -> Raw:
    [found] = [
        document
        for document in documents
        if document["kind"] == kind and not document["metadata"]["name"].endswith("-dashboards")
    ]
    return found


def _container(documents: list[Raw]) -> Raw:
    [only] = _one(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(only)


def _config(documents: list[Raw]) -> Raw:
    config: Raw = yaml.safe_load(_one(documents, "ConfigMap")["data"]["config.yaml"])
    return config


CASES: dict[str, Raw] = {
    "as it comes": {},
    "everything on": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True},
        "installCRDs": True,
        "pluginResources": [{"apiGroups": ["example.com"], "resources": ["teamquotas", "widgets"]}],
        "imagePullSecrets": [{"name": "registry"}],
        "podLabels": {"team": "platform"},
        "podAnnotations": {"a": "b"},
        "serviceAccount": {"annotations": {"a": "b"}},
        "service": {"annotations": {"a": "b"}},
        "extraArgs": ["--leader-elect"],
        "extraEnv": [{"name": "A", "value": "b"}],
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ],
        "schedulerName": "default-scheduler",
        "hostNetwork": True,
    },
    "everything off": {
        "podDisruptionBudget": {"enabled": False},
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False},
        "priorityClassName": "",
        "nodeSelector": None,
        "resources": None,
        "livenessProbe": {"periodSeconds": None, "timeoutSeconds": None, "failureThreshold": None},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_what_comes_out_is_what_kubernetes_accepts(case: str) -> None:
    assert problems(CASES[case]) == []
    documents = rendered(CASES[case])
    for document in documents:
        if document["kind"] not in _UNKNOWN_TO_KUBERNETES:
            kubernetes_validate.validate(document, "1.35", strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(names) == len(set(names))
    assert "Deployment" in {kind for kind, _ in names}


@pytest.mark.parametrize("case", CASES)
def test_the_configuration_is_one_the_scheduler_reads(case: str) -> None:
    configuration = load(_config(rendered(CASES[case])), registry().implements())
    assert [profile.scheduler_name for profile in configuration.profiles] == ["holdfast-scheduler"]


def test_every_field_of_the_configuration_passes_through() -> None:
    everything: Raw = {
        "parallelism": 4,
        "leaderElection": {"leaderElect": False, "leaseDuration": "20s", "resourceName": "mine"},
        "clientConnection": {"qps": 5, "burst": 10},
        "enableProfiling": False,
        "enableContentionProfiling": False,
        "percentageOfNodesToScore": 50,
        "podInitialBackoffSeconds": 2,
        "podMaxBackoffSeconds": 20,
        "delayCacheUntilActive": True,
        "profiles": [
            {
                "schedulerName": "mine",
                "plugins": {"score": {"disabled": [{"name": "*"}]}},
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["a/b"]}}],
            }
        ],
        "extenders": [],
        "actions": [{"name": "allocate"}],
        "configurations": [{"name": "allocate", "arguments": {}}],
        "dynamicReservation": {"onFailure": "Bind"},
    }
    fields = set(SCHEMA["properties"]["config"]["properties"]) - {"apiVersion", "kind"}
    assert set(everything) == fields
    assert problems({"config": everything}) == []
    config = _config(rendered({"config": everything}))
    election = config.pop("leaderElection")
    assert election.pop("resourceNamespace") == "holdfast-system"
    assert election == everything.pop("leaderElection")
    assert config.pop("apiVersion") == "kubescheduler.config.k8s.io/v1"
    assert config.pop("kind") == "KubeSchedulerConfiguration"
    assert config == everything


def test_extenders_are_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ValueError, match=r"config\.extenders: HTTP extenders .* Write a plugin"):
        rendered({"config": {"extenders": [{"urlPrefix": "https://extender.example"}]}})


def test_the_schema_knows_the_fields_the_scheduler_knows() -> None:
    known = {_camel(name) for name in ConfigurationDocument.__struct_fields__}
    assert set(SCHEMA["properties"]["config"]["properties"]) == known


def test_every_value_is_in_the_schema_and_used() -> None:
    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"}
    text = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    for name in VALUES:
        assert f".Values.{name}" in text, name


NONSENSE: dict[str, tuple[Raw, str]] = {
    "an unknown value": ({"replicas": 2}, ""),
    "replicas as text": ({"replicaCount": "two"}, "replicaCount"),
    "negative replicas": ({"replicaCount": -1}, "replicaCount"),
    "no image": ({"image": {"repository": ""}}, "image.repository"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "image.digest"),
    "an unknown pull policy": ({"image": {"pullPolicy": "Sometimes"}}, "image.pullPolicy"),
    "a privileged port": ({"port": 80}, "port"),
    "a misspelt field of the configuration": ({"config": {"profile": []}}, "config"),
    "another version of the configuration": (
        {"config": {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}},
        "config.apiVersion",
    ),
    "a profile that is a name": ({"config": {"profiles": ["mine"]}}, "config.profiles.0"),
    "plugin arguments without a plugin": (
        {"config": {"profiles": [{"pluginConfig": [{"args": {}}]}]}},
        "config.profiles.0.pluginConfig.0",
    ),
    "a lock that is no lease": (
        {"config": {"leaderElection": {"resourceLock": "endpoints"}}},
        "config.leaderElection.resourceLock",
    ),
    "percent above a hundred": (
        {"config": {"percentageOfNodesToScore": 101}},
        "config.percentageOfNodesToScore",
    ),
    "secrets for plugins": (
        {"pluginResources": [{"apiGroups": [""], "resources": ["secrets"]}]},
        "pluginResources.0.resources.0",
    ),
    "everything for plugins": (
        {"pluginResources": [{"apiGroups": ["example.com"], "resources": ["*"]}]},
        "pluginResources.0.resources.0",
    ),
    "every group for plugins": (
        {"pluginResources": [{"apiGroups": ["*"], "resources": ["widgets"]}]},
        "pluginResources.0.apiGroups.0",
    ),
    "verbs for plugins": (
        {"pluginResources": [{"apiGroups": ["a.b"], "resources": ["c"], "verbs": ["delete"]}]},
        "pluginResources.0",
    ),
    "an argument that is none": ({"extraArgs": ["leader-elect"]}, "extraArgs.0"),
    "a log level that is none": ({"logLevel": "loud"}, "logLevel"),
    "not a quantity": ({"resources": {"limits": {"memory": "lots"}}}, "resources.limits.memory"),
    "a probe with an unknown field": ({"livenessProbe": {"period": 1}}, "livenessProbe"),
    "a budget that is neither number nor percent": (
        {"podDisruptionBudget": {"maxUnavailable": "one"}},
        "podDisruptionBudget.maxUnavailable",
    ),
    "an interval without unit": ({"serviceMonitor": {"interval": "30"}}, "serviceMonitor.interval"),
    "a label that is a number": ({"podLabels": {"a": 1}}, "podLabels.a"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_refused(case: str) -> None:
    changes, path = NONSENSE[case]
    assert path in problems(changes)


def test_arguments_and_crds() -> None:
    plain, with_crds = rendered(), rendered({"installCRDs": True, "extraArgs": ["--no-leader-elect"]})
    assert "--install-crds" not in _container(plain)["args"]
    assert _container(with_crds)["args"][-2:] == ["--install-crds", "--no-leader-elect"]

    def may_install(documents: list[Raw]) -> bool:
        rules = _one(documents, "ClusterRole")["rules"]
        return any("customresourcedefinitions" in rule["resources"] for rule in rules)

    assert (may_install(plain), may_install(with_crds)) == (False, True)


def test_what_plugins_read_is_allowed_to_be_read() -> None:
    resources = [
        {"apiGroups": ["example.com"], "resources": ["teamquotas", "widgets"]},
        {"apiGroups": [""], "resources": ["configmaps"]},
    ]
    before = _one(rendered(), "ClusterRole")["rules"]
    rules = _one(rendered({"pluginResources": resources}), "ClusterRole")["rules"]
    verbs = ["get", "list", "watch"]
    assert rules == [*before, *({**each, "verbs": verbs} for each in resources)]


DIGEST = "sha256:" + "a" * 64
IMAGES = {
    "as it comes": ({}, f"holdfast:{__version__}"),
    "a tag": ({"image": {"tag": "main"}}, "holdfast:main"),
    "a digest": (
        {"image": {"tag": "x", "digest": "sha256:" + "a" * 64}},
        "holdfast@sha256:" + "a" * 64,
    ),
}


@pytest.mark.parametrize("case", IMAGES)
def test_the_image(case: str) -> None:
    changes, image = IMAGES[case]
    assert _container(rendered(changes))["image"] == image


NAMES = {
    "a release of the chart's name": ("holdfast", {}, "holdfast"),
    "a release of another name": ("prod", {}, "prod-holdfast"),
    "a name of one's own": ("prod", {"fullnameOverride": "sched"}, "sched"),
    "a name for the chart": ("prod", {"nameOverride": "hf"}, "prod-hf"),
    "a long one": ("x" * 60, {}, ("x" * 60 + "-holdfast")[:63].rstrip("-")),
}


@pytest.mark.parametrize("case", NAMES)
def test_names(case: str) -> None:
    release, changes, name = NAMES[case]
    documents = rendered(changes, release, "elsewhere")
    assert _one(documents, "Deployment")["metadata"]["name"] == name
    binding = _one(documents, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == name
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "elsewhere"}]
    assert _config(documents)["leaderElection"]["resourceNamespace"] == "elsewhere"


def test_the_lease_is_where_the_configuration_puts_it() -> None:
    election = {"resourceNamespace": "kube-system", "resourceName": "mine"}
    documents = rendered({"config": {"leaderElection": election}})
    role = _one(documents, "Role")
    assert role["metadata"]["namespace"] == "kube-system"
    assert ["mine"] in [rule.get("resourceNames") for rule in role["rules"]]
    assert _config(documents)["leaderElection"]["resourceNamespace"] == "kube-system"


def test_a_changed_configuration_is_a_changed_pod() -> None:
    def checksum(changes: Raw) -> str:
        template = _one(rendered(changes), "Deployment")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({"replicaCount": 3})
    assert checksum({}) != checksum({"config": {"podMaxBackoffSeconds": 5}})


def test_versions_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == chart["version"] == __version__
    assert "holdfast-scheduler" in rendered_files({}, "a", "b")["NOTES.txt"]


def test_the_chart_brings_the_definitions() -> None:
    assert (CHART / "crds").resolve() == ROOT / "deploy" / "crds"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
