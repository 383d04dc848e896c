"""Blocks that start a cluster, pasted as a whole into bash, with the installed programs.

`house/test_documented_commands.py` runs every command of every page; this is about what it does not
have: the processes, `kubectl holdfast`, and that the line after `holdfast up --detach` has a cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.up_process import end_detached
from house.markdown import Block, blocks, commands
from house.shell import is_run
from house.source import REPOSITORY

PROGRAMS = sysconfig.get_path("scripts")
STARTS = [
    block
    for block in blocks()
    if block.info == "console" and "up" in block.text and "--detach" in block.text
]
README = [
    "holdfast up --nodes 3 --detach",
    "export KUBECONFIG=$PWD/holdfast.kubeconfig",
    "kubectl get nodes",
    "holdfast reserve --cpu 4 --memory 8Gi --owner app=web --ttl 2h --name more --dry-run > more.yaml",
    "kubectl apply -f more.yaml",
    "kubectl holdfast get reservations      # the same commands as a kubectl plugin",
    "holdfast down                          # stops the cluster of `holdfast up`",
]

pytestmark = pytest.mark.skipif(
    not shutil.which("kubectl", path=PROGRAMS), reason="needs kubectl of the extra"
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    try:
        yield tmp_path
    finally:
        end_detached(tmp_path / "printed")


@pytest.mark.parametrize("block", STARTS, ids=lambda block: block.where.replace("/", "-"))
def test_a_block_that_starts_a_cluster_can_be_pasted(block: Block, folder: Path) -> None:
    for other in blocks():
        if other.page == block.page and other.file_name:
            (folder / other.file_name).write_text(other.text)
    done = paste([each.line for each in commands(block)], folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_commands_of_the_readme_work_in_their_order(folder: Path) -> None:
    page = REPOSITORY / "README.md"
    found = [each.line for block in blocks() if block.page == page for each in commands(block)]
    assert [line for line in found if line in README] == README
    done = paste(README, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for shown in ("node-3", "more"):
        assert shown in done.stdout, done.stdout


def test_no_page_starts_a_cluster_that_the_next_line_cannot_use() -> None:
    racing = [
        block.where
        for block in blocks()
        for command in commands(block)
        if block.info == "console" and command.line.startswith("holdfast up") and "&" in command.line
    ]
    assert not racing


def paste(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the lines up to the first that waits for the cluster's clock. What the first prints is in
    `printed`, too."""
    typed = ["set -e"]
    for line in lines:
        if line.startswith("kubectl wait"):
            break
        if is_run(line.split()) and "activate" not in line:
            typed.append(f"{line} | tee printed" if "--detach" in line else line)
    return subprocess.run(
        ["bash", "-x", "-o", "pipefail", "-c", "\n".join(typed)],
        cwd=folder,
        env=os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
