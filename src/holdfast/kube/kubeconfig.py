"""Loads kubeconfig files with kubectl's merge rules and turns a context into an `Access`.

`find_access` is the entry point: an explicit file, else the files in KUBECONFIG, else the in-cluster
service account, else `~/.kube/config`.

Merge rules: the first file that defines a cluster, user or context of some name wins as a whole; so
does the first current-context. Relative paths are relative to the file they stand in, so each entry
keeps the file it came from; errors name that file too.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import yaml
from msgspec import Struct, field

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.api.similar_names import did_you_mean
from holdfast.kube.client_settings import SCHEMES, Access, Tls, proxy_from
from holdfast.kube.credentials import (
    VERSIONS,
    ClientIdentity,
    Credentials,
    ExecCredentials,
    ExecPlugin,
    FileCredentials,
    basic,
    bearer,
    command_path,
)
from holdfast.kube.errors import KubeconfigError


class _Kebab(Struct, rename="kebab", kw_only=True):
    pass


class _Camel(Struct, rename="camel", kw_only=True):
    pass


class NamedExtension(_Camel):
    name: str = ""
    extension: Any = None


class ClusterEntry(_Kebab):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[NamedExtension] | None = None


class EnvEntry(_Camel):
    name: str = ""
    value: str = ""


class ExecEntry(_Camel):
    api_version: str = ""
    command: str = ""
    args: list[str] | None = None
    env: list[EnvEntry] | None = None
    interactive_mode: str = ""
    provide_cluster_info: bool = False
    install_hint: str = ""


class UserEntry(_Kebab):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    as_: str = field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None
    exec: ExecEntry | None = None
    auth_provider: Any = None


class ContextEntry(_Kebab):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Kebab):
    name: str = ""
    cluster: ClusterEntry | None = None


class _NamedUser(_Kebab):
    name: str = ""
    user: UserEntry | None = None


class _NamedContext(_Kebab):
    name: str = ""
    context: ContextEntry | None = None


class _Document(_Kebab):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class Origin(NamedTuple):
    file: Path
    field: str
    """Up to the entry, such as `users[0].user`."""

    def fault(self, field: str, message: str) -> KubeconfigError:
        return KubeconfigError(
            str(self.file), f"{self.field}.{field}" if field else self.field, message
        )


class Kubeconfig:
    def __init__(self) -> None:
        self.current_context = ""
        self.clusters: dict[str, tuple[ClusterEntry, Origin]] = {}
        self.users: dict[str, tuple[UserEntry, Origin]] = {}
        self.contexts: dict[str, tuple[ContextEntry, Origin]] = {}
        self.files: list[Path] = []

    def merge(self, path: Path, document: _Document) -> None:
        self.files.append(path)
        self.current_context = self.current_context or document.current_context
        for i, named in enumerate(document.clusters or ()):
            entry = (named.cluster or ClusterEntry(), Origin(path, f"clusters[{i}].cluster"))
            self.clusters.setdefault(named.name, entry)
        for i, user in enumerate(document.users or ()):
            given = (user.user or UserEntry(), Origin(path, f"users[{i}].user"))
            self.users.setdefault(user.name, given)
        for i, context in enumerate(document.contexts or ()):
            found = (context.context or ContextEntry(), Origin(path, f"contexts[{i}].context"))
            self.contexts.setdefault(context.name, found)


def read_kubeconfig(paths: Sequence[Path], must_exist: bool) -> Kubeconfig:
    """Reads and merges the files. Missing files are skipped unless they must exist. Raises
    KubeconfigError.
    """
    merged = Kubeconfig()
    for path in paths:
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            if must_exist:
                raise KubeconfigError(str(path), "", "no such file") from None
            continue
        except OSError as error:
            raise KubeconfigError(str(path), "", error.strerror or str(error)) from None
        merged.merge(path.absolute(), _parse(path, text))
    return merged


def _parse(path: Path, text: bytes) -> _Document:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        raw = yaml.load(text, loader)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f"line {where.line + 1}: " if where is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise KubeconfigError(str(path), "", f"{line}not YAML: {problem}") from None
    if raw is None:
        return _Document()
    if not isinstance(raw, Mapping):
        raise KubeconfigError(str(path), "", "not a kubeconfig: expected a map")
    if raw.get("kind", "Config") != "Config" or raw.get("apiVersion", "v1") != "v1":
        raise KubeconfigError(str(path), "kind", "not a kubeconfig: expected a Config of v1")
    try:
        return convert(raw, _Document)
    except InvalidObject as error:
        raise KubeconfigError(str(path), error.field, error.message) from None


# A context of a kubeconfig as an Access.


_INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def access_from(config: Kubeconfig, context: str = "") -> Access:
    """The Access for the named context, or the current one. Raises KubeconfigError."""
    files = ":".join(str(path) for path in config.files)
    wanted = context or config.current_context
    if not wanted:
        raise KubeconfigError(files, "current-context", "is not set")
    if wanted not in config.contexts:
        raise KubeconfigError(
            files, "contexts", f"there is no context {wanted!r}{_known(config.contexts, wanted)}"
        )
    chosen, origin = config.contexts[wanted]
    if chosen.cluster not in config.clusters:
        raise origin.fault(
            "cluster", f"there is no cluster {chosen.cluster!r}{_known(config.clusters)}"
        )
    if chosen.user and chosen.user not in config.users:
        raise origin.fault("user", f"there is no user {chosen.user!r}{_known(config.users)}")
    cluster, cluster_origin = config.clusters[chosen.cluster]
    user, user_origin = config.users.get(chosen.user, (UserEntry(), origin))
    server = _server(cluster, cluster_origin)
    tls = _tls(cluster, cluster_origin)
    return Access(
        server=server,
        tls=tls,
        credentials=_credentials(user, user_origin, cluster, tls),
        proxy=_proxy(cluster, cluster_origin, server),
        headers=_acting_as(user, user_origin),
        namespace=chosen.namespace or "default",
        origin=f"{files} (context {wanted})",
    )


def _known(names: Mapping[str, Any], wanted: str = "") -> str:
    """The nearest names, or all of them."""
    return did_you_mean(wanted, names, f"known: {', '.join(sorted(names))}" if names else "")


def _server(cluster: ClusterEntry, origin: Origin) -> str:
    server = cluster.server.rstrip("/")
    if not server:
        raise origin.fault("server", "is not set")
    if "://" not in server:
        server = f"https://{server}"
    try:
        url = urlsplit(server)
        _ = url.port
    except ValueError as error:
        raise origin.fault("server", f"not a URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise origin.fault("server", f"expected https://host:port, got {cluster.server!r}")
    return server


def _tls(cluster: ClusterEntry, origin: Origin) -> Tls:
    ca = _bytes(
        origin,
        "certificate-authority",
        cluster.certificate_authority,
        cluster.certificate_authority_data,
    )
    if ca is not None and cluster.insecure_skip_tls_verify:
        raise origin.fault(
            "insecure-skip-tls-verify", "cannot be combined with a certificate authority"
        )
    return Tls(ca, cluster.insecure_skip_tls_verify, cluster.tls_server_name)


def _proxy(cluster: ClusterEntry, origin: Origin, server: str) -> str | None:
    if not cluster.proxy_url:
        return proxy_from(os.environ, server)
    scheme = urlsplit(cluster.proxy_url).scheme
    if scheme not in SCHEMES:
        raise origin.fault(
            "proxy-url", f"only {' and '.join(SCHEMES)} proxies are supported, not {scheme!r}"
        )
    return cluster.proxy_url


def _credentials(user: UserEntry, origin: Origin, cluster: ClusterEntry, tls: Tls) -> Credentials:
    if user.auth_provider is not None:
        raise origin.fault("auth-provider", "is no longer supported by Kubernetes; use an exec plugin")
    certificate, key = _pair(user, origin)
    if user.exec is not None:
        plugin = _exec_plugin(user.exec, origin, cluster, tls)
        return ExecCredentials(plugin, ClientIdentity("", certificate or b"", key or b""))
    # As in kubectl, a token file wins over a token, and either over a password.
    authorization = bearer(user.token) if user.token else ""
    if not authorization and user.username:
        authorization = basic(user.username, user.password)
    rest = ClientIdentity(authorization, certificate or b"", key or b"")
    from_files = {
        name: _path(origin, path)
        for name, path, data in (
            ("token", user.token_file, ""),
            ("certificate", user.client_certificate, user.client_certificate_data),
            ("key", user.client_key, user.client_key_data),
        )
        if path and not data
    }
    return FileCredentials(**from_files, rest=rest) if from_files else Credentials(rest)


def _pair(user: UserEntry, origin: Origin) -> tuple[bytes | None, bytes | None]:
    certificate = _bytes(
        origin, "client-certificate", user.client_certificate, user.client_certificate_data
    )
    key = _bytes(origin, "client-key", user.client_key, user.client_key_data)
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise origin.fault(missing, "is not set: a certificate and its key must be given together")
    return certificate, key


def _exec_plugin(entry: ExecEntry, origin: Origin, cluster: ClusterEntry, tls: Tls) -> ExecPlugin:
    if entry.api_version not in VERSIONS:
        raise origin.fault(
            "exec.apiVersion", f"expected {' or '.join(VERSIONS)}, got {entry.api_version!r}"
        )
    if not entry.command:
        raise origin.fault("exec.command", "is not set")
    mode = entry.interactive_mode
    if not mode and entry.api_version.endswith("/v1beta1"):
        mode = "IfAvailable"
    if mode not in _INTERACTIVE_MODES:
        raise origin.fault("exec.interactiveMode", f"expected one of {', '.join(_INTERACTIVE_MODES)}")
    return ExecPlugin(
        api_version=entry.api_version,
        command=command_path(entry.command, origin.file.parent),
        args=entry.args or [],
        env={variable.name: variable.value for variable in entry.env or ()},
        interactive_mode=mode,
        install_hint=entry.install_hint,
        cluster=_cluster_info(cluster, tls) if entry.provide_cluster_info else None,
    )


def _cluster_info(cluster: ClusterEntry, tls: Tls) -> dict[str, Any]:
    info: dict[str, Any] = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(tls.ca or b"").decode(),
        "proxy-url": cluster.proxy_url,
    }
    for extension in cluster.extensions or ():
        if extension.name == _EXEC_EXTENSION:
            info["config"] = extension.extension
    return {key: value for key, value in info.items() if value}


def _acting_as(user: UserEntry, origin: Origin) -> tuple[tuple[str, str], ...]:
    if not user.as_:
        if user.as_groups or user.as_uid or user.as_user_extra:
            raise origin.fault("as", "is not set: groups, uid and extra need a user to impersonate")
        return ()
    headers = [("Impersonate-User", user.as_)]
    if user.as_uid:
        headers.append(("Impersonate-Uid", user.as_uid))
    headers.extend(("Impersonate-Group", group) for group in user.as_groups or ())
    for key, values in (user.as_user_extra or {}).items():
        name = f"Impersonate-Extra-{quote(key, safe='')}"
        headers.extend((name, value) for value in values)
    return tuple(headers)


def _bytes(origin: Origin, field: str, path: str, data: str) -> bytes | None:
    """The content of the file, or the inline data, which takes precedence."""
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error as error:
            raise origin.fault(f"{field}-data", f"not base64: {error}") from None
    if not path:
        return None
    try:
        return _path(origin, path).read_bytes()
    except OSError as error:
        raise origin.fault(field, f"{path}: {error.strerror or error}") from None


def _path(origin: Origin, path: str) -> Path:
    return origin.file.parent / Path(path).expanduser()


# In-cluster configuration: the service account of the pod.


FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def is_in_pod() -> bool:
    """Whether this runs in a pod, with a service account's token or with a kubeconfig."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def is_in_cluster(folder: Path = FOLDER) -> bool:
    """Whether this is a pod with a service account's token."""
    return is_in_pod() and (folder / "token").exists()


