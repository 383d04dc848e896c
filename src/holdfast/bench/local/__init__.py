"""How fast pods are bound in an embedded cluster, from being created to being seen on a node.

inside      pods created in the cluster's own process
over_http   pods created by a client, over HTTP, against `holdfast up`
command     both, as a table or JSON
"""
