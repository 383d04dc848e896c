"""Holdfast on a Kubernetes API server.

    access/      where the server is and how to be let in: kubeconfig, in-cluster, exec plugins, TLS
    http/        the client: one connection pool, errors, back-off, retries
    reading/     what the server has, as events: one reflector per kind
    writing/     decisions carried out: binds first, then status, events last
    election     who leads; and the fence that keeps a deposed leader from writing
    runner       the loop: reflectors ─► scheduler ─► writer
    comparing    cache against server, for anyone who asks

May import `actions` and everything below; knows nothing of the command line.
"""
