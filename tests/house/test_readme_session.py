"""The first commands of the README as a reader types them: in bash, with the installed programs.

`house/test_documented_commands.py` runs every command of the page; this is about what it does not have:
the processes, a cluster in the background, and `kubectl holdfast`.
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
TYPED = [
    "holdfast up --nodes 3 &",
    "export KUBECONFIG=$PWD/holdfast.kubeconfig",
    "kubectl get nodes",
    "holdfast reserve --cpu 4 --memory 8Gi --owner app=web --ttl 2h --name more --dry-run > more.yaml",
    "kubectl apply -f more.yaml",
    "kubectl holdfast get reservations      # the same commands as a kubectl plugin",
]


@pytest.mark.skipif(not shutil.which("kubectl", path=PROGRAMS), reason="needs kubectl of the extra")
def test_the_commands_work_in_their_order(tmp_path: Path) -> None:
    page = REPOSITORY / "README.md"
    found = [each.line for block in blocks() if block.page == page for each in commands(block)]
    assert [line for line in found if line in TYPED] == TYPED
    ready = "for i in $(seq 300); do test -f holdfast.kubeconfig && break; sleep 0.1; done"
    lines = ["set -e", "trap 'kill %1; wait' EXIT", TYPED[0], ready, *TYPED[1:]]
    done = subprocess.run(
        ["bash", "-x", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for shown in ("node-3", "more"):
        assert shown in done.stdout, done.stdout
