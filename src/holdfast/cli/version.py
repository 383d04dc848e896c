"""`holdfast version`"""

import typer

from holdfast import __version__


def version() -> None:
    """Print the version."""
    typer.echo(f"holdfast {__version__}")
