"""Request paths and query parameters: the resource and the options of a request.

    /api/v1/namespaces/{namespace}/{plural}/{name}/{subresource}     the core group, namespaced
    /api/v1/{plural}/{name}/{subresource}                            cluster-scoped, or all namespaces
    /apis/{group}/{version}/…                                        every other group
    …/watch/…                                                        the deprecated path of a watch

`/api/v1/namespaces/x` is a namespace, and `/api/v1/namespaces/x/status` its status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from holdfast.local.store import Raw
from holdfast.machinery.object_request import WriteOptions
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.schema.field_errors import FieldError
from holdfast.machinery.status import bad_request, invalid

_OF_NAMESPACES = frozenset({"status", "finalize"})


class RequestTarget(NamedTuple):
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
def parse(path: str) -> RequestTarget | None:
    """None for any other path."""
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


def _within(group: str, version: str, rest: list[str]) -> RequestTarget | None:
    if any("%" in part for part in rest):
        rest = [unquote(part) for part in rest]
    if not all(rest) or not version:
        return None
    watch = bool(rest) and rest[0] == "watch"
    if watch:
        rest = rest[1:]
    match rest:
        case []:
            return RequestTarget(group, version)
        case ["namespaces", namespace, plural, *more] if plural not in _OF_NAMESPACES or group:
            pass
        case ["namespaces", name, *more] if not group:
            return _named(RequestTarget(group, version, "namespaces", watch=watch), [name, *more])
        case [plural, *more]:
            return _named(RequestTarget(group, version, plural, watch=watch), more)
    return _named(RequestTarget(group, version, plural, namespace, watch=watch), more)


def _named(target: RequestTarget, rest: list[str]) -> RequestTarget | None:
    match rest:
        case []:
            return target
        case [name]:
            return target._replace(name=name)
        case [name, subresource]:
            return target._replace(name=name, subresource=subresource)
        case _:
            return RequestTarget(target.group, target.version)


_INTEGER = re.compile(r"[+-]?[0-9]+")
_FIELD_VALIDATION = ("", "Ignore", "Strict", "Warn")
_POLICIES = ("Foreground", "Background", "Orphan", "nil")
_META = "meta.k8s.io"

Query = Mapping[str, str]


class ListOptions(NamedTuple):
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout: int | None = None


class DeleteOptions(NamedTuple):
    dry_run: bool = False
    grace: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None


def list_options(query: Query) -> ListOptions:
    """Raises StatusError 400 or 422."""
    if not query:
        return ListOptions()
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=_integer(query, "limit") or 0,
        continue_token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        watch=_flag(query, "watch") or False,
        bookmarks=_flag(query, "allowWatchBookmarks") or False,
        initial_events=_flag(query, "sendInitialEvents"),
        timeout=_integer(query, "timeoutSeconds"),
    )
    complaints = _watch_complaints(options) if options.watch else _list_complaints(options)
    if complaints:
        raise invalid(_META, "ListOptions", "", complaints)
    return options


def _list_complaints(options: ListOptions) -> list[FieldError]:
    found = []
    field = "resourceVersionMatch"
    if options.match:
        if not options.resource_version:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            found.append(fields.forbidden(field, why))
        if options.continue_token:
            why = "resourceVersionMatch is forbidden when continue is provided"
            found.append(fields.forbidden(field, why))
        if options.match not in ("Exact", "NotOlderThan"):
            supported = ("Exact", "NotOlderThan", "")
            found.append(fields.not_supported(field, options.match, supported))
        if options.match == "Exact" and options.resource_version == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            found.append(fields.forbidden(field, why))
    if options.initial_events is not None:
        why = "sendInitialEvents is forbidden for list"
        found.append(fields.forbidden("sendInitialEvents", why))
    return found


def _watch_complaints(options: ListOptions) -> list[FieldError]:
    found = []
    field = "resourceVersionMatch"
    if options.match:
        if options.initial_events is None:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            found.append(fields.forbidden(field, why))
        if options.match != "NotOlderThan":
            found.append(fields.not_supported(field, options.match, ("NotOlderThan",)))
        if options.continue_token:
            why = "resourceVersionMatch is forbidden when continue is provided"
            found.append(fields.forbidden(field, why))
    elif options.initial_events is not None:
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        found.append(fields.forbidden(field, why))
    return found


def write_options(query: Query, kind: str, user_agent: str) -> WriteOptions:
    """`kind` is what the options are called: CreateOptions, UpdateOptions, PatchOptions."""
    validation = query.get("fieldValidation", "")
    found: list[FieldError] = []
    dry_run = _dry_run(query, found)
    if validation not in _FIELD_VALIDATION:
        found.append(fields.not_supported("fieldValidation", validation, _FIELD_VALIDATION))
    manager = query.get("fieldManager", "")
    if len(manager) > 128:
        found.append(fields.too_long("fieldManager", 128))
    elif not manager.isprintable():
        found.append(
            fields.invalid("fieldManager", manager, "should only contain printable characters")
        )
    if found:
        raise invalid(_META, kind, "", found)
    return WriteOptions(
        dry_run, manager or _agent(user_agent), validation or "Warn", _flag(query, "force")
    )


def delete_options(query: Query, body: Raw | None) -> DeleteOptions:
    """A body, where there is one, is the options, as they were read; else the query is. Raises
    StatusError 400 or 422."""
    found: list[FieldError] = []
    if body is not None:
        dry_run = body.get("dryRun") or []
        if dry_run not in ([], ["All"]):
            found.append(fields.not_supported("dryRun", dry_run, ("All",)))
        grace, policy = body.get("gracePeriodSeconds"), body.get("propagationPolicy")
        orphan = body.get("orphanDependents")
        conditions = body.get("preconditions") or {}
    else:
        dry_run = ["All"] if _dry_run(query, found) else []
        grace, policy = _integer(query, "gracePeriodSeconds"), query.get("propagationPolicy")
        orphan = _flag(query, "orphanDependents")
        conditions = {}
    if policy is not None and orphan is not None:
        found.append(
            fields.invalid(
                "propagationPolicy",
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            )
        )
    if policy is not None and policy not in _POLICIES[:3]:
        found.append(fields.not_supported("propagationPolicy", policy, _POLICIES))
    if found:
        raise invalid(_META, "DeleteOptions", "", found)
    if policy is None and orphan is not None:
        policy = "Orphan" if orphan else "Background"
    return DeleteOptions(
        bool(dry_run), grace, policy, conditions.get("uid"), conditions.get("resourceVersion")
    )


def _dry_run(query: Query, found: list[FieldError]) -> bool:
    getall = getattr(query, "getall", None)
    asked: list[str] = (
        getall("dryRun", []) if getall is not None else [query["dryRun"]] if "dryRun" in query else []
    )
    asked = [each for each in asked if each]
    if asked and asked != ["All"]:
        found.append(fields.not_supported("dryRun", asked, ("All",)))
    return bool(asked)


def _agent(user_agent: str) -> str:
    """The program's own name: what stands before the slash in `kubectl/v1.35.8 (linux/amd64)`."""
    return "".join(c for c in user_agent.partition("/")[0] if c.isprintable())[:128] or "unknown"


def _integer(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if _INTEGER.fullmatch(text) is None:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    value = _bounded(text)
    if not -(2**63) <= value < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return value


def _bounded(text: str) -> int:
    """The number; of one with more digits than Python reads, something as far out of range."""
    return int(text if len(text) < 100 else text[:100])


def _flag(query: Query, name: str) -> bool | None:
    """A flag as Kubernetes reads it: true without a value; false for `0` and `false`."""
    text = query.get(name)
    if text is None:
        return None
    return text.lower() not in ("false", "0")


def parse_revision(text: str) -> int:
    """Raises ValueError with Kubernetes' words."""
    if _INTEGER.fullmatch(text) is None or text[0] in "+-":
        raise ValueError(
            f"resourceVersion: Invalid value: {fields.quoted(text)}: strconv.ParseUint: "
            f"parsing {fields.quoted(text)}: invalid syntax"
        )
    value = _bounded(text)
    if value >= 2**64:
        raise ValueError(
            f"resourceVersion: Invalid value: {fields.quoted(text)}: strconv.ParseUint: "
            f"parsing {fields.quoted(text)}: value out of range"
        )
    return value
