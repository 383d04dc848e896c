"""Where the binaries are."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

DEFAULT_FOLDER = "/usr/local/kubebuilder/bin"
SERVER = ("etcd", "kube-apiserver")
SCHEDULER = "kube-scheduler"
CONTROLLERS = "kube-controller-manager"


def folder() -> Path:
    return Path(os.environ.get("KUBEBUILDER_ASSETS") or DEFAULT_FOLDER)


@cache
def program_version(name: str) -> tuple[int, int]:
    """Major and minor version of a program of Kubernetes, by what it prints."""
    printed = subprocess.run(
        [folder() / name, "--version"], capture_output=True, text=True, check=True
    ).stdout
    major, minor = printed.split()[1].removeprefix("v").split(".")[:2]
    return int(major), int(minor)


def missing(*names: str) -> str:
    """Why tests that need these binaries cannot run; empty if they can."""
    where = folder()
    lacking = [name for name in names if not os.access(where / name, os.X_OK)]
    if not lacking:
        return ""
    return f"no {', '.join(lacking)} in {where}; KUBEBUILDER_ASSETS may name another folder"
