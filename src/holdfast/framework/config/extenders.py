"""Scheduler extenders (HTTP webhooks), read and checked as kube-scheduler does."""

from collections.abc import Sequence

import msgspec

from holdfast.framework.config.names import extended_resource_fault
from holdfast.framework.config.problems import Problems, child, item
from holdfast.framework.config.reading import Count, Name, Seconds, Section

DEFAULT_HTTP_TIMEOUT = 5.0


class ManagedResource(Section, frozen=True):
    name: Name
    ignored_by_scheduler: bool = False


class ExtenderTLS(Section, frozen=True):
    """`*_data` are base64 as the file has them, and win over the files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = ""
    ca_data: str = ""


class Extender(Section, frozen=True):
    url_prefix: Name
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Count = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLS | None = None
    http_timeout: Seconds = DEFAULT_HTTP_TIMEOUT
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


def checked_extenders(
    extenders: Sequence[Extender], path: str, problems: Problems
) -> tuple[Extender, ...]:
    if problems.under(path):
        return ()
    if extenders:
        problems.warn(path, "have no effect: extenders are not called")
    seen: set[str] = set()
    for i, extender in enumerate(extenders):
        at = item(path, i)
        if not extender.url_prefix.startswith(("http://", "https://")):
            problems.add(child(at, "urlPrefix"), "must begin with http:// or https://")
        if extender.prioritize_verb and extender.weight == 0:
            problems.add(child(at, "weight"), "must be positive when prioritizeVerb is set")
        for j, resource in enumerate(extender.managed_resources):
            name_path = child(item(child(at, "managedResources"), j), "name")
            if fault := extended_resource_fault(resource.name):
                problems.add(name_path, fault)
            if resource.name in seen:
                problems.add(name_path, f'"{resource.name}" is already managed by an extender')
            seen.add(resource.name)
    binders = [item(path, i) for i, extender in enumerate(extenders) if extender.bind_verb]
    if len(binders) > 1:
        problems.add(path, f"only one extender may bind, but {' and '.join(binders)} do")
    return tuple(
        msgspec.structs.replace(each, http_timeout=each.http_timeout or DEFAULT_HTTP_TIMEOUT)
        for each in extenders
    )
