"""CustomResourceDefinitions, put on a server by server-side apply."""

import asyncio

import msgspec

from holdfast.api.crds import definitions
from holdfast.backends.kubernetes.errors import KubernetesError
from holdfast.backends.kubernetes.http.client import APPLY, Client, Request, get

_COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PATIENCE = 30.0
_LOOK_EVERY = 0.25


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Definition(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def install_crds(client: Client) -> list[str]:
    """The names of what was applied, once the server serves all of it. Raises KubernetesError.

    Fields others have set are taken over: what the definitions say is what this version needs.
    """
    names = []
    for definition in definitions():
        name = definition["metadata"]["name"]
        path = f"{_COLLECTION}/{name}?fieldManager=holdfast&force=true"
        await client.call(Request("PATCH", path, msgspec.json.encode(definition), APPLY), attempts=5)
        names.append(name)
    for name in names:
        await _established(client, name)
    return names


async def _established(client: Client, name: str) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                answer = await client.call(get(f"{_COLLECTION}/{name}"), attempts=5)
                status = msgspec.json.decode(answer, type=_Definition).status
                if any(c.type == "Established" and c.status == "True" for c in status.conditions or ()):
                    return
                await asyncio.sleep(_LOOK_EVERY)
    except TimeoutError:
        raise KubernetesError(f"{name}: not established after {_PATIENCE:g} s") from None
