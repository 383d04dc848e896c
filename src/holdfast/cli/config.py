"""`holdfast config` (defaults, validation, RBAC of plugins) and `holdfast crds`."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from holdfast.api.raw_objects import ObjectKind
from holdfast.cli.command import HelpfulCommand, HelpfulGroup
from holdfast.cli.completers import files


def _complete_crd(incomplete: str) -> list[str]:
    from holdfast.api.crds import NAMES

    return sorted(NAMES)


def crds(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Kinds, plurals, short names or full names of the definitions (default: all).",
            autocompletion=_complete_crd,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions as YAML.

    Examples:
      # Install all of them
      holdfast crds | kubectl apply --server-side -f -

      # One of them
      holdfast crds reservations
    """
    from holdfast.api.crds import as_yaml, definitions

    typer.echo(as_yaml(definitions(*names or ())), nl=False)


# `holdfast config`


app = typer.Typer(
    cls=HelpfulGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="Print and validate scheduler configurations.",
)


@app.command("default", cls=HelpfulCommand)
def default() -> None:
    """Print the default configuration.

    Examples:
      # Begin a configuration of your own
      holdfast config default > config.yaml
    """
    import yaml

    from holdfast.scheduler.framework.config import default_configuration
    from holdfast.scheduler.plugins import registry

    mapping = default_configuration(registry().implements())
    typer.echo(yaml.safe_dump(mapping, sort_keys=False), nl=False)


@app.command("validate", cls=HelpfulCommand)
def validate(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Scheduler configuration file (KubeSchedulerConfiguration).",
            autocompletion=files,
            show_default=False,
        ),
    ],
) -> None:
    """Validate a scheduler configuration and report its errors.

    Also prints warnings about settings that have no effect or switch something off. The exit status is
    0 if the file is valid.

    Examples:
      # Check a file before it is deployed
      holdfast config validate config.yaml
    """
    from holdfast.cli.options import load_setup, warn_of_plugins
    from holdfast.scheduler.assembly import declared_kinds

    setup = load_setup(file)
    setup.scheduler()  # plugins are made, and look at their arguments
    warn_of_plugins([setup])
    for warning in setup.configuration.cautions:
        typer.echo(f"warning: {file}: {warning}", err=True)
    profiles = ", ".join(profile.scheduler_name for profile in setup.configuration.profiles)
    typer.echo(f"{file}: valid (profiles: {profiles})")
    for kind, plugins in declared_kinds(setup.configuration, setup.registry).items():
        typer.echo(f"{file}: {', '.join(plugins)}: reads {kind}")


@app.command("rbac", cls=HelpfulCommand)
def rbac(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="Scheduler configuration file (default: the default configuration).",
            autocompletion=files,
            show_default=False,
        ),
    ] = None,
    account: Annotated[
        str,
        typer.Option(
            "--service-account", metavar="NAMESPACE/NAME", help="The scheduler's ServiceAccount."
        ),
    ] = "holdfast-system/holdfast",
) -> None:
    """Print a ClusterRole for the objects that enabled plugins read, and its binding.

    It adds to Holdfast's own ClusterRole, which allows what Holdfast itself reads.

    Examples:
      # Let the scheduler read the objects that its plugins declare
      holdfast config rbac config.yaml | kubectl apply -f -
    """
    import yaml

    from holdfast.cli.options import Failure, load_setup
    from holdfast.scheduler.assembly import declared_kinds

    namespace, slash, name = account.partition("/")
    if not (namespace and slash and name):
        raise Failure(1, [f"--service-account: expected NAMESPACE/NAME, got {account!r}"])
    setup = load_setup(file)
    kinds = declared_kinds(setup.configuration, setup.registry)
    if not kinds:
        typer.echo("no enabled plugin declares reads_objects; no ClusterRole is needed", err=True)
        return
    typer.echo(yaml.safe_dump_all(plugin_rbac(kinds, namespace, name), sort_keys=False), nl=False)


# RBAC for plugins that read further kinds of objects


NAME = "holdfast-plugins"
VERBS = ("get", "list", "watch")
_API = "rbac.authorization.k8s.io"


def rules(kinds: Iterable[ObjectKind]) -> list[dict[str, Any]]:
    """The rules of a ClusterRole, one for each API group."""
    plurals: dict[str, list[str]] = {}
    for kind in kinds:
        of_group = plurals.setdefault(kind.group, [])
        if kind.plural not in of_group:
            of_group.append(kind.plural)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(VERBS)}
        for group, resources in plurals.items()
    ]


def plugin_rbac(kinds: Iterable[ObjectKind], namespace: str, account: str) -> list[dict[str, Any]]:
    """A ClusterRole with these rules, and its binding to a ServiceAccount."""
    return [
        {
            "apiVersion": f"{_API}/v1",
            "kind": "ClusterRole",
            "metadata": _metadata(),
            "rules": rules(kinds),
        },
        {
            "apiVersion": f"{_API}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _metadata(),
            "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]


def _metadata() -> dict[str, Any]:
    return {"name": NAME, "labels": {"app.kubernetes.io/name": "holdfast"}}
