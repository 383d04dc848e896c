"""`holdfast config`: the defaults, and whether a file is right."""

from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="Show and check configuration files.",
)


@app.command("default")
def default() -> None:
    """Print the configuration that holds when no file is given."""
    import yaml

    from holdfast.framework.config import default_configuration
    from holdfast.plugins import registry

    mapping = default_configuration(registry().implements())
    typer.echo(yaml.safe_dump(mapping, sort_keys=False), nl=False)


@app.command("validate")
def validate(
    file: Annotated[str, typer.Argument(help="A KubeSchedulerConfiguration.", show_default=False)],
) -> None:
    """Say what is wrong with a configuration file, if anything is."""
    from holdfast.cli.setups import load_setup

    setup = load_setup(file)
    for warning in setup.configuration.cautions:
        typer.echo(f"warning: {file}: {warning}", err=True)
    profiles = ", ".join(profile.scheduler_name for profile in setup.configuration.profiles)
    typer.echo(f"{file}: valid (profiles: {profiles})")
