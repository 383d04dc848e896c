"""`holdfast up` as users have it: a process, its kubeconfig, and HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import select
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Raw = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
_PATIENCE = 60.0
_PROGRAM = "from holdfast.cli import main; main()"


class Client:
    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.server = urlsplit(cluster["server"])
        self.token = user["token"]
        self._tls = ssl.create_default_context(cadata=authority)

    def ask(self, method: str, path: str, body: Raw | None = None) -> tuple[int, Raw]:
        connection = self._connection()
        try:
            self._send(connection, method, path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Raw:
        code, body = self.ask("GET", path)
        assert code == 200, body
        return body

    def create(self, path: str, body: Raw) -> Raw:
        code, made = self.ask("POST", path, body)
        assert code == 201, made
        return made

    def patch(self, path: str, merge: Raw) -> Raw:
        code, changed = self.ask("PATCH", path, merge)
        assert code == 200, changed
        return changed

    def until(self, path: str, name: str, fits: Callable[[Raw | None], bool]) -> Raw | None:
        """Watches an object until it is as asked; None stands for one that is gone."""
        with self.watch(f"{path}?watch=1&fieldSelector=metadata.name={name}") as events:
            for event in events:
                found = None if event["type"] == "DELETED" else event["object"]
                if fits(found):
                    return found
        raise AssertionError(f"{path}/{name}: the watch ended")

    @contextmanager
    def watch(self, path: str) -> Iterator[Iterator[Raw]]:
        connection = self._connection()
        try:
            self._send(connection, "GET", path, None)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield (json.loads(line) for line in iter(response.readline, b""))
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPSConnection:
        assert self.server.hostname is not None
        return http.client.HTTPSConnection(
            self.server.hostname, self.server.port, timeout=_PATIENCE, context=self._tls
        )

    def _send(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: Raw | None
    ) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)


class Running:
    """A process that is up; `with` ends it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.kubeconfig = folder / "kubeconfig.yaml"
        command = [sys.executable, "-c", _PROGRAM, "up", "--kubeconfig-out", str(self.kubeconfig)]
        self._errors = folder / "stderr.txt"
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        # It is ready once it has printed what to try.
        self.printed: list[str] = []
        for line in self.process.stdout:
            self.printed.append(line.rstrip("\n"))
            if line.startswith("Try:"):
                break
        else:
            self.process.communicate()
            raise AssertionError(f"not up: {self.printed} {self._errors.read_text()}")
        self.client = Client(self.kubeconfig)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """The exit status, and stderr."""
        self.process.send_signal(number)
        self.process.communicate(timeout=_PATIENCE)
        return self.process.returncode, self._errors.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


# `holdfast up --detach`


def detached_process(printed: str) -> int:
    """The process that the command names; 0 if it names none."""
    found = re.search(r"^  process     (\d+)$", printed, re.MULTILINE)
    return int(found[1]) if found else 0


def end_detached(printed: str | Path) -> None:
    """Stops the process that the command named, if it runs, and returns when it has ended."""
    if isinstance(printed, Path):
        printed = printed.read_text() if printed.exists() else ""
    process = detached_process(printed)
    if not process:
        return
    # A descriptor of the process becomes readable when it ends; it is no child of this process.
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        os.kill(process, signal.SIGTERM)
        ended, _, _ = select.select([handle], [], [], _PATIENCE)
        assert ended, f"process {process} did not end"
    finally:
        os.close(handle)
