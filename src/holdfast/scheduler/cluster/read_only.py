"""Read-only copies of objects, for plugins that read what the scheduler keeps.

`copy.deepcopy` of such a value is a plain value that can be changed.
"""

from copy import deepcopy
from functools import cache
from types import new_class
from typing import Any, NoReturn

import msgspec

from holdfast.api.meta import Struct

_REFUSED = "the object is read-only: copy.deepcopy(it) gives one that can be changed"


class ReadOnlyDict(dict[str, Any]):
    """A read-only dict. Its copies are plain dicts."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(_REFUSED)

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    copy = __copy__

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A read-only list. Its copies are plain lists."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(_REFUSED)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    copy = __copy__

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(value, memo) for value in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


_NO_ITEMS = ReadOnlyDict()
_NO_VALUES = ReadOnlyList()


def read_only(value: Any) -> Any:
    """A copy of the value that is read-only at every level. Empty dicts and lists are shared."""
    if type(value) is dict:
        if not value:
            return _NO_ITEMS
        return ReadOnlyDict({key: read_only(each) for key, each in value.items()})
    if type(value) is list:
        return ReadOnlyList(map(read_only, value)) if value else _NO_VALUES
    if type(value) is tuple:
        return tuple(map(read_only, value))
    if isinstance(value, Struct):
        kind = type(value)
        fields = {name: read_only(getattr(value, name)) for name in kind.__struct_fields__}
        return _read_only_kind(kind)(**fields)
    return value


@cache
def _read_only_kind(kind: type[Struct]) -> type[Struct]:
    """A subclass of an API type whose instances are read-only and equal instances of the type."""
    if kind.__name__.startswith("ReadOnly"):
        return kind

    def is_equal(self: Struct, other: object) -> bool:
        return isinstance(other, kind) and msgspec.structs.astuple(self) == msgspec.structs.astuple(
            other
        )

    def plain(self: Struct, memo: dict[int, Any]) -> Struct:
        fields = kind.__struct_fields__
        return kind(**{name: deepcopy(getattr(self, name), memo) for name in fields})

    def refuse(*_: Any) -> NoReturn:
        raise TypeError(_REFUSED)

    body = {
        "__module__": kind.__module__,
        "__setattr__": refuse,
        "__delattr__": refuse,
        "__eq__": is_equal,
        "__deepcopy__": plain,
    }
    return new_class(f"ReadOnly{kind.__name__}", (kind,), exec_body=lambda space: space.update(body))
