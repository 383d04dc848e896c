"""Configuration files as every command reads them."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from harness.team_quotas import TeamQuotas, config
from holdfast.api.raw_objects import ObjectKind
from holdfast.cli.app import app
from holdfast.cli.options import Failure
from holdfast.local import setup as setups
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE

EXTENDERS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders: [{urlPrefix: "http://extender.example", filterVerb: filter, ignorable: true}]
"""
NODE = "{apiVersion: v1, kind: Node, metadata: {name: n1}}"


@pytest.mark.parametrize(
    "command",
    [
        ["config", "validate", "config.yaml"],
        ["simulate", "node.yaml", "--config", "config.yaml"],
        ["up", "--config", "config.yaml"],
        ["run", "--config", "config.yaml"],
        ["explain", "pod", "p", "--config", "config.yaml"],
    ],
    ids=lambda command: command[0],
)
def test_no_command_starts_with_extenders(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(EXTENDERS)
    (tmp_path / "node.yaml").write_text(NODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    result = CliRunner().invoke(app, command)
    failure = result.exception
    assert isinstance(failure, Failure)
    assert failure.status == 1
    assert failure.lines == [
        "config.yaml: extenders: HTTP extenders are not supported: Holdfast makes no network "
        "requests while scheduling. Write a plugin in Python instead (docs/plugins.md) and remove "
        "this field"
    ]


class Others(Plugin):
    name = "Others"
    reads_objects = (
        ObjectKind("", "v1", "ConfigMap", "configmaps"),
        ObjectKind("example.com", "v1", "Site", "sites", namespaced=False),
        *TeamQuotas.reads_objects,
    )

    def pre_enqueue(self, pod: object) -> str:
        return ""


@pytest.fixture
def with_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a package with these plugins were installed; both are enabled in plugins.yaml."""
    monkeypatch.setattr(setups, "installed_plugins", lambda: Registry([*IN_TREE, TeamQuotas, Others]))
    monkeypatch.chdir(tmp_path)
    mapping = config()
    mapping["profiles"][0]["plugins"]["multiPoint"]["enabled"].append({"name": "Others"})
    (tmp_path / "plugins.yaml").write_text(yaml.safe_dump(mapping))


@pytest.mark.usefixtures("with_plugins")
def test_what_plugins_must_be_allowed_is_printed() -> None:
    result = CliRunner().invoke(app, ["config", "rbac", "plugins.yaml", "--service-account", "x/y"])
    role, binding = yaml.safe_load_all(result.stdout)
    for document in (role, binding):
        kubernetes_validate.validate(document, "1.35", strict=True)
    verbs = ["get", "list", "watch"]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
        {"apiGroups": ["example.com"], "resources": ["sites", "teamquotas"], "verbs": verbs},
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "y", "namespace": "x"}]


@pytest.mark.usefixtures("with_plugins")
def test_nothing_more_must_be_allowed_where_no_enabled_plugin_reads_objects() -> None:
    result = CliRunner().invoke(app, ["config", "rbac"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no enabled plugin declares reads_objects; no ClusterRole is needed\n"
    failure = CliRunner().invoke(app, ["config", "rbac", "--service-account", "holdfast"]).exception
    assert isinstance(failure, Failure)
    assert failure.lines == ["--service-account: expected NAMESPACE/NAME, got 'holdfast'"]


@pytest.mark.usefixtures("with_plugins")
def test_a_valid_file_is_shown_with_what_its_plugins_read() -> None:
    result = CliRunner().invoke(app, ["config", "validate", "plugins.yaml"])
    assert result.stdout.splitlines() == [
        "plugins.yaml: valid (profiles: holdfast-scheduler)",
        "plugins.yaml: Others: reads ConfigMap of v1",
        "plugins.yaml: Others: reads Site of example.com/v1",
        "plugins.yaml: Others, TeamQuotas: reads TeamQuota of example.com/v1",
    ]


def test_an_invalid_added_affinity_is_reported_with_file_and_field(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    term = "{matchExpressions: [{key: a, operator: Inn, values: [b]}]}"
    added = f"requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}"
    config.write_text(
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: "
        f"[{{pluginConfig: [{{name: NodeAffinity, args: {{addedAffinity: {{{added}}}}}}}]}}]}}"
    )
    result = CliRunner().invoke(app, ["config", "validate", str(config)])
    assert result.exit_code == 1
    assert str(result.exception) == (
        f"{config}: profiles[0].pluginConfig[0].args.addedAffinity"
        ".requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
        '.operator: Unsupported value: "Inn": supported values: "DoesNotExist", "Exists", "Gt", "In", '
        '"Lt", "NotIn"'
    )
