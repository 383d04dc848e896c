"""Deterministic fault simulation of `holdfast run`.

The scheduler processes are the real ones (server.running: client, reflectors, writer, fence, election,
scheduler). Below them everything is simulated on virtual time, from one seed:

process      an event loop for each scheduler process; time jumps to the next timer
network      connections in memory that lose, delay, cut and garble what passes
model        an API server: lists, watches, preconditions, bindings, evictions, leases, claims
life         what exists, what users do, what goes wrong and when: drawn from the seed
audit        the rules, checked on the server's objects after every accepted write, and at rest
simulation   one life from beginning to end
races        two schedulers that race for devices; kube_scheduler is a model of the other one
runs         many lives, and what a failing one needs to fail

    python -m faults --seeds 1000 --from 0 --jobs 2        many lives; prints those that fail
    python -m faults --seed 17 --log                       one life, with its log of events
    python -m faults --claims --seeds 1000                 lives with devices by claim
    python -m faults --calendar --seeds 1000               lives with reservations that start later
    python -m faults --gangs --seeds 1000                  lives with gangs that wait in Permit
    python -m faults --races --seeds 10000                 races of two schedulers

A failing seed is shrunk: faults are left out while it still fails.
"""
