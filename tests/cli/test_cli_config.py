"""Configuration files as every command reads them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.failing import Failure

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
        "config.yaml: extenders: HTTP extenders are not supported: Holdfast makes no requests while it "
        "decides. Write a plugin in Python instead (docs/plugins.md) and remove this field"
    ]
