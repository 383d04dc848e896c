"""`holdfast version`"""

import enum
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli.options import Context, Failure, Kubeconfig, Where

_SECONDS = 3.0
"""How long the server may take to answer."""


class VersionOutput(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def version(
    output: Annotated[
        VersionOutput, typer.Option("-o", "--output", help="Output format.")
    ] = VersionOutput.TEXT,
    client: Annotated[
        bool,
        typer.Option("--client", help="Print only the version of holdfast; contact no server."),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the versions of client and server.

    The server's version is printed if a kubeconfig names a cluster. If it does not answer, a warning is
    printed, and the exit status is 0 all the same.

    Examples:
      # Both versions
      holdfast version

      # Only that of holdfast, for scripts
      holdfast version --client -o json
    """
    import platform

    from holdfast.cli.printing import as_json, as_yaml

    found: dict[str, object] = {
        "clientVersion": {"version": __version__, "python": platform.python_version()}
    }
    warning = ""
    if not client:
        try:
            said = _server_version(Where(kubeconfig, context))
            found |= {"serverVersion": said} if said is not None else {}
        except Failure as failure:
            warning = " ".join(failure.lines)
    if output is VersionOutput.JSON:
        typer.echo(as_json(found), nl=False)
    elif output is VersionOutput.YAML:
        typer.echo(as_yaml(found), nl=False)
    else:
        typer.echo(f"holdfast {__version__}")
        if isinstance(server := found.get("serverVersion"), dict):
            typer.echo(f"server   {server.get('gitVersion')}")
    if warning:
        typer.echo(f"warning: {warning}", err=True)


def _server_version(where: Where) -> dict[str, object] | None:
    """The answer of /version; None without a kubeconfig. Raises Failure."""
    import asyncio

    from holdfast.cli.client import Server, ask
    from holdfast.kube.errors import KubernetesError
    from holdfast.kube.kubeconfig import is_in_cluster, known_contexts

    try:
        if where == Where() and not is_in_cluster() and not known_contexts():
            return None
    except KubernetesError as error:
        raise Failure(1, str(error).splitlines()) from None

    async def work(server: Server) -> dict[str, object]:
        try:
            return await asyncio.wait_for(server.version(), _SECONDS)
        except TimeoutError:
            raise Failure(1, [f"the server {server.address} did not answer"]) from None

    return ask(where, work)
