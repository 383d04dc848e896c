"""The scheduler: events in, decisions out. Pure: no I/O, no clock, no asyncio, no logging, no
randomness; the same events give the same decisions. May import `api` and `machinery`.

    cluster        the state: node table, pod classes, ledger, row log, domain counts, nominations
    reservations   the reservation cache: owners, matching, waiting, preemption holds, virtual ones,
    status managers       particular resources of a node: exclusive CPUs and NUMA, devices, volumes
    jobs           pod groups, queues and shares, starvation holds, run-time estimates
    framework      the plugin runtime: profiles, queue, scheduling cycle, feasibility, dry run,
    diagnosis plugins        one file per plugin
    actions        what a round does
    controllers    lifecycles of reservations, provisioning, migrations, status of groups and queues
    scheduler      the whole: fed events, asked for rounds
"""
