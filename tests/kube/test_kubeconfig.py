"""How a cluster is found, and how we are let in."""

from __future__ import annotations

import base64
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.virtual_time import run
from holdfast.kube.client_settings import Access, is_exempt, proxy_from
from holdfast.kube.credentials import ClientIdentity
from holdfast.kube.errors import CredentialsError, KubeconfigError
from holdfast.kube.kubeconfig import access_in_cluster, find_access


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write(path: Path, cluster: Any = None, user: Any = None, name: str = "main", **rest: Any) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster or {"server": "https://one:6443"}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        **rest,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def given(tmp_path: Path, cluster: Any = None, user: Any = None, **rest: Any) -> Access:
    return find_access(str(write(tmp_path / "config", cluster, user, **rest)))


def identity(access: Access) -> ClientIdentity:
    async def ask() -> ClientIdentity:
        return access.credentials.current() or await access.credentials.renew()

    return run(ask())


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_client_gets_the_settings_of_the_kubeconfig(tmp_path: Path) -> None:
    access = given(
        tmp_path,
        {
            "server": "https://one:6443/",
            "certificate-authority-data": b64("CA"),
            "tls-server-name": "kube",
            "proxy-url": "http://proxy:3128",
        },
        {"token": "t"},
        contexts=[{"name": "main", "context": {"cluster": "main", "user": "main", "namespace": "x"}}],
    )
    assert access.server == "https://one:6443"
    assert (access.tls.ca, access.tls.server_name, access.tls.insecure) == (b"CA", "kube", False)
    assert (access.proxy, access.namespace) == ("http://proxy:3128", "x")
    assert identity(access) == ClientIdentity("Bearer t")


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, ClientIdentity()),
        ({"token": "t"}, ClientIdentity("Bearer t")),
        ({"username": "u", "password": "p"}, ClientIdentity("Basic dTpw")),
        ({"token": "t", "username": "u", "password": "p"}, ClientIdentity("Bearer t")),
        (
            {"client-certificate-data": b64("C"), "client-key-data": b64("K")},
            ClientIdentity("", b"C", b"K"),
        ),
        ({"client-certificate": "c.pem", "client-key": "sub/k.pem"}, ClientIdentity("", b"FC", b"FK")),
        (
            {"client-certificate": "c.pem", "client-key-data": b64("K"), "token": "t"},
            ClientIdentity("Bearer t", b"FC", b"K"),
        ),
        ({"tokenFile": "token"}, ClientIdentity("Bearer from-file")),
        ({"tokenFile": "token", "token": "t"}, ClientIdentity("Bearer from-file")),
        (
            {"tokenFile": "token", "client-certificate": "c.pem", "client-key": "sub/k.pem"},
            ClientIdentity("Bearer from-file", b"FC", b"FK"),
        ),
    ],
)
def test_who_we_are(tmp_path: Path, user: Any, expected: ClientIdentity) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "c.pem").write_text("FC")
    (tmp_path / "sub" / "k.pem").write_text("FK")
    (tmp_path / "token").write_text("from-file\n")
    assert identity(given(tmp_path, user=user)) == expected


