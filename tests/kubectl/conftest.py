"""The real kubectl against a live server, over TLS and with its token."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.apiserver import LiveServer
from holdfast.api.crds import definitions
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.credentials import make_credentials
from holdfast.local.apiserver.system_objects import ensure_definition

_PATIENCE = 60


@dataclass(frozen=True)
class KubectlOutput:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Kubectl = Callable[..., KubectlOutput]


def kubectl_binary() -> str:
    own = Path(sysconfig.get_path("scripts")) / "kubectl"
    found = str(own) if own.exists() else shutil.which("kubectl")
    if found is None:
        pytest.skip("there is no kubectl here")
    return found


def kubectl_for(kubeconfig: Path, home: Path) -> Kubectl:
    """A function that runs kubectl and returns its output; it must succeed unless `fails`."""
    binary = kubectl_binary()
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home), "TMPDIR": str(home)}

    def run(
        *arguments: str, stdin: str | None = None, fails: bool = False, **more: str
    ) -> KubectlOutput:
        done = subprocess.run(
            [binary, f"--cache-dir={home}/cache", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            env={**environment, **more},
            check=False,
        )
        output = KubectlOutput(done.returncode, done.stdout, done.stderr)
        assert (done.returncode != 0) is fails, f"kubectl {' '.join(arguments)}: {output}"
        return output

    return run


def _our_kinds(cluster: ApiState) -> None:
    for each in definitions():
        ensure_definition(cluster, each)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(credentials=make_credentials(), setup=_our_kinds) as server:
        yield server


@pytest.fixture(scope="module")
def kubectl(live: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    home = tmp_path_factory.mktemp("kubectl")
    return kubectl_for(live.kubeconfig(home / "config"), home)
