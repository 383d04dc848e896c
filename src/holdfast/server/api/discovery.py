"""What there is to be asked for: groups, versions, resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.server.api.negotiate import DISCOVERY_GROUP
from holdfast.server.schema import Catalogue, ResourceType, Subresource
from holdfast.store import Raw

VERSION: Raw = {
    "major": "1",
    "minor": "35",
    "gitVersion": "v1.35.0+holdfast",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def core_versions(host: str) -> Raw:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    }


def group_list(catalogue: Catalogue) -> Raw:
    groups = [_group(name, types) for name, types in _groups(catalogue) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(catalogue: Catalogue, name: str) -> Raw | None:
    types = [each for each in catalogue if each.group == name]
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, types)} if types and name else None


def resource_list(catalogue: Catalogue, group: str, version: str) -> Raw | None:
    types = [each for each in catalogue if (each.group, each.version) == (group, version)]
    if not types:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": types[0].api_version,
        "resources": [row for each in types for row in _resources(each)],
    }


def aggregated(catalogue: Catalogue, core: bool) -> Raw:
    """Everything in one document, of the core group or of all others."""
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{DISCOVERY_GROUP}/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name, "creationTimestamp": None}
                if name
                else {"creationTimestamp": None},
                "versions": [_version(version, types) for version, types in _by_version(of_group)],
            }
            for name, of_group in _groups(catalogue)
            if (not name) is core
        ],
    }


def _groups(catalogue: Catalogue) -> Iterator[tuple[str, list[ResourceType]]]:
    known: dict[str, list[ResourceType]] = {}
    for each in catalogue:
        known.setdefault(each.group, []).append(each)
    yield from known.items()


def _by_version(types: Iterable[ResourceType]) -> Iterator[tuple[str, list[ResourceType]]]:
    known: dict[str, list[ResourceType]] = {}
    for each in types:
        known.setdefault(each.version, []).append(each)
    yield from known.items()


def _group(name: str, types: list[ResourceType]) -> Raw:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in dict.fromkeys(each.version for each in types)
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(type: ResourceType) -> Iterator[Raw]:
    row: Raw = {
        "name": type.plural,
        "singularName": type.singular,
        "namespaced": type.namespaced,
        "kind": type.kind,
        "verbs": list(type.verbs),
    }
    if type.short_names:
        row["shortNames"] = list(type.short_names)
    if type.categories:
        row["categories"] = list(type.categories)
    yield row
    for each in type.subresources:
        yield _subresource_row(type, each)


def _subresource_row(type: ResourceType, each: Subresource) -> Raw:
    row: Raw = {
        "name": f"{type.plural}/{each.name}",
        "singularName": "",
        "namespaced": type.namespaced,
        "kind": each.kind,
        "verbs": list(each.verbs),
    }
    if each.group or each.version:
        row["group"], row["version"] = each.group, each.version
    return row


def _version(version: str, types: list[ResourceType]) -> Raw:
    return {
        "version": version,
        "resources": [_aggregated(each) for each in types],
        "freshness": "Current",
    }


def _aggregated(type: ResourceType) -> Raw:
    row: Raw = {
        "resource": type.plural,
        "responseKind": {"group": type.group, "version": type.version, "kind": type.kind},
        "scope": "Namespaced" if type.namespaced else "Cluster",
        "singularResource": type.singular,
        "verbs": list(type.verbs),
    }
    if type.short_names:
        row["shortNames"] = list(type.short_names)
    if type.categories:
        row["categories"] = list(type.categories)
    if type.subresources:
        row["subresources"] = [
            {
                "subresource": each.name,
                "responseKind": {
                    "group": each.group or type.group,
                    "version": each.version or type.version,
                    "kind": each.kind,
                },
                "verbs": list(each.verbs),
            }
            for each in type.subresources
        ]
    return row


def all_paths(catalogue: Catalogue) -> list[str]:
    found = {"/api", "/apis", "/version", "/openapi/v2", "/openapi/v3", "/healthz", "/livez", "/readyz"}
    for each in catalogue:
        found.add(f"/apis/{each.group}/{each.version}" if each.group else f"/api/{each.version}")
        if each.group:
            found.add(f"/apis/{each.group}")
    return sorted(found)
