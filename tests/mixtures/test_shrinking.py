"""A life that goes wrong is made small, and the file shows it again."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.scheduler.plugins.node_ports import NodePorts
from mixtures.life import Life, make_life
from mixtures.playing import play
from mixtures.shrinking import shrink, write


def blind_to_ports(monkeypatch: pytest.MonkeyPatch) -> Life:
    """A life in which a scheduler that does not look at ports gives one out twice."""
    monkeypatch.setattr(NodePorts, "filter", lambda self, cls: None)
    for seed in range(200):
        life = make_life(seed)
        if "ports" in life.themes and "port" in play(life).kind:
            return life
    raise AssertionError("no life gives a port out twice")


def test_a_life_is_shrunk_to_what_matters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    life = blind_to_ports(monkeypatch)
    outcome = play(life)
    small = shrink(life, outcome)
    assert small.outcome.kind == outcome.kind
    assert len(small.documents) <= 5 < len(life.documents)
    assert {"Node", "Pod"} <= {each["kind"] for each in small.documents}
    file = write(small, tmp_path, "life", "A test")
    monkeypatch.undo()
    command = [
        sys.executable,
        *("-m", "holdfast", "simulate", str(file), "--audit"),
        *("--config", str(tmp_path / "life.config.yaml"), "--until", f"{small.until}s"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # the scheduler that does look at ports keeps the rule
