"""etcd and kube-apiserver on free ports of the loopback interface, and kube-scheduler beside them.

Everything they write goes into one folder. Users are distinguished by tokens; each gets a kubeconfig
that checks the server's certificate.
"""

from __future__ import annotations

import secrets
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from holdfast.api.names import WORKLOAD_API
from realserver.assets import CONTROLLERS, SCHEDULER, folder, program_version
from realserver.client import Client, RefusedError
from realserver.process import ServerFailedError, ServerProcess, free_ports

_USERS = {
    "admin": "system:masters",
    "system:kube-scheduler": "",
    "holdfast": "system:masters",
}
_ATTEMPTS = 3
_EMPTIED = (
    ("v1", "pods"),
    ("v1", "persistentvolumeclaims"),
    ("resource.k8s.io/v1", "resourceclaims"),
    ("resource.k8s.io/v1", "resourceclaimtemplates"),
    ("resource.k8s.io/v1", "resourceslices"),
    ("resource.k8s.io/v1", "devicetaintrules"),
    ("resource.k8s.io/v1", "deviceclasses"),
    ("v1", "persistentvolumes"),
    ("storage.k8s.io/v1", "storageclasses"),
    ("storage.k8s.io/v1", "csinodes"),
    ("storage.k8s.io/v1", "csidrivers"),
    ("storage.k8s.io/v1", "csistoragecapacities"),
    ("policy/v1", "poddisruptionbudgets"),
    ("apps/v1", "replicasets"),
    ("apps/v1", "statefulsets"),
    ("v1", "replicationcontrollers"),
    ("v1", "services"),
    ("v1", "nodes"),
    ("v1", "events"),
)
_EMPTIED_WHERE_SERVED = (WORKLOAD_API, "podgroups")
_NEED_CONTROLLERS = ("ServiceAccount", "TaintNodesByCondition", "StorageObjectInUseProtection")
"""Admission plugins that wait for controllers, of which there are none: these would make service
accounts, take the taints of new nodes away, and let go of claims and volumes that are deleted."""
_POD_GROUPS = (
    "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,"
    "DRAWorkloadResourceClaims=true",
    "--runtime-config=scheduling.k8s.io/v1beta1=true",
)
"""PodGroups of Kubernetes, which are off by default."""
_OWN = frozenset(("kubernetes",))
"""What the server makes for itself."""


