"""From inside a pod: its service account."""

import os
from pathlib import Path

from holdfast.backends.kubernetes.access.credentials import FileCredentials
from holdfast.backends.kubernetes.access.settings import Access, Tls
from holdfast.backends.kubernetes.errors import KubeconfigError

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def is_in_cluster(folder: Path = FOLDER) -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (folder / "token").exists()


def access_in_cluster(folder: Path = FOLDER) -> Access:
    """Proxies are not asked: the server is next door. Raises KubeconfigError."""
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
