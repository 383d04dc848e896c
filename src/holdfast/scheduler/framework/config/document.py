"""The configuration file as it is written, before defaults and plugin sets are resolved."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from holdfast.scheduler.framework.config.plugin_sets import Plugins
from holdfast.scheduler.framework.config.structs import (
    Name,
    Percent,
    Problems,
    Seconds,
    Section,
    child,
    described,
)

# client-go renews with this jitter, so a deadline must allow for it.
_JITTER = 1.2

S = TypeVar("S", bound=Section)


class LeaderElection(Section, frozen=True):
    """Leader election. The lease has a name of its own, so that Holdfast can run beside
    kube-scheduler."""

    leader_elect: bool = True
    lease_duration: Seconds = 15.0
    renew_deadline: Seconds = 10.0
    retry_period: Seconds = 2.0
    resource_lock: str = "leases"
    resource_name: str = "holdfast-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(Section, frozen=True):
    """The connection to the API server. Content types are accepted for the sake of existing files;
    Holdfast uses JSON.

    Requests per second are not limited unless the file sets a limit: API servers protect themselves by
    priority and fairness, and the number of concurrent requests is limited.
    """

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/json"
    qps: float = -1.0
    burst: Annotated[int, msgspec.Meta(ge=0)] = 100


def checked_leader_election(given: LeaderElection, path: str, problems: Problems) -> LeaderElection:
    election = zero_means_default(given)
    if not election.leader_elect or problems.under(path):
        return election
    if election.lease_duration <= election.renew_deadline:
        problems.add(child(path, "leaseDuration"), "must be greater than renewDeadline")
    if election.renew_deadline <= _JITTER * election.retry_period:
        problems.add(child(path, "renewDeadline"), f"must be greater than {_JITTER} times retryPeriod")
    if election.resource_lock != "leases":
        problems.add(child(path, "resourceLock"), f'must be "leases", got "{election.resource_lock}"')
    return election


def zero_means_default(section: S) -> S:
    """In these sections 0, 0s and "" count as absent; a negative qps means no limit."""
    unset = {
        field.name: field.default
        for field in msgspec.structs.fields(section)
        if not isinstance(field.default, bool) and not getattr(section, field.name)
    }
    return msgspec.structs.replace(section, **unset)


# The top-level field `dynamicReservation`: the provisioner, the timeout, and what happens on failure.


class DynamicReservationConfig(Section, frozen=True):
    """The field `dynamicReservation`."""

    provisioner: Literal["builtin", "external"] = "builtin"
    provision_timeout: Seconds = 600.0
    virtual_retention: Seconds = 600.0
    on_failure: Literal["Requeue", "Bind"] = "Requeue"


GROUP = "kubescheduler.config.k8s.io"
API_VERSION = f"{GROUP}/v1"
KIND = "KubeSchedulerConfiguration"

_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class PluginConfig(Section, frozen=True):
    """The arguments of one plugin, not decoded."""

    name: Name
    args: Any = None


class ProfileDocument(Section, frozen=True):
    """A profile as the file has it."""

    scheduler_name: Name | None = None
    percentage_of_nodes_to_score: Percent | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ConfigurationDocument(Section, frozen=True):
    """The whole file. `percentageOfNodesToScore` is accepted for the sake of existing files and has no
    effect: all feasible nodes are scored. Nor has `parallelism`: nodes are filtered by vector
    operations. `extenders` must be empty: see `refuse_extenders`."""

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
    profiles: tuple[ProfileDocument, ...] = ()
    extenders: tuple[Any, ...] = ()
    delay_cache_until_active: bool = False
    actions: Any = None
    configurations: Any = None
    dynamic_reservation: DynamicReservationConfig = DynamicReservationConfig()


_OF_VOLCANO = ("tiers", "metrics")


def in_our_terms(mapping: Mapping[str, Any], problems: Problems) -> Mapping[str, Any]:
    """A Volcano file as a KubeSchedulerConfiguration: it has no kind, and its plugin tiers, which have
    no counterpart here, are ignored with a warning."""
    if "actions" not in mapping or "apiVersion" in mapping or "kind" in mapping:
        return mapping
    for name in _OF_VOLCANO:
        if name in mapping:
            problems.warn(name, "is a field of Volcano without a counterpart here; it is ignored")
    rest = {name: value for name, value in mapping.items() if name not in _OF_VOLCANO}
    return {"apiVersion": API_VERSION, "kind": KIND, **rest}


def check_type(api_version: object, kind: object, problems: Problems) -> None:
    """Adds a problem unless this is the supported kind and version."""
    if api_version != API_VERSION:
        group, _, version = str(api_version).partition("/")
        if api_version is None:
            problems.add("apiVersion", f'required: "{API_VERSION}"')
        elif group == GROUP:
            problems.add(
                "apiVersion",
                f'version {version or "(none)"} is not supported; convert the file to "{API_VERSION}"',
            )
        else:
            problems.add("apiVersion", f'must be "{API_VERSION}", got {described(api_version)}')
    if kind is None:
        problems.add("kind", f'required: "{KIND}"')
    elif kind != KIND:
        problems.add("kind", f'must be "{KIND}", got {described(kind)}')


def refuse_extenders(document: ConfigurationDocument, problems: Problems) -> None:
    """Adds a problem if the file has extenders: ignoring them would drop checks that the cluster relies
    on."""
    if document.extenders:
        problems.add(
            "extenders",
            "HTTP extenders are not supported: Holdfast makes no network requests while "
            "scheduling. Write a plugin in Python instead (docs/plugins.md) and remove this field",
        )
