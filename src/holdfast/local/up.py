"""Assembles `holdfast up`: store, cluster, API server, credentials.

open the store ─► initial objects ─► --nodes, --apply ─► serve
                                                           │ durable
                                       stop ◄── run ◄── write the kubeconfig
"""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from holdfast.api import names
from holdfast.api.crds import definitions
from holdfast.api.decode import object_name
from holdfast.api.documents import Document
from holdfast.api.errors import HoldfastError
from holdfast.local.apiserver.api_state import ApiRequest, ApiState
from holdfast.local.apiserver.crd_registry import CrdRegistry
from holdfast.local.apiserver.credentials import (
    ServerCredentials,
    answering_server,
    make_credentials,
    write_kubeconfig,
    write_secret,
)
from holdfast.local.apiserver.server import ApiServer
from holdfast.local.apiserver.system_objects import (
    SystemObjects,
    add_default_storage_class,
    bootstrap,
    ensure_definition,
)
from holdfast.local.apiserver.verbs.patch import APPLY, patch
from holdfast.local.apiserver.verbs.writes import create_object
from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.namespace_defaults import NamespaceDefaults
from holdfast.local.node_objects import DEFAULT_SHAPE, NodeShape, read_nodes
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Raw, Store, open_store
from holdfast.machinery.object_request import WriteOptions
from holdfast.machinery.objects import decoded_object
from holdfast.machinery.status import StatusError
from holdfast.scheduler.assembly import GARBAGE_AFTER
from holdfast.scheduler.framework.config import to_mapping
from holdfast.serving.health import OPEN_PATHS, Endpoints, Health, HealthCheck, ping
from holdfast.serving.listener import Listener
from holdfast.serving.memory import returning_memory

_LAST_ANSWERS = 2.0
"""Seconds to wait for requests in progress when the process stops."""
_ANY_ADDRESS = ("0.0.0.0", "::", "")


class UpError(HoldfastError):
    """The cluster cannot start, or has stopped by itself."""


@dataclass(frozen=True, slots=True)
class UpSettings:
    setup: SchedulerFactory
    kubeconfig: Path
    nodes: int = 0
    documents: Sequence[Document] = ()
    host: str = "127.0.0.1"
    port: int = 0
    folder: Path | None = None
    """The data directory; None to keep the state in memory."""
    open_paths: Sequence[str] = OPEN_PATHS
    """Paths served without the token."""
    node_shape: NodeShape = DEFAULT_SHAPE
    """The size of the `nodes`."""
    node_documents: Sequence[Document] = ()
    """Further nodes; see `node_objects.read_nodes`."""
    jobs_run_for: float | None = None
    """Seconds after which pods of Jobs succeed; None if they run until they are deleted."""


