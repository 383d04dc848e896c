"""Where the API server is, and how to be let in.

finding                  from a kubeconfig, or from inside a cluster
settings                 what is found
kubeconfig               a context, read
kubeconfig_file          files, merged as kubectl merges them
incluster                the service account of the pod we run in
credentials              tokens, certificates; what changes while we run
exec_plugin              credentials made by another program
tls, proxies             how to connect
"""

from holdfast.kube.access.kubeconfig import find_access
from holdfast.kube.access.settings import Access, Tls

__all__ = ["Access", "Tls", "find_access"]
