"""The addresses that `holdfast run` and `holdfast provisioner` listen on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from holdfast.cli.app import app

KUBECONFIG = {
    "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(KUBECONFIG))
    return path


def health_of(
    command: str, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, *flags: str
) -> tuple[str, int] | None:
    """The address in the settings that the process is started with."""
    found: list[tuple[str, int] | None] = []

    async def serve(settings: Any) -> None:
        found.append(settings.health)

    monkeypatch.setattr(f"holdfast.kube.{command}.run", serve)
    arguments = [command, "--kubeconfig", str(kubeconfig), *flags]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (health,) = found
    return health


@pytest.mark.parametrize(("command", "port"), [("run", 10259), ("provisioner", 10261)])
def test_only_in_a_pod_others_are_served_by_default(
    command: str, port: int, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert health_of(command, kubeconfig, monkeypatch) == ("127.0.0.1", port)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert health_of(command, kubeconfig, monkeypatch) == ("0.0.0.0", port)


def test_an_address_that_is_given_is_used(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    wanted = ("0.0.0.0", 10300)
    assert health_of("run", kubeconfig, monkeypatch, "--health-address", "0.0.0.0:10300") == wanted
    assert health_of("run", kubeconfig, monkeypatch, "--health-address", ":10300") == wanted
    assert health_of("run", kubeconfig, monkeypatch, "--health-address", "") is None