class RealServer:
    """Use as a context: the servers run inside it."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self._running = ExitStack()
        self._tokens = {user: secrets.token_hex(16) for user in _USERS}
        self._etcd_port = self.port = 0
        self.client: Client

    def __enter__(self) -> RealServer:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start()
                return self
            except ServerFailedError:
                self._running.close()
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def kubeconfig(self, user: str = "admin") -> Path:
        """The path of a kubeconfig for one of the users."""
        path = self._where / f"{user.replace(':', '-')}.kubeconfig"
        server = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(self._authority),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def new_client(self, user: str = "admin") -> Client:
        return Client(self.port, self._tokens[user], self._authority)

    def empty(self) -> None:
        """Takes away what a test may have left; namespaces and priority classes stay."""
        left = [obj for kind in _EMPTIED for obj in self.client.list(*kind)]
        with suppress(RefusedError):
            left += self.client.list(*_EMPTIED_WHERE_SERVED)
        for obj in left:
            if obj["metadata"]["name"] in _OWN:
                continue
            with suppress(RefusedError):
                if obj["metadata"].get("finalizers"):
                    self.client.patch(obj, {"metadata": {"finalizers": None}})
                self.client.delete(obj)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        self._api_server.wait_until(ready)

    def kill_api_server(self) -> None:
        """As a machine that loses power would; etcd stays."""
        self._api_server.kill()

    def start_api_server(self) -> None:
        """On the port it had."""
        self._api_server = self._start_api_server()

    @contextmanager
    def kube_scheduler(self, configuration: dict[str, Any] | None = None) -> Iterator[None]:
        """kube-scheduler, with this configuration file's content, runs in this context."""
        (port,) = free_ports(1)
        kubeconfig = self.kubeconfig("system:kube-scheduler")
        content = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 1000},
            **(configuration or {}),
        }
        config = self._where / "scheduler.yaml"
        config.write_text(yaml.safe_dump(content))
        command: list[str | Path] = [
            folder() / SCHEDULER,
            f"--config={config}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self._where / 'scheduler-certificates'}",
        ]
        process = ServerProcess(SCHEDULER, command, self._where / "scheduler.log")
        try:
            made = self._where / "scheduler-certificates" / "kube-scheduler.crt"
            process.wait_until(lambda: _is_ready(port, self._tokens["admin"], made))
            yield
        finally:
            process.stop()

    @contextmanager
    def kube_controller_manager(self) -> Iterator[None]:
        """The controllers of workloads run in this context; nodes are left alone."""
        (port,) = free_ports(1)
        command: list[str | Path] = [
            folder() / CONTROLLERS,
            f"--kubeconfig={self.kubeconfig()}",
            "--controllers=*,-node-lifecycle-controller,-node-ipam-controller",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self._where / 'controller-certificates'}",
            *(_POD_GROUPS[:1] if program_version(CONTROLLERS) >= (1, 37) else ()),
        ]
        process = ServerProcess(CONTROLLERS, command, self._where / "controllers.log")
        try:
            made = self._where / "controller-certificates" / "kube-controller-manager.crt"
            process.wait_until(lambda: _is_healthy(port, made))
            yield
        finally:
            process.stop()

    def _start(self) -> None:
        self._etcd_port, peer_port, self.port = free_ports(3)
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{peer_port}"
        self._run(
            "etcd",
            f"--data-dir={self._where / f'etcd-{self._etcd_port}'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ).wait_until(lambda: _answers(f"{etcd}/health"))
        self._key = self._signing_key()
        self._api_server = self._start_api_server()
        self.client = self.new_client()
        self._running.callback(self.client.close)

    def _start_api_server(self) -> ServerProcess:
        key = self._key
        groups = program_version("kube-apiserver") >= (1, 37)
        process = self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self._where / 'certificates'}",
            f"--token-auth-file={self._token_file()}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--disable-admission-plugins={','.join(_NEED_CONTROLLERS)}",
            *(_POD_GROUPS if groups else ()),
        )
        process.wait_until(lambda: _is_ready(self.port, self._tokens["admin"], self._authority))
        return process

    def _run(self, name: str, *flags: str) -> ServerProcess:
        process = ServerProcess(name, [folder() / name, *flags], self._where / f"{name}.log")
        self._running.callback(process.stop)
        return process

    @property
    def _authority(self) -> Path:
        return self._where / "certificates" / "apiserver.crt"

    def _token_file(self) -> Path:
        path = self._where / "tokens.csv"
        lines = [f'{self._tokens[user]},{user},{user},"{group}"' for user, group in _USERS.items()]
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return path

    def _signing_key(self) -> Path:
        path = self._where / "service-accounts.key"
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        form = serialization.PrivateFormat.TraditionalOpenSSL
        secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        path.write_bytes(secret)
        path.chmod(0o600)
        return path


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False


def _is_healthy(port: int, authority: Path) -> bool:
    """Whether a component answers that needs no credentials for that."""
    try:
        client = Client(port, "", authority)
        try:
            return bool(client.request("GET", "/healthz") == "ok")
        finally:
            client.close()
    except (OSError, HTTPException):
        return False
    except RefusedError as error:
        return error.status in (401, 403)


def _is_ready(port: int, token: str, authority: Path) -> bool:
    try:
        client = Client(port, token, authority)
        try:
            return bool(client.request("GET", "/readyz") == "ok")
        finally:
            client.close()
    except (OSError, HTTPException, RefusedError):
        return False
