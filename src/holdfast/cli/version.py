"""`holdfast version`"""

import typer

from holdfast import __version__


def version() -> None:
    """Say which version this is."""
    typer.echo(f"holdfast {__version__}")
