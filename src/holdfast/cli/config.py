"""`holdfast config`: the defaults, whether a file is right, and what its plugins must be allowed."""

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
    from holdfast.backends.assembly import declared_kinds
    from holdfast.cli.setups import load_setup

    setup = load_setup(file)
    setup.scheduler()  # plugins are made, and look at their arguments
    for warning in setup.configuration.cautions:
        typer.echo(f"warning: {file}: {warning}", err=True)
    profiles = ", ".join(profile.scheduler_name for profile in setup.configuration.profiles)
    typer.echo(f"{file}: valid (profiles: {profiles})")
    for kind, plugins in declared_kinds(setup.configuration, setup.registry).items():
        typer.echo(f"{file}: {', '.join(plugins)}: reads {kind}")


@app.command("rbac")
def rbac(
    file: Annotated[
        str | None, typer.Argument(help="A KubeSchedulerConfiguration.", show_default=False)
    ] = None,
    account: Annotated[
        str,
        typer.Option(
            "--service-account", metavar="NAMESPACE/NAME", help="The scheduler's ServiceAccount."
        ),
    ] = "holdfast-system/holdfast",
) -> None:
    """Print the ClusterRole for what the enabled plugins read, and its binding.

    Holdfast's own ClusterRole allows what Holdfast reads itself.
    """
    import yaml

    from holdfast.backends.assembly import declared_kinds
    from holdfast.backends.kubernetes.plugin_rbac import plugin_rbac
    from holdfast.cli.failing import Failure
    from holdfast.cli.setups import load_setup

    namespace, slash, name = account.partition("/")
    if not (namespace and slash and name):
        raise Failure(1, [f"--service-account: expected NAMESPACE/NAME, got {account!r}"])
    setup = load_setup(file)
    kinds = declared_kinds(setup.configuration, setup.registry)
    if not kinds:
        typer.echo("no enabled plugin reads further kinds of objects", err=True)
        return
    typer.echo(yaml.safe_dump_all(plugin_rbac(kinds, namespace, name), sort_keys=False), nl=False)
