"""Simulation: scenarios on a local cluster with a virtual clock.

    scenario                       documents to a scenario; errors with line numbers
    skipped_kinds                  kinds that scheduling does not read
    scenario_actions               what can happen in a scenario; Step documents
    document_fields                decoding of the simulation's own documents
    garbage                        keeps Python's collector from looking at what stays
    clock                          virtual time
    simulated_cluster              the simulated cluster, and its invariants
    action_runner, simulation      carries a scenario's actions out; the loop; a run as JSON
    node_usage, reservation_lives  what pods request of nodes, what reservations hold
    run_history                    what a report shows over time
    summary, figures               the figures of a run, and their texts
    audit                          an independent capacity audit
    expect                         a scenario's expectations
    forecast                       when pending objects start, and what they wait for
    replay                         recordings, played under other configurations
    report                         a run as a folder with pages and plots

May import `local` and the layers below. Reads files and writes reports; reads no real clock.
"""
