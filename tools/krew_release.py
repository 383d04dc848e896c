"""Builds the archive of the kubectl plugin and its krew manifest for a release.

    python tools/krew_release.py --repository https://example.com/holdfast --out dist

writes `holdfast-krew-vVERSION.tar.gz` and `holdfast.yaml`, with the archive's checksum, into the
directory. The same version gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from holdfast import __version__

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "krew"


def archive(version: str) -> bytes:
    """The launcher and the license."""
    launcher = (FOLDER / "kubectl-holdfast").read_text().replace("@VERSION@", version)
    members = (
        ("kubectl-holdfast", launcher.encode(), 0o755),
        ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
    )
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for name, content, mode in members:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def manifest(version: str, repository: str, packed: bytes) -> str:
    lines = (FOLDER / "holdfast.yaml").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("#"))
    found = {
        "@VERSION@": version,
        "@REPOSITORY@": repository.rstrip("/"),
        "@SHA256@": hashlib.sha256(packed).hexdigest(),
    }
    for placeholder, value in found.items():
        text = text.replace(placeholder, value)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the krew archive and manifest of a release.")
    parser.add_argument("--repository", required=True, help="URL of the repository, without a slash")
    parser.add_argument("--out", required=True, type=Path, help="directory to write to")
    parser.add_argument("--version", default=__version__, help="default: that of the source")
    given = parser.parse_args()
    packed = archive(given.version)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"holdfast-krew-v{given.version}.tar.gz").write_bytes(packed)
    (given.out / "holdfast.yaml").write_text(manifest(given.version, given.repository, packed))


if __name__ == "__main__":
    main()
