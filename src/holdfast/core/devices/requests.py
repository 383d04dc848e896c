"""What a pod asks of devices, in all its spellings.

    nvidia.com/gpu, amd.com/gpu, dcu.com/gpu    so many whole GPUs
    koordinator.sh/gpu                          percent of a GPU; above 100 multiples of 100
    koordinator.sh/gpu-core, -memory, -ratio    parts of a GPU; above 100 percent multiples of 100
    koordinator.sh/gpu.shared with such parts   the parts spread evenly over so many GPUs
    koordinator.sh/rdma, koordinator.sh/fpga    percent of a card

All come down to a number of devices and what is asked of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from holdfast.api import names as n
from holdfast.api.errors import HoldfastError

GPU, RDMA, FPGA = "gpu", "rdma", "fpga"

CORE, MEMORY, RATIO = 0, 1, 2
"""The lines of a GPU: percent of its cores, bytes of its memory, percent of its memory."""

LINES: Mapping[str, tuple[str, ...]] = {
    GPU: (n.GPU_CORE, n.GPU_MEMORY, n.GPU_MEMORY_RATIO),
    RDMA: (n.RDMA,),
    FPGA: (n.FPGA,),
}
"""What is counted of each type of device."""

WHOLE = (n.NVIDIA_GPU, n.AMD_GPU, n.DCU_GPU)
RESOURCES: Mapping[str, tuple[str, ...]] = {
    GPU: (*WHOLE, n.GPU_PERCENT, n.GPU_SHARED, *LINES[GPU]),
    RDMA: (n.RDMA,),
    FPGA: (n.FPGA,),
}
"""What may be asked of each type of device."""

TYPE_OF: Mapping[str, str] = {name: kind for kind, every in RESOURCES.items() for name in every}

FULL = 100
"""Percent of one device."""


class DeviceRequestError(HoldfastError):
    """A pod asks of devices what makes no sense."""


class Share(NamedTuple):
    """What is asked of devices of one type."""

    type: str
    number: int
    """How many devices."""
    each: tuple[int, ...]
    """What of each of them, by line; 0 where nothing is said of the line."""
    shared: bool
    """Whether they may be shared with others: less than the whole of each is asked for."""


Request = tuple[Share, ...]
"""What a pod asks for; empty if it asks for no devices."""


def device_request(amounts: Mapping[str, int]) -> Request:
    """What is asked of devices, by resource names; raises DeviceRequestError."""
    asked: dict[str, dict[str, int]] = {}
    for name, amount in amounts.items():
        kind = TYPE_OF.get(name)
        if kind is not None and amount > 0:
            asked.setdefault(kind, {})[name] = amount
    if not asked:
        return ()
    return tuple(_share(kind, asked[kind]) for kind in RESOURCES if kind in asked)


def _share(kind: str, asked: Mapping[str, int]) -> Share:
    for name in (n.GPU_PERCENT, n.RDMA, n.FPGA):
        if name in asked and not _is_percentage(asked[name]):
            raise DeviceRequestError(f"invalid resource unit {name}: {asked[name]}")
    if kind != GPU:
        return _of_cards(kind, asked[LINES[kind][0]])
    form = _FORMS.get(frozenset(asked))
    share = form(asked) if form is not None else None
    if share is None:
        listed = " ".join(name for name in RESOURCES[GPU] if name in asked)
        raise DeviceRequestError(f"invalid resource device requests: [{listed}]")
    return share


def _is_percentage(amount: int) -> bool:
    return amount <= FULL or amount % FULL == 0


def _of_cards(kind: str, percent: int) -> Share:
    if percent > FULL:
        return Share(kind, percent // FULL, (FULL,), shared=False)
    return Share(kind, 1, (percent,), shared=percent < FULL)


def _whole(asked: Mapping[str, int]) -> Share:
    (count,) = asked.values()
    return Share(GPU, count, (FULL, 0, FULL), shared=False)


def _percent(asked: Mapping[str, int]) -> Share:
    (percent,) = asked.values()
    return _spread(percent, 0, percent, 0)


def _parts(asked: Mapping[str, int]) -> Share | None:
    core, ratio = asked.get(n.GPU_CORE, 0), asked.get(n.GPU_MEMORY_RATIO, 0)
    if not (_is_percentage(core) and _is_percentage(ratio)):
        return None
    return _spread(core, asked.get(n.GPU_MEMORY, 0), ratio, 0)


def _shared(asked: Mapping[str, int]) -> Share | None:
    count = asked[n.GPU_SHARED]
    core, ratio = asked.get(n.GPU_CORE, 0), asked.get(n.GPU_MEMORY_RATIO, 0)
    if any(part % count or part // count > FULL for part in (core, ratio)):
        return None
    return _spread(core, asked.get(n.GPU_MEMORY, 0), ratio, count)


def _spread(core: int, memory: int, ratio: int, count: int) -> Share:
    """Over so many GPUs; if that is not said, over as many as the memory asked for fills."""
    if not count:
        count = ratio // FULL if ratio > FULL else 1
    each = (core // count, memory // count, ratio // count)
    return Share(GPU, count, each, shared=each[RATIO] < FULL)


Form = Callable[[Mapping[str, int]], Share | None]

_FORMS: Mapping[frozenset[str], Form] = {
    **{frozenset((name,)): _whole for name in WHOLE},
    frozenset((n.GPU_PERCENT,)): _percent,
    frozenset((n.GPU_MEMORY,)): _parts,
    frozenset((n.GPU_MEMORY_RATIO,)): _parts,
    frozenset((n.GPU_CORE, n.GPU_MEMORY)): _parts,
    frozenset((n.GPU_CORE, n.GPU_MEMORY_RATIO)): _parts,
    frozenset((n.GPU_SHARED, n.GPU_MEMORY)): _shared,
    frozenset((n.GPU_SHARED, n.GPU_MEMORY_RATIO)): _shared,
    frozenset((n.GPU_SHARED, n.GPU_CORE, n.GPU_MEMORY)): _shared,
    frozenset((n.GPU_SHARED, n.GPU_CORE, n.GPU_MEMORY_RATIO)): _shared,
}
"""What may be asked of GPUs together."""
