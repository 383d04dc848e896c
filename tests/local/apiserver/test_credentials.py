"""Authentication of clients, and of the server to them."""

from __future__ import annotations

import http.client
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.apiserver import PODS, LiveServer
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.credentials import InvalidCredentials, make_credentials, write_kubeconfig
from holdfast.local.apiserver.server import ApiServer
from holdfast.local.clock import RealClock
from holdfast.local.store import Store


@pytest.fixture(scope="module")
def secured() -> Iterator[LiveServer]:
    with LiveServer(credentials=make_credentials()) as server:
        yield server


@pytest.mark.parametrize("token", ["", "wrong", "Bearer", "ünïcode"])
def test_without_the_token_nothing_is_revealed(secured: LiveServer, token: str) -> None:
    answer = secured.ask("GET", PODS, token=token.encode().decode("latin-1"))
    assert (answer.code, answer.reason, answer.message) == (401, "Unauthorized", "Unauthorized")
    assert answer.body["kind"] == "Status"


def test_with_the_token_everything_is(secured: LiveServer) -> None:
    assert secured.get(PODS).code == 200


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
def test_anyone_may_ask_how_it_is(secured: LiveServer, path: str) -> None:
    assert secured.ask("GET", path, token="").code == 200
    assert secured.ask("GET", path, token="wrong").code == 401


def test_others_are_not_mistaken_for_it(secured: LiveServer) -> None:
    other = make_credentials()
    context = ssl.create_default_context(cadata=other.authority.decode())
    connection = http.client.HTTPSConnection("127.0.0.1", secured.port, context=context, timeout=10)
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/version")
    connection.close()


def test_credentials_outlive_the_process(tmp_path: Path) -> None:
    first = make_credentials(tmp_path / "keys")
    again = make_credentials(tmp_path / "keys")
    assert (first.token, first.authority) == (again.token, again.authority)
    assert make_credentials().token != first.token
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "keys").iterdir()}
    assert files == {"token": 0o600, "ca.key": 0o600, "ca.crt": 0o600}


def test_the_kubeconfig_is_for_its_owner(tmp_path: Path) -> None:
    credentials = make_credentials()
    path = tmp_path / "config"
    write_kubeconfig(path, "https://127.0.0.1:1", credentials)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = yaml.safe_load(path.read_text())
    assert written["users"][0]["user"] == {"token": credentials.token}
    assert written["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    write_kubeconfig(path, "https://127.0.0.1:2", credentials)
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("token", b"", "token: is empty.*delete it: a new token is made"),
        ("token", b" \n\t\n", "token: is empty"),
        ("token", b"short", "token: is not a token"),
        ("token", b"with a space and more of it", "token: is not a token"),
        ("token", b"\xff\xfe\x00\x01" * 8, "token: is not a token"),
        ("token", b"a-token-of-two-lines\na-token-of-two-lines\n", "token: is not a token"),
        ("ca.key", b"", "ca.key: is not a private key.*delete ca.key and ca.crt"),
        ("ca.crt", b"-----BEGIN CERTIFICATE-----\n", "ca.crt: is not a certificate"),
    ],
)
def test_a_file_without_a_credential_is_refused_and_not_changed(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    make_credentials(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidCredentials, match=message):
        make_credentials(tmp_path)
    assert (tmp_path / name).read_bytes() == content


def test_a_certificate_of_another_key_is_refused(tmp_path: Path) -> None:
    make_credentials(tmp_path / "a")
    make_credentials(tmp_path / "b")
    (tmp_path / "a" / "ca.crt").write_bytes((tmp_path / "b" / "ca.crt").read_bytes())
    with pytest.raises(InvalidCredentials, match=r"ca\.crt: does not belong to ca\.key"):
        make_credentials(tmp_path / "a")


def test_a_token_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    with pytest.raises(InvalidCredentials, match="token: Is a directory"):
        make_credentials(tmp_path)


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_an_empty_token_does_not_stand_for_none(token: str) -> None:
    with pytest.raises(ValueError, match="the token is empty"):
        ApiServer(ApiState(Store(), RealClock()), token=token)
