"""What kube-scheduler shares with other components: leader election and the client's connection."""

from typing import Annotated, TypeVar

import msgspec

from holdfast.framework.config.problems import Problems, child
from holdfast.framework.config.reading import Seconds, Section

# client-go renews with this jitter, so a deadline must leave room for it.
_JITTER = 1.2

S = TypeVar("S", bound=Section)


class LeaderElection(Section, frozen=True):
    """The lease is Holdfast's own: with kube-scheduler's it could never lead beside it."""

    leader_elect: bool = True
    lease_duration: Seconds = 15.0
    renew_deadline: Seconds = 10.0
    retry_period: Seconds = 2.0
    resource_lock: str = "leases"
    resource_name: str = "holdfast-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(Section, frozen=True):
    """Content types are accepted as kube-scheduler's files have them; Holdfast speaks JSON.

    There is no limit on requests per second unless a file sets one: servers protect themselves by
    priority and fairness, and no more than some requests are on their way at any time.
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
    """In these sections 0, 0s and "" are as good as absent; a negative qps means no limit."""
    unset = {
        field.name: field.default
        for field in msgspec.structs.fields(section)
        if not isinstance(field.default, bool) and not getattr(section, field.name)
    }
    return msgspec.structs.replace(section, **unset)
