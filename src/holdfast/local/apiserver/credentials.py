"""The certificate authority and the token of the server.

The token allows everything. It is in the kubeconfig that `holdfast up` writes, with the certificate of
the authority, so that clients trust the server without further setup. With a directory both outlive the
process, and a kubeconfig stays valid after a restart. A file there that cannot be used is never
replaced or ignored: the owner of the server decides which clients get it.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.api.errors import HoldfastError

_CA_LASTS = timedelta(days=3650)
_CERTIFICATE_LASTS = timedelta(days=365)
_CLOCKS_DIFFER = timedelta(hours=1)
_ANSWERS_WITHIN = 5.0
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ADDRESSES = ("127.0.0.1", "::1")
_CONTEXT = "holdfast"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")
"""Characters that a header can carry (RFC 6750), and long enough not to be guessed."""


_BOTH = "delete ca.key and ca.crt: new ones are made, and clients need the new kubeconfig"


class InvalidCredentials(HoldfastError):
    """A file of the directory cannot be used; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    token: str
    authority: bytes
    """The certificate clients verify the server by, as PEM."""
    tls: ssl.SSLContext


def make_credentials(directory: Path | None = None, hosts: Iterable[str] = ()) -> ServerCredentials:
    """Loads the credentials of the directory, or creates new ones and stores them there. The server's
    own certificate is new each time, and good for the loopback addresses and `hosts`. Raises
    InvalidCredentials."""
    if directory is not None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = _token(directory)
    key = _authority_key(directory)
    certificate = _authority_certificate(directory, key)
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return ServerCredentials(token, pem, _tls(key, certificate, hosts))


def write_kubeconfig(path: Path, server: str, credentials: ServerCredentials) -> None:
    """Readable by its owner only."""
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(credentials.authority).decode(),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _CONTEXT,
        "clusters": [{"name": _CONTEXT, "cluster": cluster}],
        "users": [{"name": _CONTEXT, "user": {"token": credentials.token}}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CONTEXT, "user": _CONTEXT}}],
    }
    write_secret(path, yaml.safe_dump(document, sort_keys=False).encode())


def answering_server(kubeconfig: str) -> str:
    """The address of the server of a kubeconfig that Holdfast wrote, or nothing if it does not answer
    there. Another server that has got its port has not got its certificate."""
    try:
        cluster = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]
        address = str(cluster["server"])
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        host, port = urlsplit(address).hostname, urlsplit(address).port
        tls = ssl.create_default_context(cadata=authority)
        with (
            socket.create_connection((host or "", port or 443), _ANSWERS_WITHIN) as connection,
            tls.wrap_socket(connection, server_hostname=host),
        ):
            return address
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError):
        return ""


def _kept(directory: Path | None, name: str, make: Callable[[], bytes]) -> bytes:
    if directory is None:
        return make()
    path = directory / name
    try:
        if path.exists():
            return path.read_bytes()
        made = make()
        write_secret(path, made)
    except OSError as error:
        raise InvalidCredentials(f"{path}: {error.strerror or error}") from None
    return made


def _invalid(directory: Path | None, name: str, why: str, remedy: str) -> InvalidCredentials:
    path = (directory or Path()) / name
    return InvalidCredentials(f"{path}: {why}. Restore it from a backup, or {remedy}")


def _token(directory: Path | None) -> str:
    kept = _kept(directory, "token", lambda: secrets.token_urlsafe(32).encode())
    token = kept.decode("ascii", errors="replace").strip()
    if _TOKEN.fullmatch(token) is None:
        why = "is empty" if not token else "is not a token (16 or more of A-Z a-z 0-9 - . _ ~ + /)"
        remedy = "delete it: a new token is made, and clients need the new kubeconfig"
        raise _invalid(directory, "token", why, remedy)
    return token


def write_secret(path: Path, content: bytes) -> None:
    """Whole or not at all, and for the owner's eyes only from the first byte on."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a crash may leave the name without the content
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _authority_key(directory: Path | None) -> ec.EllipticCurvePrivateKey:
    def make() -> bytes:
        return _private(ec.generate_private_key(ec.SECP256R1()))

    try:
        loaded = serialization.load_pem_private_key(_kept(directory, "ca.key", make), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        loaded = None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise _invalid(directory, "ca.key", "is not a private key of this server", _BOTH)
    return loaded


def _authority_certificate(directory: Path | None, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast-ca")])

    def make() -> bytes:
        built = (
            _builder(name, name, key.public_key(), _CA_LASTS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return built.public_bytes(serialization.Encoding.PEM)

    try:
        certificate = x509.load_pem_x509_certificate(_kept(directory, "ca.crt", make))
        belongs = certificate.public_key() == key.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise _invalid(directory, "ca.crt", "is not a certificate", _BOTH) from None
    if not belongs:
        raise _invalid(directory, "ca.crt", "does not belong to ca.key", _BOTH)
    return certificate


def _tls(
    authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, hosts: Iterable[str]
) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast")])
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(subject, authority.subject, key.public_key(), _CERTIFICATE_LASTS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The ssl module reads certificates from files only; these are gone before anyone connects.
    with tempfile.TemporaryDirectory() as place:
        chain, private = Path(place) / "tls.crt", Path(place) / "tls.key"
        chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_secret(private, _private(key))
        context.load_cert_chain(chain, private)
    return context


def _alternatives(hosts: Iterable[str]) -> list[x509.GeneralName]:
    found: dict[x509.GeneralName, None] = {}
    for host in (*_NAMES, *_ADDRESSES, *hosts):
        try:
            found[x509.IPAddress(ipaddress.ip_address(host))] = None
        except ValueError:
            found[x509.DNSName(host)] = None
    return [*found]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
