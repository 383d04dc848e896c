"""TLS contexts."""

import ssl
import tempfile
from pathlib import Path

from holdfast.backends.kubernetes.access.credentials import Identity
from holdfast.backends.kubernetes.access.settings import Tls
from holdfast.backends.kubernetes.errors import CredentialsError, KubeconfigError


def make_context(tls: Tls, identity: Identity) -> ssl.SSLContext:
    """Raises KubeconfigError or CredentialsError where a certificate makes no sense."""
    try:
        context = ssl.create_default_context(
            cadata=tls.ca.decode("ascii") if tls.ca is not None else None
        )
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise KubeconfigError("", "certificate-authority", f"not a PEM certificate: {error}") from None
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is not None:
        # Clusters' own authorities often lack what newer OpenSSL insists on (key usage, identifiers).
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.set_alpn_protocols(["http/1.1"])
    if identity.certificate:
        _load(context, identity)
    return context


def _load(context: ssl.SSLContext, identity: Identity) -> None:
    """The library reads certificates from files only, so they are in one for as long as that takes."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(identity.certificate + b"\n" + identity.key)
        try:
            context.load_cert_chain(pair)
        except ssl.SSLError as error:
            raise CredentialsError(f"client certificate and key: {error.reason or error}") from None
