"""The cluster as columns, the ledger, pod classes, events and decisions.

Pure: no I/O, no clock, no asyncio, no logging, no randomness. The same events give the same
decisions, always. Time is a number handed in with each event. May import `api`, msgspec and numpy.

    slots, nodes, labels, taints, ports, images     the node table and what hangs on its rows
    selectors                                       node selectors, compiled
    pod_reading, classes, pods                      pods, and what is common to many of them
    ledger, holds, fills                            who holds how much of which node; transactions
    limits, limit_sums                              limits, where their sums are asked for
    promises                                        reservations
    jobs                                            pods that are placed together, and their queues
    migrations                                      jobs that move pods
    volumes                                         claims, volumes and where they are
    belongings, custody, devices, cpus              particular GPUs and CPUs, and who has which
    topology, tally, affinity_terms                 pods counted per selector and domain
    changes, rowlog                                 what happened, for caches and for wake-up
    timer_queue                                     when things are due
    view                                            rows as plugins see them: one, some or all
    cluster, pod_intake, facts                      all of it, kept in step with objects
    events, decisions                               the language spoken with the outside
    validate, story                                 the state against the truth; one object's history
"""