class Up:
    """A cluster and its server, until closed."""

    def __init__(self, settings: UpSettings) -> None:
        """Raises StoreFailed, UpError, NotApplied."""
        self._settings = settings
        folder = settings.folder
        self.store = open_store(folder) if folder is not None else Store()
        try:
            self.cluster = EmbeddedCluster(
                settings.setup, self.store, jobs_run_for=settings.jobs_run_for
            )
            self.api = ApiState(self.store, self.cluster.clock, identity=self.cluster.identity)
            self.kept_nodes = 0
            """Nodes of the settings that were there already, and are as they were."""
            self._fill()
            hosts = () if settings.host in _ANY_ADDRESS else (settings.host,)
            self.credentials = make_credentials(folder / "pki" if folder is not None else None, hosts)
            world, authority = self.cluster.world, self.credentials.authority.decode()
            world.components.append(NamespaceDefaults(world.objects, authority))
        except BaseException:
            self.store.close()
            raise
        self._server: ApiServer | None = None
        self._listener: Listener | None = None
        self._running: asyncio.Task[None] | None = None
        self.address = ""

    def _fill(self) -> None:
        """Creates the initial objects, the nodes and the manifests. A cluster whose manifests have
        storage classes, or that was there before, has the default class only if they have one."""
        is_new, documents = not self.store.count("", "Namespace"), self._settings.documents
        bootstrap(self.api)
        if is_new and not any(_kind(document) == "StorageClass" for document in documents):
            add_default_storage_class(self.api)
        keeper = CrdRegistry(self.api)
        for definition in definitions():
            ensure_definition(self.api, definition)
        self.kept_nodes = self._add_nodes()
        apply_documents(self.api, documents)
        keeper.stop()

    def _add_nodes(self) -> int:
        """Returns how many nodes were there already. Raises NotApplied."""
        settings = self._settings
        taken = [f"node-{number}" for number in range(1, settings.nodes + 1)]
        file = read_nodes(settings.node_documents, taken)
        if file.problems:
            raise NotApplied(file.problems)
        kept = self.cluster.add_nodes(settings.nodes, settings.node_shape)
        return kept + sum(not self.cluster.add_node(node) for node in file.nodes)

    async def start(self) -> None:
        """Serves, then writes the kubeconfig. Raises UpError."""
        settings = self._settings
        self._running = asyncio.create_task(self.cluster.run())
        self._server = ApiServer(
            self.api,
            token=self.credentials.token,
            health=self._health(),
            open_paths=settings.open_paths,
        )
        self._listener = Listener(self._server.handle, self.credentials.tls)
        try:
            await self._listener.start(settings.host, settings.port)
        except OSError as error:
            known = error.errno and not isinstance(error, socket.gaierror)
            why = os.strerror(error.errno or 0).lower() if known else str(error)
            raise UpError(f"cannot listen on {settings.host}:{settings.port}: {why}") from None
        self.address = self._reachable_at(self._listener.addresses[0][1])
        host, port = self._listener.addresses[0][:2]
        self.cluster.world.components.append(SystemObjects(self.api, host, port))
        await self.store.settled(self.store.revision)
        _write_kubeconfig(settings.kubeconfig, self.address, self.credentials)

    def _health(self) -> Health:
        def failure() -> str:
            return str(self.store.failure or "")

        return Health(
            Endpoints(
                checks=[ping(), HealthCheck("store", failure)],
                metrics=self.cluster.metrics.text,
                configz=lambda: to_mapping(self._settings.setup.configuration),
            )
        )

    async def ended(self) -> None:
        """Returns only when the cluster went down by itself, with what it died of."""
        assert self._running is not None
        await self._running

    async def close(self) -> None:
        self.cluster.stop()
        if self._listener is not None and self._server is not None:
            await self._listener.stop_accepting()
            self._server.close()
            await self._listener.close(_LAST_ANSWERS)
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        self.store.close()

    def _reachable_at(self, port: int) -> str:
        host = "127.0.0.1" if self._settings.host in _ANY_ADDRESS else self._settings.host
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


async def serve(settings: UpSettings, started: Callable[[Up], Awaitable[None] | None]) -> None:
    """Serves until SIGTERM or SIGINT. Calls `started` once everything is usable. Raises
    HoldfastError.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gc.set_threshold(*GARBAGE_AFTER)
    up = await _brought_up(settings)
    try:
        try:
            said = started(up)
            if said is not None:
                await said
        except BaseException:
            settings.kubeconfig.unlink(missing_ok=True)  # a file means that the cluster is usable
            raise
        async with returning_memory():
            stopping = asyncio.create_task(stop.wait())
            ending = asyncio.create_task(up.ended())
            done, rest = await asyncio.wait((stopping, ending), return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            for task in done:
                task.result()
    finally:
        await up.close()


async def _brought_up(settings: UpSettings) -> Up:
    """Starts the cluster. The kubeconfig of an earlier cluster is removed first, since scripts wait
    for the file to appear; it is restored if this cluster cannot start.
    """
    before = take_away_kubeconfig(settings.kubeconfig)
    try:
        up = Up(settings)
        # Schemas and what was there before: looking for cycles among these stops everything for a tenth
        # of a second each time, and there are none to be found.
        gc.collect()
        gc.freeze()
        try:
            await up.start()
        except BaseException:
            await up.close()
            raise
        return up
    except BaseException:
        if before is not None:
            with suppress(OSError):
                write_secret(settings.kubeconfig, before.encode())
        raise


def take_away_kubeconfig(path: Path) -> str | None:
    """Removes the file and returns its content. It must be a kubeconfig of Holdfast's whose server does
    not run any more, since it will be overwritten. Raises UpError.
    """
    if not path.exists():
        if not path.parent.is_dir():
            raise UpError(f"{path}: no directory {path.parent}")
        return None
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        contexts = [each["name"] for each in yaml.safe_load(text)["contexts"]]
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        contexts = []
    if contexts != ["holdfast"]:
        raise UpError(f"{path}: was not written by Holdfast, so it is not overwritten")
    if address := answering_server(text):
        raise UpError(
            f"{path}: is the kubeconfig of a cluster that runs at {address}; stop that one, or name "
            "another file with --kubeconfig-out"
        )
    with suppress(OSError):
        path.unlink()
    return text


def _write_kubeconfig(path: Path, server: str, credentials: ServerCredentials) -> None:
    try:
        write_kubeconfig(path, server, credentials)
    except OSError as error:
        raise UpError(f"{path}: cannot be written: {error.strerror or error}") from None


# `--apply`: applies manifest files like `kubectl apply --server-side`


MANAGER = "holdfast-up"
_FIRST = ("CustomResourceDefinition", "Namespace", "PriorityClass", "StorageClass")
"""Kinds that others need when they are created; these come first, wherever they stand."""


class NotApplied(HoldfastError):
    """One line per problem, each naming the file and the document."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def apply_documents(cluster: ApiState, documents: Sequence[Document]) -> int:
    """Applies all valid documents and returns their number. Raises NotApplied with all problems."""
    problems: list[str] = []
    parents = _parents(documents)
    for document in sorted(documents, key=lambda each: (_rank(each), _depth(each, parents))):
        problems.extend(f"{document}: {problem}" for problem in _apply(cluster, document.data))
    if problems:
        raise NotApplied(problems)
    return len(documents)


