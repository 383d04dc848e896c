"""Fields of pods that plugins say they read, by their path on the wire: `spec.hostIPC`.

Only fields that are decoded at all can be read; a path that leads to none is refused.
"""

from collections.abc import Callable
from types import NoneType
from typing import Any, get_args

import msgspec

from holdfast.api.errors import HoldfastError
from holdfast.api.pod import Pod

Reader = Callable[[Pod], Any]


class UnknownField(HoldfastError):
    """A path that leads to no field of a pod."""


def field_reader(path: str) -> Reader:
    """What gives the value of a field, in plain values; raises UnknownField."""
    steps: list[str] = []
    at: Any = Pod
    for part in path.split("."):
        at = next((each for each in (at, *get_args(at)) if _is_struct(each)), None)
        found = None if at is None else {f.encode_name: f for f in msgspec.structs.fields(at)}.get(part)
        if found is None:
            raise UnknownField(f"{path!r} is not a field of pods that is read")
        steps.append(found.name)
        at = found.type

    def read(pod: Pod) -> Any:
        value: Any = pod
        for name in steps:
            if value is None:
                return None
            value = getattr(value, name)
        return msgspec.to_builtins(value)

    return read


def _is_struct(found: Any) -> bool:
    return found is not NoneType and isinstance(found, type) and issubclass(found, msgspec.Struct)
