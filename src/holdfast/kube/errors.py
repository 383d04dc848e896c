"""What can go wrong with a Kubernetes API server.

HoldfastError
└── KubernetesError
    ├── KubeconfigError      a kubeconfig, or a file it names, makes no sense
    ├── CredentialsError     no credentials could be had (exec plugin, token file)
    ├── ApiError             the server answered, and the answer is no
    ├── Unreachable          there was no answer; whether the request arrived is not known
    │   └── NoConnection     there was not even a connection
    └── Deposed              not sent, since somebody else may be the leader by now
"""

from holdfast.api.errors import HoldfastError


class KubernetesError(HoldfastError):
    """Anything between Holdfast and an API server."""


class KubeconfigError(KubernetesError):
    """`file: field: what is wrong`"""

    def __init__(self, file: str, field: str, message: str) -> None:
        super().__init__(": ".join(part for part in (file, field, message) if part))
        self.file = file
        self.field = field


class CredentialsError(KubernetesError):
    """No credentials for now; asking again later may help."""


class ApiError(KubernetesError):
    """A status of 400 or more. `reason` and `message` are the Status object's where there is one."""

    def __init__(
        self, status: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def is_passing(self) -> bool:
        """Whether the same request may be answered differently in a while."""
        return self.status == 429 or self.status >= 500


class Unreachable(KubernetesError):
    """No answer: refused, cut, or too slow. With `sent` False the server cannot have seen it."""

    def __init__(self, message: str, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class NoConnection(Unreachable):
    """Not even a connection: the server is away, or this is not where it is."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class LeadershipLost(KubernetesError):
    """A write was held back: this process does not surely lead any more."""