def _kind(document: Document) -> object:
    return document.data.get("kind") if isinstance(document.data, dict) else None


def _rank(document: Document) -> int:
    kind = _kind(document)
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _parents(documents: Sequence[Document]) -> dict[str, str]:
    """By name of a queue, the queue above it."""
    queues = [each.data for each in documents if _kind(each) == "Queue"]
    named = [raw for raw in queues if isinstance(raw.get("metadata"), dict)]
    specs = [(str(raw["metadata"].get("name")), raw.get("spec")) for raw in named]
    return {name: str(spec.get("parent") or "") for name, spec in specs if isinstance(spec, dict)}


def _depth(document: Document, parents: dict[str, str]) -> int:
    """How many queues are above one, so that each comes after those above it; 0 for other kinds."""
    metadata = document.data.get("metadata") if _kind(document) == "Queue" else None
    above: list[str] = []
    name = parents.get(str(metadata.get("name"))) if isinstance(metadata, dict) else ""
    while name and name not in above:
        above.append(name)
        name = parents.get(name)
    return len(above)


def _apply(cluster: ApiState, raw: object) -> Iterator[str]:
    if not isinstance(raw, dict):
        yield "expected an object"
        return
    metadata = raw.get("metadata")
    if raw.get("apiVersion") == names.SIM_API:
        yield f"{raw.get('kind')}: is for `holdfast simulate` only"
        return
    group, _, version = str(raw.get("apiVersion") or "").rpartition("/")
    type = cluster.catalogue.kind(group, version, str(raw.get("kind") or ""))
    if type is None:
        yield f"no kind {raw.get('kind')!r} in version {raw.get('apiVersion')!r}"
        return
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        yield f"{raw['kind']}: metadata.name: is required"
        return
    namespace = str(metadata.get("namespace") or names.DEFAULT_NAMESPACE) if type.namespaced else ""
    call = ApiRequest(
        cluster,
        type,
        namespace,
        str(metadata.get("name") or ""),
        options=WriteOptions(manager=MANAGER, validation="Strict", force=True),
    )
    try:
        _put(call, raw)
    except StatusError as error:
        name = object_name(raw)
        # Strict decoding suggests the field that was meant, which an apply does not.
        _, problems = decoded_object(type, raw)
        lines = [": ".join(filter(None, (each.field, each.message))) for each in problems]
        yield from (f"{name}: {line}" for line in lines or [error.message])


def _put(call: ApiRequest, raw: Raw) -> None:
    if call.name:
        patch(call, msgspec.json.encode(raw), APPLY)
    else:
        create_object(call, raw)
