"""The configuration file as it is written, before anything is resolved."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from holdfast.framework.config.component import ClientConnection, LeaderElection
from holdfast.framework.config.dynamic_reservation import DynamicReservation
from holdfast.framework.config.plugin_sets import Plugins
from holdfast.framework.config.problems import Problems
from holdfast.framework.config.reading import Name, Percent, Section, described

GROUP = "kubescheduler.config.k8s.io"
API_VERSION = f"{GROUP}/v1"
KIND = "KubeSchedulerConfiguration"

_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class PluginConfig(Section, frozen=True):
    name: Name
    args: Any = None


class Profile(Section, frozen=True):
    scheduler_name: Name | None = None
    percentage_of_nodes_to_score: Percent | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class Document(Section, frozen=True):
    """`percentageOfNodesToScore` is accepted for the sake of existing files and has no effect:
    all feasible nodes are scored. So is `parallelism`: nodes are judged by vector operations.
    `extenders` are refused unless there are none: see `refuse_extenders`."""

    api_version: str
    kind: str
    parallelism: _AtLeastOne = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Percent = 0
    pod_initial_backoff_seconds: _AtLeastOne = 1
    pod_max_backoff_seconds: _AtLeastOne = 10
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Any, ...] = ()
    delay_cache_until_active: bool = False
    actions: Any = None
    configurations: Any = None
    dynamic_reservation: DynamicReservation = DynamicReservation()


_OF_VOLCANO = ("tiers", "metrics")


def in_our_terms(mapping: Mapping[str, Any], problems: Problems) -> Mapping[str, Any]:
    """Volcano's own file says no kind, and orders its plugins in tiers, which have no counterpart."""
    if "actions" not in mapping or "apiVersion" in mapping or "kind" in mapping:
        return mapping
    for name in _OF_VOLCANO:
        if name in mapping:
            problems.warn(name, "of Volcano has no counterpart here and is ignored")
    rest = {name: value for name, value in mapping.items() if name not in _OF_VOLCANO}
    return {"apiVersion": API_VERSION, "kind": KIND, **rest}


def check_type(api_version: object, kind: object, problems: Problems) -> None:
    """Whether this is a file of the one kind and version there is."""
    if api_version != API_VERSION:
        group, _, version = str(api_version).partition("/")
        if api_version is None:
            problems.add("apiVersion", f'required: "{API_VERSION}"')
        elif group == GROUP:
            problems.add(
                "apiVersion",
                f'version {version or "(none)"} is not read; bring the file up to "{API_VERSION}"',
            )
        else:
            problems.add("apiVersion", f'must be "{API_VERSION}", got {described(api_version)}')
    if kind is None:
        problems.add("kind", f'required: "{KIND}"')
    elif kind != KIND:
        problems.add("kind", f'must be "{KIND}", got {described(kind)}')


def refuse_extenders(document: Document, problems: Problems) -> None:
    """An extender that is not called would leave out checks the cluster relies on, so a file that names
    one is not used."""
    if document.extenders:
        problems.add(
            "extenders",
            "HTTP extenders are not supported: Holdfast makes no requests while it decides. Write a "
            "plugin in Python instead (docs/plugins.md) and remove this field",
        )
