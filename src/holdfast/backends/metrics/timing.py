"""How long plugins take, by extension point.

Holdfast asks a plugin about a class of pods, not about each pod: what kube-scheduler counts under
Filter and Score for every pod and node is here the making of a class's column, under PreFilter and
PreScore.
"""

import time
from collections.abc import Callable
from typing import Any

from holdfast.framework.interface import Plugin
from holdfast.framework.profile import Profile

_POINTS = {
    "filter": "PreFilter",
    "score": "PreScore",
    "post_filter": "PostFilter",
    "reserve": "Reserve",
    "unreserve": "Unreserve",
    "permit": "Permit",
    "pre_bind": "PreBind",
    "bind": "Bind",
    "post_bind": "PostBind",
}
"""The plugin's method and the name of its extension point."""

Observe = Callable[[str, str, float], None]
"""Told the plugin, the extension point and the seconds."""


def time_plugins(profile: Profile, observe: Observe) -> None:
    """From now on, `observe` is told of every call of a plugin of this profile."""
    for plugin in profile.plugins.values():
        for method, point in _POINTS.items():
            call = getattr(plugin, method, None)
            # A plugin that does not serve the point has what it inherits in its place.
            if call is not None and getattr(type(plugin), method, None) is not getattr(
                Plugin, method, None
            ):
                setattr(plugin, method, _timed(call, plugin.name, point, observe))


def _timed(call: Callable[..., Any], plugin: str, point: str, observe: Observe) -> Callable[..., Any]:
    clock = time.perf_counter

    def timed(*args: Any) -> Any:
        start = clock()
        try:
            return call(*args)
        finally:
            observe(plugin, point, clock() - start)

    return timed
