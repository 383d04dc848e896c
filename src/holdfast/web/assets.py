"""The files of the page: read once, with a tag by which browsers keep them, and compressed."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    body: bytes
    packed: bytes
    type: str
    tag: str


@cache
def assets() -> dict[str, Asset]:
    """All files by name. Requests are answered from these, so no path can lead anywhere else. The
    colours are those of reports."""
    found = {}
    colors = resources.files("holdfast.sim.report").joinpath("static", "colors.css")
    for file in (*resources.files("holdfast.web").joinpath("static").iterdir(), colors):
        suffix = file.name.rpartition(".")[2]
        if suffix in _TYPES:
            body = file.read_bytes()
            tag = '"' + hashlib.sha256(body).hexdigest()[:20] + '"'
            found[file.name] = Asset(body, gzip.compress(body, 9, mtime=0), _TYPES[suffix], tag)
    return found
