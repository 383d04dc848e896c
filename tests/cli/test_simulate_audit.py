"""`holdfast simulate --audit`: a wrong write of the scheduler is reported, and ends with status 2."""

from pathlib import Path

import pytest

from holdfast.cli.options import Failure
from holdfast.cli.simulate import SimulateOutput, simulate
from holdfast.scheduler.plugins.node_ports import NodePorts

SCENARIO = """
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4", memory: 8Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: one}
spec: {containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other, annotations: {sim.holdfast.io/at: 5s}}
spec: {containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two pods with one port, and a scheduler that does not look at ports."""
    monkeypatch.setattr(NodePorts, "filter", lambda self, cls: None)
    file = tmp_path / "ports.yaml"
    file.write_text(SCENARIO)
    return str(file)


def test_a_rule_that_is_broken_ends_the_run(scenario: str) -> None:
    with pytest.raises(Failure) as failed:
        simulate([scenario], output=SimulateOutput.JSON, audit=True)
    assert failed.value.status == 2
    assert failed.value.lines[0] == (
        "invariant broken at 5s: a host port is in use twice: Node/n1: "
        "Pod/default/one and Pod/default/other: 0.0.0.0:80/TCP (by Pod/default/other)"
    )


def test_without_audit_nothing_is_reported(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    simulate([scenario], output=SimulateOutput.JSON, audit=False)
    assert '"Bound"' in capsys.readouterr().out
