"""`holdfast reserve`"""

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Context, Failure, Kubeconfig, OwnersNamespace, Where, optional

if TYPE_CHECKING:
    from holdfast.cli.client import Raw, Server
    from holdfast.cli.reservation_builder import ReserveOptions, Source


class Policy(enum.StrEnum):
    DEFAULT = "Default"
    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


class Made(enum.StrEnum):
    NAME = "name"
    YAML = "yaml"
    JSON = "json"


def _complete_source(incomplete: str) -> list[str]:
    kinds = ("deployment/", "job/", "statefulset/", "replicaset/")
    return [kind for kind in kinds if kind.startswith(incomplete)]


def reserve(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="Workload to reserve for: deployment/NAME, job/NAME, statefulset/NAME, "
            "replicaset/NAME.",
            autocompletion=_complete_source,
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        str | None,
        optional("-f", "--filename", metavar="F", help="File with the workload object; - is stdin."),
    ] = None,
    cpu: Annotated[str | None, optional("--cpu", metavar="Q", help="CPU of each reservation.")] = None,
    memory: Annotated[
        str | None, optional("--memory", metavar="Q", help="Memory of each reservation.")
    ] = None,
    gpu: Annotated[
        str | None, optional("--gpu", metavar="N", help="nvidia.com/gpu of each reservation.")
    ] = None,
    resource: Annotated[
        list[str] | None, optional("--resource", metavar="NAME=Q", help="Any other resource.")
    ] = None,
    replicas: Annotated[
        int | None,
        optional("--replicas", metavar="N", help="Number of reservations (default: SOURCE's, else 1)."),
    ] = None,
    owner: Annotated[
        list[str] | None,
        optional(
            "--owner",
            metavar="LABELS",
            help="Labels of the pods that may use it: app=web,tier in (a,b). Repeat for alternatives.",
        ),
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl", metavar="D", help="Lifetime, such as 2h; 0 never expires.", show_default="24h"
        ),
    ] = None,
    expires: Annotated[
        str | None,
        optional("--expires", metavar="TIME", help="Time of expiry, such as 2026-01-01T00:00:00Z."),
    ] = None,
    name: Annotated[
        str | None,
        optional(
            "--name",
            metavar="NAME",
            help="Name (default: from SOURCE or --owner); numbered if there are several.",
        ),
    ] = None,
    node: Annotated[
        str | None, optional("--node", metavar="NAME", help="Reserve on this node.")
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        optional("--node-selector", metavar="KEY=VALUE", help="Reserve on nodes with this label."),
    ] = None,
    label: Annotated[
        list[str] | None,
        optional("--label", metavar="KEY=VALUE", help="Label of the reservation."),
    ] = None,
    allocate_once: Annotated[
        bool | None,
        typer.Option(
            "--allocate-once/--no-allocate-once",
            help="Whether the reservation ends with the first pod that uses it.",
            show_default="--allocate-once",
        ),
    ] = None,
    policy: Annotated[
        Policy, typer.Option("--policy", help="Whether owners may use more than is reserved.")
    ] = Policy.DEFAULT,
    pre_allocation: Annotated[
        bool, typer.Option("--pre-allocation", help="Reserve also where running pods must end first.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the reservations, create nothing.")
    ] = False,
    output: Annotated[
        Made | None, typer.Option("-o", "--output", help="Output format.", show_default=False)
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: OwnersNamespace = None,
) -> None:
    """Reserve capacity for pods that do not exist yet.

    Either for the pods of a workload: `holdfast reserve deployment/web --replicas 3`; or by amounts and
    owners: `holdfast reserve --cpu 4 --memory 8Gi --replicas 3 --owner app=web --ttl 2h`.
    """
    from holdfast.cli.client import Server, ask
    from holdfast.cli.reservation_builder import (
        ReserveOptions,
        check_lifetime,
        find_workload,
        make_reservations,
        read_owners,
        read_pairs,
        read_resources,
        source_of,
    )

    if source is not None and file is not None:
        raise Failure(1, ["--filename: cannot be given together with a SOURCE; keep one of them"])
    check_lifetime(ttl, expires)
    options = ReserveOptions(
        name=name or "",
        replicas=replicas,
        resources=read_resources(cpu, memory, gpu, resource or ()),
        owners=read_owners(owner or (), namespace or ""),
        node=node or "",
        node_selector=read_pairs("--node-selector", node_selector or ()),
        labels=read_pairs("--label", label or ()),
        ttl=ttl,
        expires=expires,
        once=allocate_once,
        policy="" if policy is Policy.DEFAULT else str(policy),
        pre_allocation=pre_allocation,
        namespace=namespace or "",
    )
    workload = find_workload(source) if source is not None else None
    from_file = _read_file(file, namespace or "default") if file is not None else None

    async def read_and_make(server: Server) -> "list[Raw]":
        origin = from_file
        if workload is not None:
            info, named = workload
            found = await server.get(info, named, server.namespace)
            origin = source_of(found, server.namespace)
        made = _made(options, origin)
        return made if dry_run else await _create(server, made, output, bool(options.name))

    where = Where(kubeconfig, context, namespace)
    if dry_run:
        # Nothing is asked of a server unless the source is there.
        made = ask(where, read_and_make) if workload is not None else _made(options, from_file)
        _print(made, output or Made.YAML)
        return
    if workload is None:
        make_reservations(options, from_file)  # reports errors before anything is requested
    _print(ask(where, read_and_make), output)


def _made(options: "ReserveOptions", source: "Source | None") -> "list[Raw]":
    from holdfast.cli.reservation_builder import holds_nothing, make_reservations

    made = make_reservations(options, source)
    if holds_nothing(made[0]):
        typer.echo(
            "warning: its pods request no resources; each reservation reserves one pod slot only",
            err=True,
        )
    return made


def _read_file(file: str, namespace: str) -> "Source":
    from holdfast.cli.reservation_builder import source_of
    from holdfast.sim.manifests import InvalidInput, load_one

    try:
        raw = load_one(file)
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    if not isinstance(raw, dict):
        raise Failure(1, [f"--filename: {file}: expected an object"])
    return source_of(raw, namespace)


async def _create(server: "Server", made: "list[Raw]", output: Made | None, named: bool) -> "list[Raw]":
    """Creates the reservations one by one; on an error, prints those created before."""
    from holdfast.cli.client import RESERVATION, refusal
    from holdfast.kube.errors import ApiError

    created = []
    for raw in made:
        try:
            created.append(await server.create(RESERVATION, raw))
        except ApiError as error:
            _print(created, output)
            lines = [refusal(error)]
            if error.status == 404:
                lines = ['the server doesn\'t have a resource type "reservations" (see holdfast crds)']
            elif error.status == 409 and not named:
                lines.append("--name sets another name than the default")
            raise Failure(1, lines, as_it_is=error.status != 404) from None
    return created


def _print(made: "list[Raw]", output: Made | None) -> None:
    from holdfast.cli.client import RESERVATION
    from holdfast.cli.printing import as_json, as_list, as_manifest, resource_name

    match output:
        case Made.YAML:
            typer.echo("---\n".join(as_manifest(raw) for raw in made), nl=False)
        case Made.JSON:
            typer.echo(as_json(made[0] if len(made) == 1 else as_list(made)), nl=False)
        case _:
            said = "" if output is Made.NAME else " created"
            for raw in made:
                typer.echo(f"{resource_name(RESERVATION, raw['metadata']['name'])}{said}")
