"""The options all commands about a cluster have."""

import enum
from typing import Annotated, Any, NamedTuple

import typer


def optional(*flags: str, metavar: str, help: str) -> Any:
    """An option that says in its help what is done without it."""
    return typer.Option(*flags, metavar=metavar, help=help, show_default=False)


Kubeconfig = Annotated[
    str | None,
    optional(
        "--kubeconfig", metavar="F", help="Else KUBECONFIG, the pod's service account, ~/.kube/config."
    ),
]
Context = Annotated[
    str | None, optional("--context", metavar="NAME", help="The kubeconfig's context, if not its own.")
]
Namespace = Annotated[
    str | None,
    optional(
        "-n", "--namespace", metavar="NS", help="Namespace (default: the context's, else default)."
    ),
]
NarrowingNamespace = Annotated[
    str | None,
    optional(
        "-n",
        "--namespace",
        metavar="NS",
        help="Of the queue, only what is in this namespace (default: all namespaces).",
    ),
]
OwnersNamespace = Annotated[
    str | None,
    optional(
        "-n",
        "--namespace",
        metavar="NS",
        help="Of the workload (default: the context's, else default); with --owner, owners in this "
        "namespace only (default: all namespaces).",
    ),
]
Config = Annotated[
    str | None,
    optional(
        "--config", metavar="F", help="The configuration the scheduler there runs with, if it has one."
    ),
]


class Output(enum.StrEnum):
    """`-o` of commands that show objects."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Report(enum.StrEnum):
    """`-o` of commands that tell something about one object."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Where(NamedTuple):
    """Which cluster is asked."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    """None if none was given."""
