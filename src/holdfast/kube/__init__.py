"""Holdfast on a Kubernetes API server.

    access/      where the server is and how to be let in: kubeconfig, in-cluster, exec plugins, TLS
    http/        the client: one connection pool, errors, back-off, retries
    reading/     what the server has, as events: one reflector per kind
    writing/     decisions carried out: binds first, then status, events last
    election     who leads
    fence        keeps a deposed leader from writing
    runner       the loop: reflectors ─► scheduler ─► writer
    provisioning the loop of a provisioner on its own
    installing   CustomResourceDefinitions, put on the server
    comparing    cache against server, for anyone who asks
    traffic      figures about requests and reflectors
    clock        what time it is
    errors       what can go wrong

May import `actions` and everything below; knows nothing of the command line.
"""
