"""When pending pods, jobs and reservations will start, and what they wait for.

    run_times    how long pods run: what they state, and what earlier runs of the same owner took
    future       one way things may go on: the simulation, with pods that end at their estimates
    targets      the objects that are asked about
    forecast     several futures, and what they say together
    answers      the output as data, and its JSON Schema
    snapshots    the same forecast for explanations of a snapshot

The scheduler is played forward on virtual time; nothing here decides where a pod goes. Where run times
are uncertain, several futures are played and the answer is a range.
"""
