"""Holdfast on a Kubernetes API server.

    kubeconfig       kubeconfig files, merged as kubectl merges them; the in-cluster configuration
    client_settings  the address, TLS and proxy settings that result
    credentials      tokens, client certificates and exec plugins, renewed while the process runs
    client           requests, with or without retries; watches; paths of kinds and objects
    connections      HTTP/1.1 over a pool of kept connections
    flow_control     clocks, back-off, reachability, client-side rate limit
    reflector        one per kind: list, watch, bookmarks, relist; the index of known objects
    decoding         the watched kinds; the server's bytes to typed objects, invalid ones left out
    writer           carries decisions out: binds first, then status, Events last
    leader_election  the lease, and the fence that stops writes once leadership is lost
    runner, run      the loop of reflectors, scheduler and writer; `holdfast run` assembled
    provisioner      `holdfast provisioner`: the provisioner in a process of its own
    service          what both processes share: lease, health, shutdown, metrics of requests
    cache_comparer   compares the scheduler's cache with the server
    errors           the errors of this package

May import `scheduler`, `metrics`, `serving` and the layers below; nothing of the command line.
"""
