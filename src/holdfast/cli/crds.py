"""`holdfast crds`: the CustomResourceDefinitions, for `kubectl apply -f -`."""

from typing import Annotated

import typer


def crds(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Which: a kind, plural, short name or full name; all if none is given.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions as one YAML stream."""
    from holdfast.api.crds import as_yaml, definitions

    typer.echo(as_yaml(definitions(*names or ())), nl=False)
