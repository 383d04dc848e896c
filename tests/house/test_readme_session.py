"""The commands of the README that need a cluster, typed one after the other in one shell.

`house/test_documented_commands.py` checks every command by itself. This is about their order: each
works after those above it, with nothing typed in between.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from house.markdown import blocks, commands
from house.source import REPOSITORY

PROGRAMS = sysconfig.get_path("scripts")
ELSEWHERE = {
    "make demo": "tests/cli/test_demo.py runs it",
    ". .venv/bin/activate": "the environment of the tests is used",
    "holdfast simulate": "house/test_documented_commands.py runs it",
    "holdfast config": "house/test_documented_commands.py runs it",
    "holdfast bench": "house/test_documented_commands.py runs it",
    "holdfast run": "it does not end",
    "kubectl apply -f deploy": "tests/deploy applies them",
    "helm": "it needs helm",
}
"""Beginnings of commands that are not typed here, with the reason."""


def typed() -> list[str]:
    page = REPOSITORY / "README.md"
    found = [each.line for block in blocks() if block.page == page for each in commands(block)]
    assert all(any(line.startswith(each) for line in found) for each in ELSEWHERE)
    return [line for line in found if not line.startswith(tuple(ELSEWHERE))]


@pytest.mark.skipif(not shutil.which("kubectl", path=PROGRAMS), reason="needs kubectl of the extra")
def test_the_commands_work_in_their_order(tmp_path: Path) -> None:
    lines = ["set -e", "trap 'kill %1; wait' EXIT"]
    for line in typed():
        lines.append(line)
        if line.startswith("holdfast up"):
            assert line.endswith("&")
            lines.append(
                "for i in $(seq 300); do test -f holdfast.kubeconfig && break; sleep 0.1; done"
            )
    assert len(lines) > 12
    done = subprocess.run(
        ["bash", "-x", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for shown in ("node-3", "web-3", "more", "Pod default/big is Pending."):
        assert shown in done.stdout, done.stdout
