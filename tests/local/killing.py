"""Kills `holdfast up` in the middle of writes over HTTP, again and again, and looks at what it left.

    python killing.py FOLDER TIMES SEED

Each server is forked, so that two hundred take minutes and not an hour; that is why this is a program
of its own, with one thread, and not part of a test process.
"""

import asyncio
import base64
import gc
import http.client
import json
import os
import random
import signal
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key, Store, open_store
from holdfast.local.up import Up, UpSettings, serve

MAPS = "/api/v1/namespaces/default/configmaps"
KEYS = 20
GONE = "gone"
LIVES_OF_A_STORE = 20
"""Each server reads the history of those before it, so that a store gets slower with its lives."""


def live(settings: UpSettings, pipe: int) -> None:
    """Serves until it is killed; reports when it can be used."""

    def report(up: Up) -> None:
        os.write(pipe, b"!")

    asyncio.run(serve(settings, report))


async def warm_up(settings: UpSettings) -> None:
    """Fills what every server would fill for itself: schemas, and the modules it imports late."""
    up = Up(settings)
    await up.start()
    await asyncio.sleep(0)
    await up.close()


class Client:
    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        server = urlsplit(cluster["server"])
        assert server.hostname is not None
        self._token = document["users"][0]["user"]["token"]
        tls = ssl.create_default_context(cadata=authority)
        self._connection = http.client.HTTPSConnection(
            server.hostname, server.port, timeout=20, context=tls
        )

    def ask(self, method: str, path: str, code: int, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request(method, path, json.dumps(body) if body else None, headers)
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == code, answer
        return answer


def write(client: Client, draw: random.Random, expected: dict[str, tuple[int, str]]) -> None:
    """Writes for ever; what is acknowledged is noted: revision and value."""
    while True:
        name, value = f"m-{draw.randrange(KEYS)}", str(draw.randrange(1 << 30))
        revision, known = expected.get(name, (0, GONE))
        raw = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"v": value},
        }
        if known == GONE:
            answer = client.ask("POST", MAPS, 201, raw)
        elif draw.random() < 0.2:
            client.ask("DELETE", f"{MAPS}/{name}", 200)
            expected[name] = (revision, GONE)
            continue
        else:
            answer = client.ask("PUT", f"{MAPS}/{name}", 200, raw)
        expected[name] = (int(answer["metadata"]["resourceVersion"]), value)


def one_life(settings: UpSettings, draw: random.Random, expected: dict[str, tuple[int, str]]) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            live(settings, writing)
        finally:
            os._exit(3)
    os.close(writing)
    assert os.read(reading, 1) == b"!", "the server did not come up"
    os.close(reading)
    client = Client(settings.kubeconfig)
    client.ask("GET", MAPS, 200)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, 0.002 + draw.random() * 0.1)
    with suppress(OSError, http.client.HTTPException):
        write(client, draw, expected)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the server ended by itself"


def check(store: Store, expected: dict[str, tuple[int, str]]) -> None:
    """An object is as it was acknowledged last, or as the one write under way made it. From here on it
    is expected to be as it is found."""
    differ = []
    for number in range(KEYS):
        name = f"m-{number}"
        found = store.get(Key("", "ConfigMap", "default", name))
        revision, value = expected.get(name, (0, GONE))
        if found is None:
            if value != GONE:
                differ.append(f"{name}: revision {revision} was acknowledged, and it is gone")
            expected[name] = (revision, GONE)
            continue
        version = int(found["metadata"]["resourceVersion"])
        assert version >= revision, f"{name}: is at {version}, {revision} was acknowledged"
        if found["data"]["v"] != value:
            differ.append(f"{name}: is at {version} and not as revision {revision} made it")
        expected[name] = (version, found["data"]["v"])
    assert len(differ) <= 1, "; ".join(differ)


def main(folder: Path, times: int, seed: int) -> None:
    draw = random.Random(seed)
    setup = SchedulerFactory.of()
    asyncio.run(warm_up(UpSettings(setup, folder / "unused", nodes=1)))
    gc.collect()
    gc.freeze()  # the collections of a server would go through all of it, and copy it
    revisions = under_way = 0
    for first in range(0, times, LIVES_OF_A_STORE):
        data = folder / f"data-{first}"
        settings = UpSettings(setup, folder / "kubeconfig", nodes=1, folder=data)
        reached, found = lives(settings, draw, min(LIVES_OF_A_STORE, times - first))
        revisions, under_way = revisions + reached, under_way + found
    print(f"killed={times} revisions={revisions} under_way={under_way}")


def lives(settings: UpSettings, draw: random.Random, times: int) -> tuple[int, int]:
    """Kills the servers of one store. Returns its revision, and how many writes were under way."""
    assert settings.folder is not None
    expected: dict[str, tuple[int, str]] = {}
    reached = under_way = 0
    for _ in range(times):
        one_life(settings, draw, expected)
        store = open_store(settings.folder)
        assert store.revision >= reached, f"revision {store.revision} after {reached}"
        assert store.revision >= max((revision for revision, _ in expected.values()), default=0)
        before = dict(expected)
        check(store, expected)
        under_way += before != expected
        reached = store.revision
        store.close()
    return reached, under_way


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