def access_in_cluster(folder: Path = FOLDER) -> Access:
    """The Access of the pod's service account. Proxy settings are ignored. Raises KubeconfigError."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise KubeconfigError("", "KUBERNETES_SERVICE_HOST", "is not set: this is not a pod")
    try:
        ca = (folder / "ca.crt").read_bytes()
    except OSError as error:
        raise KubeconfigError(str(folder / "ca.crt"), "", error.strerror or str(error)) from None
    try:
        namespace = (folder / "namespace").read_text().strip() or "default"
    except OSError:
        namespace = "default"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=Tls(ca),
        credentials=FileCredentials(folder / "token"),
        namespace=namespace,
        origin="the pod's service account",
    )


# Loading order.


def find_access(path: str | None = None, context: str = "") -> Access:
    """The explicit file; else those in KUBECONFIG; else the service account; else ~/.kube/config.

    Raises KubeconfigError.
    """
    config = find_kubeconfig(path)
    if config is None and is_in_cluster():
        return access_in_cluster()
    if config is None:
        usual = _usual_file()
        if not usual.exists():
            raise KubeconfigError(
                "", "", f"no cluster: give --kubeconfig, set KUBECONFIG, or create {usual}"
            )
        config = read_kubeconfig([usual], must_exist=True)
    return access_from(config, context)


def find_kubeconfig(path: str | None = None) -> Kubeconfig | None:
    """The explicit file, or those in KUBECONFIG; None without either. Raises KubeconfigError."""
    if path:
        return read_kubeconfig([Path(path).expanduser()], must_exist=True)
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not listed:
        return None
    config = read_kubeconfig(listed, must_exist=False)
    if not config.files:
        raise KubeconfigError(os.environ["KUBECONFIG"], "", "KUBECONFIG: no such file")
    return config


def known_contexts(path: str | None = None) -> list[str]:
    """The names of all contexts. Raises KubeconfigError."""
    config = find_kubeconfig(path) or read_kubeconfig([_usual_file()], must_exist=False)
    return sorted(config.contexts)


def _usual_file() -> Path:
    return Path.home() / ".kube" / "config"
