"""Where the API server is, and how to authenticate to it.

kubeconfig   kubeconfig files, merged as kubectl merges them, and the in-cluster configuration
settings     the address, TLS and proxy settings that result
credentials  tokens, client certificates and exec plugins, renewed while the process runs
"""

from holdfast.kube.access.kubeconfig import find_access
from holdfast.kube.access.settings import Access, Tls

__all__ = ["Access", "Tls", "find_access"]
