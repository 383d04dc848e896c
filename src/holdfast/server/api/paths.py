"""What a URL's path asks for.

    /api/v1/namespaces/{namespace}/{plural}/{name}/{subresource}     the core group, namespaced
    /api/v1/{plural}/{name}/{subresource}                            outside namespaces, or in all
    /apis/{group}/{version}/…                                        every other group
    …/watch/…                                                        the older way to ask for a watch

`/api/v1/namespaces/x` is a namespace itself, and `/api/v1/namespaces/x/status` a part of one.
"""

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

_OF_NAMESPACES = frozenset({"status", "finalize"})


class Target(NamedTuple):
    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@lru_cache(maxsize=1024)
def parse(path: str) -> Target | None:
    """None where the path is none of these."""
    parts = path.split("/")
    if parts[-1] == "":
        parts.pop()
    if len(parts) < 3 or parts[0]:
        return None
    if parts[1] == "api":
        return _within("", parts[2], parts[3:])
    if parts[1] == "apis" and len(parts) >= 4:
        return _within(parts[2], parts[3], parts[4:])
    return None


def _within(group: str, version: str, rest: list[str]) -> Target | None:
    if any("%" in part for part in rest):
        rest = [unquote(part) for part in rest]
    if not all(rest) or not version:
        return None
    watch = bool(rest) and rest[0] == "watch"
    if watch:
        rest = rest[1:]
    match rest:
        case []:
            return Target(group, version)
        case ["namespaces", namespace, plural, *more] if plural not in _OF_NAMESPACES or group:
            pass
        case ["namespaces", name, *more] if not group:
            return _named(Target(group, version, "namespaces", watch=watch), [name, *more])
        case [plural, *more]:
            return _named(Target(group, version, plural, watch=watch), more)
    return _named(Target(group, version, plural, namespace, watch=watch), more)


def _named(target: Target, rest: list[str]) -> Target | None:
    match rest:
        case []:
            return target
        case [name]:
            return target._replace(name=name)
        case [name, subresource]:
            return target._replace(name=name, subresource=subresource)
        case _:
            return Target(target.group, target.version)
