"""What kubeconfig files say, merged as kubectl merges them.

The first file that has a cluster, a user or a context of some name wins, whole; so does the first that
names a current context. Paths inside a file are relative to its folder, so everything keeps the name of
the file it came from, which errors name too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec import Struct, field

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.backends.kubernetes.errors import KubeconfigError


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
    """Files that are not there are passed over, unless they must exist. Raises KubeconfigError."""
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
