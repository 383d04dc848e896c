"""Where to look for a cluster, in what order."""

import os
from pathlib import Path

from holdfast.backends.kubernetes.access.incluster import access_in_cluster, is_in_cluster
from holdfast.backends.kubernetes.access.kubeconfig import access_from
from holdfast.backends.kubernetes.access.kubeconfig_file import read_kubeconfig
from holdfast.backends.kubernetes.access.settings import Access
from holdfast.backends.kubernetes.errors import KubeconfigError


def find_access(path: str | None = None, context: str = "") -> Access:
    """The file given; else those in KUBECONFIG; else the pod's service account; else ~/.kube/config.

    Raises KubeconfigError.
    """
    if path:
        return access_from(read_kubeconfig([Path(path).expanduser()], must_exist=True), context)
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        config = read_kubeconfig(listed, must_exist=False)
        if not config.files:
            raise KubeconfigError(os.environ["KUBECONFIG"], "", "KUBECONFIG: no such file")
        return access_from(config, context)
    if is_in_cluster():
        return access_in_cluster()
    usual = Path.home() / ".kube" / "config"
    if not usual.exists():
        raise KubeconfigError("", "", f"no cluster: give --kubeconfig, set KUBECONFIG, or make {usual}")
    return access_from(read_kubeconfig([usual], must_exist=True), context)
