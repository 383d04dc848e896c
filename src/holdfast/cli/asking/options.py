"""The options all commands about a cluster have."""

import enum
from typing import Annotated, NamedTuple

import typer

Kubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        metavar="F",
        help="Else KUBECONFIG, the pod's service account, ~/.kube/config.",
        show_default=False,
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="The kubeconfig's context, if not its own.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "-n", "--namespace", metavar="NS", help="Else the context's, or default.", show_default=False
    ),
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="F",
        help="The configuration the scheduler there runs with, if it has one.",
        show_default=False,
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
