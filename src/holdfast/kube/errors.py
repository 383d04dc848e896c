"""Errors of talking to a Kubernetes API server.

HoldfastError
└── KubernetesError
    ├── KubeconfigError      a kubeconfig, or a file it names, is invalid
    ├── CredentialsError     credentials are not available (exec plugin, token file)
    ├── ApiError             the server answered with an error status
    ├── Unreachable          no answer; the request may or may not have arrived
    │   └── NoConnection     no connection could be established
    └── LeadershipLost       not sent: this process may no longer be the leader
"""

from holdfast.api.errors import HoldfastError


class KubernetesError(HoldfastError):
    """Base of all errors between Holdfast and an API server."""


class KubeconfigError(KubernetesError):
    """`file: field: what is wrong`"""

    def __init__(self, file: str, field: str, message: str) -> None:
        super().__init__(": ".join(part for part in (file, field, message) if part))
        self.file = file
        self.field = field


class CredentialsError(KubernetesError):
    """No credentials at the moment; a later attempt may succeed."""


class ApiError(KubernetesError):
    """A status of 400 or more. `reason` and `message` are the Status object's where there is one."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.causes = causes
        """The messages of the causes in the Status object."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request may be answered differently in a while."""
        return self.status == 429 or self.status >= 500


class Unreachable(KubernetesError):
    """No answer: connection refused, closed, or timed out. With `sent` False the server cannot have
    seen it.
    """

    def __init__(self, message: str, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class NoConnection(Unreachable):
    """No connection: the server is down, or the address is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class LeadershipLost(KubernetesError):
    """A write was not sent because the leader lease may have expired."""
