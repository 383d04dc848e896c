"""The table of plugin arguments: a plugin with typed arguments is one line here."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from holdfast.scheduler.framework.config.args import types as devices
from holdfast.scheduler.framework.config.args import types as kube
from holdfast.scheduler.framework.config.args import types as own
from holdfast.scheduler.framework.config.args import types as spread
from holdfast.scheduler.framework.config.document import API_VERSION
from holdfast.scheduler.framework.config.structs import Problems, Section, child, described, read, write


class _Typed(NamedTuple):
    given: type[Section]
    checked: Callable[[Any, str, Problems], Section]


def _as_is(args: Section, _path: str, _problems: Problems) -> Section:
    return args


_TYPED: Mapping[str, _Typed] = {
    "Coscheduling": _Typed(own.CoschedulingArgs, _as_is),
    "DefaultPreemption": _Typed(kube.DefaultPreemptionArgs, kube.checked_preemption),
    "DeviceShare": _Typed(devices.DeviceShareArgs, devices.checked_device_share),
    "InterPodAffinity": _Typed(kube.InterPodAffinityArgs, _as_is),
    "LimitAware": _Typed(own.GivenLimitAwareArgs, own.checked_limit_aware),
    "NodeAffinity": _Typed(kube.NodeAffinityArgs, kube.checked_node_affinity),
    "NodeNUMAResource": _Typed(devices.NodeNUMAResourceArgs, devices.checked_numa),
    "NodeResourcesBalancedAllocation": _Typed(
        kube.NodeResourcesBalancedAllocationArgs, kube.checked_balance
    ),
    "NodeResourcesFit": _Typed(kube.NodeResourcesFitArgs, kube.checked_fit),
    "PodTopologySpread": _Typed(spread.PodTopologySpreadArgs, spread.checked_spread),
    "Reservation": _Typed(own.ReservationArgs, own.checked_reservation),
    "ReservationPreemption": _Typed(own.ReservationPreemptionArgs, _as_is),
    "VolumeBinding": _Typed(kube.VolumeBindingArgs, kube.checked_volume_binding),
}

# These plugins decode parts of their arguments themselves.
_RAW = frozenset({"DynamicReservation"})

HAVE_ARGS = frozenset(_TYPED) | _RAW


def default_args(plugin: str) -> Any:
    """The arguments of a plugin that the file gives none; None if it has no typed arguments."""
    return read_args(plugin, {}, "", Problems()) if plugin in HAVE_ARGS else None


def read_args(plugin: str, raw: object, path: str, problems: Problems) -> Any:
    """The plugin's arguments as a struct, or as the unchanged mapping if they are not typed."""
    if not isinstance(raw, Mapping):
        problems.add(path, f"expected a mapping, got {described(raw)}")
        return None
    if plugin not in HAVE_ARGS:
        return raw
    for name, expected in _type_meta(plugin).items():
        if raw.get(name) not in (None, expected):
            problems.add(child(path, name), f'must be "{expected}", got {described(raw[name])}')
    rest = {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}
    if plugin in _RAW:
        return rest
    typed = _TYPED[plugin]
    before = len(problems)
    given = read(typed.given, rest, path, problems)
    if given is None or len(problems) > before:
        return None
    return typed.checked(given, path, problems)


def write_args(plugin: str, args: Any) -> dict[str, Any]:
    """The mapping that `read_args` turns into these arguments."""
    if isinstance(args, msgspec.Struct):
        return _type_meta(plugin) | write(args)
    return _type_meta(plugin) | dict(args) if plugin in _RAW else dict(args)


def _type_meta(plugin: str) -> dict[str, str]:
    return {"apiVersion": API_VERSION, "kind": f"{plugin}Args"}
