"""Plots as PNG, drawn by resvg if it is installed.

resvg is one self-contained library without dependencies, with wheels for the usual platforms,
and it draws the same SVG that browsers show. Plotting libraries would draw everything a second time, in
another style, and bring tens of megabytes; so it is an extra (`holdfast[png]`), and SVG needs nothing.
"""

import re
from collections.abc import Callable
from functools import cache

HOW_TO_GET_PNG = "the plots are SVG files; for PNG too: pip install 'holdfast[png]'"
_HEIGHT = re.compile(r'height="(\d+)"')
_MOST_PIXELS_HIGH = 8_000


@cache
def rasterizer() -> Callable[[str], bytes] | None:
    """Makes a PNG of an SVG; None if resvg is not installed."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        return None

    def rasterize(svg: str) -> bytes:
        found = _HEIGHT.search(svg)
        height = int(found[1]) if found else 1
        zoom = 2.0 if 2 * height <= _MOST_PIXELS_HIGH else 1.0
        return bytes(svg_to_bytes(svg_string=svg, zoom=zoom))

    return rasterize