def test_acting_as_someone_else(tmp_path: Path) -> None:
    user = {"token": "t", "as": "bot", "as-groups": ["a", "b"], "as-user-extra": {"why/x": ["y"]}}
    assert given(tmp_path, user=user).headers == (
        ("Impersonate-User", "bot"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-why%2Fx", "y"),
    )


@pytest.mark.parametrize(
    ("cluster", "user", "rest", "complaint"),
    [
        ({"server": "ftp://x"}, None, {}, "clusters[0].cluster.server: expected https://host:port"),
        ({"server": "https://h:port"}, None, {}, "clusters[0].cluster.server: not a URL"),
        ({"server": 3}, None, {}, "clusters[0].cluster.server: expected a string, got the number 3"),
        ({"certificate-authority": "x"}, None, {}, "clusters[0].cluster.server: is not set"),
        (
            {"server": "https://a", "certificate-authority": "no/such.pem"},
            None,
            {},
            "clusters[0].cluster.certificate-authority: no/such.pem: No such file",
        ),
        (
            {"server": "https://a", "certificate-authority-data": "%%"},
            None,
            {},
            "clusters[0].cluster.certificate-authority-data: not base64",
        ),
        (
            {
                "server": "https://a",
                "certificate-authority-data": b64("x"),
                "insecure-skip-tls-verify": True,
            },
            None,
            {},
            "insecure-skip-tls-verify: cannot be combined",
        ),
        (
            {"server": "https://a", "proxy-url": "socks5://p"},
            None,
            {},
            "proxy-url: only http and https",
        ),
        (None, {"client-certificate-data": b64("C")}, {}, "users[0].user.client-key: is not set"),
        (None, {"client-key-data": b64("C")}, {}, "users[0].user.client-certificate: is not set"),
        (None, {"auth-provider": {"name": "gcp"}}, {}, "users[0].user.auth-provider: is no longer"),
        (None, {"as-groups": ["x"]}, {}, "users[0].user.as: is not set"),
        (None, {"exec": {"command": "x"}}, {}, "users[0].user.exec.apiVersion: expected"),
        (
            None,
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}},
            {},
            "users[0].user.exec.interactiveMode: expected one of",
        ),
        (
            None,
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1"}},
            {},
            "users[0].user.exec.command: is not set",
        ),
        (None, None, {"current-context": ""}, "current-context: is not set"),
        (None, None, {"current-context": "else"}, "contexts: there is no context 'else'; known: main"),
        (
            None,
            None,
            {"contexts": [{"name": "main", "context": {"cluster": "far"}}]},
            "contexts[0].context.cluster: there is no cluster 'far'; known: main",
        ),
        (
            None,
            None,
            {"contexts": [{"name": "main", "context": {"cluster": "main", "user": "eve"}}]},
            "contexts[0].context.user: there is no user 'eve'; known: main",
        ),
        (None, None, {"kind": "Pod"}, "kind: not a kubeconfig"),
    ],
)
def test_errors_name_the_file_and_the_field(
    tmp_path: Path, cluster: Any, user: Any, rest: Any, complaint: str
) -> None:
    with pytest.raises(KubeconfigError) as raised:
        given(tmp_path, cluster, user, **rest)
    assert str(raised.value).startswith(str(tmp_path / "config"))
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "not YAML"), ("- a", "expected a map"), ("", "current-context")],
)
def test_files_that_are_none(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(KubeconfigError, match=complaint):
        find_access(str(tmp_path / "config"))


# Where it is looked for


def test_several_files_are_merged_and_the_first_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = write(tmp_path / "one" / "config", user={"tokenFile": "token"}, name="one")
    (tmp_path / "one" / "token").write_text("one")
    two = write(tmp_path / "two" / "config", {"server": "https://two"}, {"token": "two"}, name="two")
    again = write(tmp_path / "three" / "config", {"server": "https://three"}, name="one")
    missing = tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", f"{missing}:{one}:{two}:{again}")
    first = find_access()
    assert first.server == "https://one:6443"
    assert identity(first).authorization == "Bearer one", "relative to its own file"
    assert identity(find_access(context="two")).authorization == "Bearer two"
    monkeypatch.setenv("KUBECONFIG", str(missing))
    with pytest.raises(KubeconfigError, match="no such file"):
        find_access()


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KubeconfigError, match="give --kubeconfig, set KUBECONFIG"):
        find_access()
    write(tmp_path / "home" / ".kube" / "config", {"server": "https://home"})
    assert find_access().server == "https://home"
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "env", {"server": "https://env"})))
    assert find_access().server == "https://env"
    assert (
        find_access(str(write(tmp_path / "flag", {"server": "https://flag"}))).server == "https://flag"
    )
    with pytest.raises(KubeconfigError, match="no such file"):
        find_access(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("host", "server"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")])
def test_inside_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    (tmp_path / "ca.crt").write_text("CA")
    (tmp_path / "token").write_text("first")
    (tmp_path / "namespace").write_text("holdfast")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    access = access_in_cluster(tmp_path)
    assert (access.server, access.tls.ca) == (f"https://{server}:6443", b"CA")
    assert access.namespace == "holdfast"
    assert identity(access).authorization == "Bearer first"


# What changes while we run


def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("holdfast.kube.credentials.time.monotonic", lambda: now)
    token = tmp_path / "token"
    token.write_text("one")
    access = given(tmp_path, user={"tokenFile": "token"})
    assert identity(access).authorization == "Bearer one"
    token.write_text("two")
    assert identity(access).authorization == "Bearer one", "not at every request"
    now += 61
    assert identity(access).authorization == "Bearer two"
    now += 61
    token.unlink()  # while it is being replaced
    assert identity(access).authorization == "Bearer two"
    now += 61
    token.write_text("")
    assert identity(access).authorization == "Bearer two"
    with pytest.raises(CredentialsError, match="token: No such file"):
        identity(given(tmp_path, user={"tokenFile": "no-such-token"}))


PLUGIN = """#!{python}
import json, os, pathlib, sys
log = pathlib.Path({log!r})
log.write_text(log.read_text() + "x" if log.exists() else "x")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
(pathlib.Path({log!r}).parent / "info.json").write_text(json.dumps(info))
{body}
"""
ANSWER = """
print(json.dumps({{"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": {status}}}))
"""
V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def plugin(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "plugin"
    path.write_text(PLUGIN.format(python=sys.executable, log=str(tmp_path / "log"), body=body))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def exec_user(command: str = "./plugin", version: str = V1, **more: Any) -> Any:
    entry = {"apiVersion": version, "command": command, "interactiveMode": "Never", **more}
    return {"exec": entry}


def ask(access: Access, times: int = 1) -> list[str]:
    """Really runs programs, so time is real."""
    import asyncio

    async def go() -> list[str]:
        got = []
        for _ in range(times):
            current = access.credentials.current() or await access.credentials.renew()
            got.append(current.authorization)
        return got

    return asyncio.run(go())


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_plugin_is_asked_once_until_its_answer_expires(tmp_path: Path, version: str) -> None:
    plugin(
        tmp_path, ANSWER.format(status={"token": "t", "expirationTimestamp": "2999-01-01T00:00:00Z"})
    )
    access = given(
        tmp_path,
        {"server": "https://one:6443", "certificate-authority-data": b64("CA")},
        exec_user(version=version, provideClusterInfo=True, env=[{"name": "A", "value": "b"}]),
    )
    assert ask(access, times=3) == ["Bearer t"] * 3
    assert (tmp_path / "log").read_text() == "x"
    info = json.loads((tmp_path / "info.json").read_text())
    assert info["apiVersion"] == version
    assert info["spec"]["interactive"] is False
    assert info["spec"]["cluster"] == {
        "server": "https://one:6443",
        "certificate-authority-data": b64("CA"),
    }


def test_an_answer_that_has_expired_is_asked_for_again(tmp_path: Path) -> None:
    plugin(
        tmp_path, ANSWER.format(status={"token": "t", "expirationTimestamp": "2000-01-01T00:00:00Z"})
    )
    ask(given(tmp_path, user=exec_user()), times=3)
    assert (tmp_path / "log").read_text() == "xxx"


def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    plugin(tmp_path, ANSWER.format(status={"clientCertificateData": "C", "clientKeyData": "K"}))
    access = given(tmp_path, user=exec_user())
    ask(access)
    assert access.credentials.current() == ClientIdentity("", b"C", b"K")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("sys.exit('no such profile')", "exit status 1: no such profile"),
        ("print('hello')", "its output is not JSON"),
        ("print('{}')", "expected an ExecCredential"),
        (ANSWER.format(status={}), "neither a token nor a certificate"),
        (ANSWER.format(status={"clientCertificateData": "C"}), "must be given together|neither"),
        (ANSWER.format(status={"token": 3}), "expected a string"),
        (ANSWER.format(status={"token": "t", "expirationTimestamp": "soon"}), "expirationTimestamp"),
    ],
)
def test_errors_of_a_plugin_are_reported(tmp_path: Path, body: str, complaint: str) -> None:
    plugin(tmp_path, body)
    with pytest.raises(CredentialsError, match=complaint):
        ask(given(tmp_path, user=exec_user()))


def test_a_missing_plugin_is_reported_with_its_install_hint(tmp_path: Path) -> None:
    user = exec_user("no-such-plugin", installHint="get it from the shop")
    with pytest.raises(CredentialsError, match=r"(?s)No such file.*get it from the shop"):
        ask(given(tmp_path, user=user))


def test_a_plugin_that_needs_a_terminal_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    plugin(tmp_path, ANSWER.format(status={"token": "t"}))
    user = exec_user()
    user["exec"]["interactiveMode"] = "Always"
    with pytest.raises(CredentialsError, match="requires a terminal"):
        ask(given(tmp_path, user=user))


# Proxies


@pytest.mark.parametrize(
    ("host", "port", "exempt", "expected"),
    [
        ("localhost", 443, "", True),
        ("127.0.0.1", 6443, "", True),
        ("::1", 6443, "", True),
        ("kube.example.com", 443, "", False),
        ("kube.example.com", 443, "*", True),
        ("kube.example.com", 443, "example.com", True),
        ("kube.example.com", 443, ".example.com", True),
        ("example.com", 443, ".example.com", False),
        ("notexample.com", 443, "example.com", False),
        ("kube.example.com", 443, "a, KUBE.example.com ,b", True),
        ("kube.example.com", 443, "kube.example.com:6443", False),
        ("kube.example.com", 6443, "kube.example.com:6443", True),
        ("10.1.2.3", 443, "10.0.0.0/8", True),
        ("10.1.2.3", 443, "10.1.2.3", True),
        ("10.1.2.3", 443, "11.0.0.0/8,10.1.2", False),
        ("kube", 443, "10.0.0.0/8", False),
        ("fd00::1", 443, "fd00::/8", True),
        ("fd00::1", 6443, "[fd00::1]:6443", True),
        ("10.1.2.3", 443, "nonsense/99", False),
    ],
)
def test_who_needs_no_proxy(host: str, port: int, exempt: str, expected: bool) -> None:
    assert is_exempt(host, port, exempt) is expected


@pytest.mark.parametrize(
    ("environment", "server", "proxy"),
    [
        ({}, "https://a", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://a", "http://p:1"),
        ({"https_proxy": "p:1"}, "https://a", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://a", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://a", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a"}, "https://a", None),
    ],
)
def test_proxies_of_the_environment(
    environment: dict[str, str], server: str, proxy: str | None
) -> None:
    assert proxy_from(environment, server) == proxy
