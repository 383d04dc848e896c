"""Creates the objects of `holdfast reserve`: reservations or schedules of them, and the template of the
claims they hold devices by.
"""

import typer

from holdfast.api.kinds import KINDS
from holdfast.api.names import MANAGED_BY, RESOURCE_API
from holdfast.cli.client import NODE, Raw, Server, refusal
from holdfast.cli.get import missing_hint
from holdfast.cli.options import Failure
from holdfast.cli.printing import as_json, as_list, as_manifest, resource_name
from holdfast.kube.errors import ApiError

_CLAIM_TEMPLATE = KINDS[RESOURCE_API, "ResourceClaimTemplate"]


async def warn_of_node(server: Server, name: str) -> None:
    """The reservation is valid without it: it is Pending until there is such a node."""
    hint = await missing_hint(server, NODE, name)
    if hint is not None:
        typer.echo(f'warning: --node: no node "{name}"{hint}', err=True)


async def warn_of_device_class(server: Server, name: str) -> None:
    """A class may still come; but the name may as well be misspelt."""
    hint = await missing_hint(server, KINDS[RESOURCE_API, "DeviceClass"], name)
    if hint is not None:
        typer.echo(f'warning: --device-class: no DeviceClass "{name}"{hint}', err=True)


async def own_template(server: Server, raw: Raw, reservations: list[Raw]) -> None:
    """Has the reservations own their ResourceClaimTemplate, so that it is deleted after the last one;
    not one that was created otherwise."""
    info, meta = _CLAIM_TEMPLATE, raw["metadata"]
    owners = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
        }
        for each in reservations
    ]
    for last in (False, False, True):
        there = (await server.get(info, meta["name"], meta["namespace"]))["metadata"]
        if (there.get("labels") or {}).get(MANAGED_BY) != meta["labels"][MANAGED_BY]:
            return
        known = there.get("ownerReferences") or []
        both = {"ownerReferences": [*known, *owners], "resourceVersion": there["resourceVersion"]}
        try:
            await server.patch(info, meta["name"], {"metadata": both}, meta["namespace"])
            return
        except ApiError as error:
            if error.status != 409 or last:
                raise


async def create_template(server: Server, raw: Raw, dry: bool) -> bool:
    """Creates the ResourceClaimTemplate of the reservations, and tells whether it is new; one that
    exists must be the same."""
    info, meta = _CLAIM_TEMPLATE, raw["metadata"]
    try:
        await server.create(info, raw, meta["namespace"], dry)
    except ApiError as error:
        if error.status != 409:
            raise Failure(1, [refusal(error)], as_it_is=True) from None
        there = await server.get(info, meta["name"], meta["namespace"])
        if there["spec"]["spec"]["devices"]["requests"] != raw["spec"]["spec"]["devices"]["requests"]:
            text = f"ResourceClaimTemplate {meta['namespace']}/{meta['name']} exists and is another"
            raise Failure(1, [f"--device-class: {text}; --name sets another name"]) from None
        return False
    return True


async def create_objects(
    server: Server, made: list[Raw], output: str | None, named: bool, dry: bool
) -> list[Raw]:
    """Creates the reservations or schedules one by one; on an error, prints those created before."""
    info = KINDS[made[0]["apiVersion"], made[0]["kind"]]
    created: list[Raw] = []
    for raw in made:
        try:
            created.append(await server.create(info, raw, dry_run=dry))
        except ApiError as error:
            print_objects(created, output, " created")
            lines = [refusal(error)]
            if error.status == 404:
                text = f'the server doesn\'t have a resource type "{info.plural}" (see holdfast crds)'
                lines = [text]
            elif error.status == 409 and not named:
                lines.append("--name sets another name than the default")
            raise Failure(1, lines, as_it_is=error.status != 404) from None
    return created


def print_objects(made: list[Raw], output: str | None, done: str = "") -> None:
    match output:
        case "yaml":
            for number, raw in enumerate(made):
                separator = "---\n" if number else ""
                typer.echo(f"{separator}{as_manifest(raw)}", nl=False)
        case "json":
            typer.echo(as_json(made[0] if len(made) == 1 else as_list(made)), nl=False)
        case _:
            suffix = "" if output == "name" else done
            for raw in made:
                info = KINDS[raw["apiVersion"], raw["kind"]]
                typer.echo(f"{resource_name(info, raw['metadata']['name'])}{suffix}")
