"""From a kubeconfig's context to what a client needs."""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from holdfast.backends.kubernetes.access.credentials import (
    Credentials,
    FileCredentials,
    Identity,
    basic,
    bearer,
)
from holdfast.backends.kubernetes.access.exec_plugin import (
    VERSIONS,
    ExecCredentials,
    ExecPlugin,
    command_path,
)
from holdfast.backends.kubernetes.access.kubeconfig_file import (
    ClusterEntry,
    ExecEntry,
    Kubeconfig,
    Origin,
    UserEntry,
)
from holdfast.backends.kubernetes.access.proxies import SCHEMES, proxy_from
from holdfast.backends.kubernetes.access.settings import Access, Tls
from holdfast.backends.kubernetes.errors import KubeconfigError

_INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def access_from(config: Kubeconfig, context: str = "") -> Access:
    """By the context of that name, or the current one. Raises KubeconfigError."""
    files = ":".join(str(path) for path in config.files)
    wanted = context or config.current_context
    if not wanted:
        raise KubeconfigError(files, "current-context", "is not set")
    if wanted not in config.contexts:
        raise KubeconfigError(
            files, "contexts", f"there is no context {wanted!r}{_known(config.contexts)}"
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


def _known(names: Mapping[str, Any]) -> str:
    return f"; known: {', '.join(sorted(names))}" if names else ""


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
            "insecure-skip-tls-verify", "makes no sense together with a certificate authority"
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
        return ExecCredentials(plugin, Identity("", certificate or b"", key or b""))
    # As in kubectl, a token file wins over a token, and either over a password.
    authorization = bearer(user.token) if user.token else ""
    if not authorization and user.username:
        authorization = basic(user.username, user.password)
    rest = Identity(authorization, certificate or b"", key or b"")
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
        raise origin.fault(missing, "is not set: a certificate and its key must come together")
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
            raise origin.fault("as", "is not set: groups, uid and extra need a user to act as")
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
    """What is in the file, or in the field itself; that wins."""
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
