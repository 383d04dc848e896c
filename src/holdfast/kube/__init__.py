"""Holdfast on a Kubernetes API server.

    access              kubeconfig, in-cluster configuration, exec plugins, TLS
    http                the client: connection pool, errors, back-off, retries
    informers           one reflector per kind: list, watch, events for the scheduler
    writer              carries decisions out: binds first, then status, Events last
    leader_election     the lease, and the fence that stops writes once leadership is lost
    runner, run         the loop of reflectors, scheduler and writer; `holdfast run` assembled
    provisioner_runner  the loop of a provisioner in a process of its own
    provisioner_run     `holdfast provisioner` assembled
    service             what both processes share: lease, health, shutdown
    cache_comparer      compares the scheduler's cache with the server
    client_metrics      metrics of requests and reflectors
    clock, errors       the wall clock; the errors of this package

May import `scheduler`, `metrics`, `serving` and the layers below; nothing of the command line.
"""
