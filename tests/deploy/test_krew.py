"""The krew manifest follows krew's rules, and its launcher finds a program to run."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from house.source import REPOSITORY

URL = "https://example.com/team/holdfast"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("krew")
    tool = REPOSITORY / "tools/krew_release.py"
    asked = [sys.executable, str(tool), "--repository", URL, "--out", str(out), "--version", "1.2.3"]
    subprocess.run(asked, check=True)
    return out


def test_the_manifest_follows_the_rules_of_krew(release: Path) -> None:
    text = (release / "holdfast.yaml").read_text()
    assert "@" not in text
    plugin = yaml.safe_load(text)
    assert plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (plugin["kind"], plugin["metadata"]) == ("Plugin", {"name": "holdfast"})
    spec = plugin["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50 and "\n" not in spec["shortDescription"]
    assert spec["homepage"].startswith("https://")
    for platform in spec["platforms"]:
        assert platform["uri"].startswith(f"{URL}/releases/download/v1.2.3/")
        assert platform["uri"].endswith((".tar.gz", ".zip"))
        assert re.fullmatch(r"[0-9a-f]{64}", platform["sha256"])
        packed = (release / Path(platform["uri"]).name).read_bytes()
        assert hashlib.sha256(packed).hexdigest() == platform["sha256"]
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            modes = {member.name: member.mode for member in tar.getmembers()}
        assert {each["from"] for each in platform["files"]} == modes.keys()
        assert modes[platform["bin"]] & 0o111
        for requirement in platform["selector"]["matchExpressions"]:
            assert requirement["key"] in ("os", "arch") and requirement["operator"] == "In"


def test_the_archive_is_the_same_every_time(release: Path) -> None:
    sys.path.insert(0, str(REPOSITORY / "tools"))
    try:
        from krew_release import archive
    finally:
        sys.path.pop(0)
    assert archive("1.2.3") == (release / "holdfast-krew-v1.2.3.tar.gz").read_bytes()


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        (["holdfast", "uvx"], "holdfast get pods\n"),
        (["uvx", "pipx"], "uvx --from holdfast==1.2.3 holdfast get pods\n"),
        (["pipx"], "pipx run --spec holdfast==1.2.3 holdfast get pods\n"),
        ([], ""),
    ],
)
def test_the_launcher_runs_what_is_installed(
    release: Path, tmp_path: Path, programs: list[str], expected: str
) -> None:
    with tarfile.open(release / "holdfast-krew-v1.2.3.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    path = tmp_path / "bin"
    path.mkdir()
    for program in programs:
        (path / program).write_text(f'#!/bin/sh\necho {program} "$@"\n')
        (path / program).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "kubectl-holdfast"), "get", "pods"],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == expected
    assert done.returncode == (0 if programs else 1)
    assert bool(done.stderr) is not bool(programs)
