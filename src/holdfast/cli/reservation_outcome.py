"""What becomes of new reservations: `holdfast reserve --wait`."""

import asyncio

import typer

from holdfast.cli.client import RESERVATION, Raw, Server
from holdfast.cli.kinds.reservations import condition, message, phase, plan_text
from holdfast.cli.options import Failure
from holdfast.cli.printing import resource_name
from holdfast.cli.watch import warn_of_lost_watch
from holdfast.kube.object_watch import DELETED, LISTED, WatchScope, changes


async def wait_for(
    server: Server, created: list[Raw], seconds: float, timeout: str, waiting_is_enough: bool
) -> None:
    """Prints the node of each reservation, or the planned one if it starts later. Raises
    Failure if one gets none in time, or ends."""
    left = {str(raw["metadata"]["uid"]): raw for raw in created}
    failed: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            async for change in changes(server, [WatchScope(RESERVATION)], created, warn_of_lost_watch):
                if change.event == LISTED:
                    for raw in list(left.values()):
                        _settle(raw, left, failed, waiting_is_enough)
                elif str(change.raw["metadata"].get("uid")) in left:
                    uid = str(change.raw["metadata"]["uid"])
                    left[uid] = change.raw
                    if change.event == DELETED:
                        failed.append(f"{_name(left.pop(uid))}: deleted")
                    else:
                        _settle(change.raw, left, failed, waiting_is_enough)
                if not left:
                    break
    except TimeoutError:
        for raw in left.values():
            why = message(raw) or "no scheduler has tried it yet"
            failed.append(f"{_name(raw)}: {phase(raw)} after {timeout}: {why}")
            failed.append(f"  holdfast explain reservation {raw['metadata']['name']}: what would help")
    if failed:
        raise Failure(1, failed)


def _settle(raw: Raw, left: dict[str, Raw], failed: list[str], waiting_is_enough: bool) -> None:
    """Takes a reservation off the list if its outcome is known."""
    state, node = phase(raw), (raw.get("status") or {}).get("nodeName") or ""
    plan = condition(raw, "Planned")
    if state in ("Available", "Succeeded"):
        typer.echo(f"{_name(raw)} {state.lower()} on {node}")
    elif state == "Waiting" and waiting_is_enough:
        typer.echo(f"{_name(raw)} waiting on {node} until running pods end")
    elif plan.get("status") == "True":
        typer.echo(f"{_name(raw)} planned: {plan_text(raw)}")
    elif state == "Failed":
        failed.append(f"{_name(raw)}: Failed: {message(raw)}")
    else:
        return
    del left[str(raw["metadata"]["uid"])]


def _name(raw: Raw) -> str:
    return resource_name(RESERVATION, raw["metadata"]["name"])
