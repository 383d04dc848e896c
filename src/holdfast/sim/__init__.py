"""Simulation: scenarios on a local cluster with a virtual clock.

    manifests                      files to documents
    scenario, step_documents       documents to a scenario; errors with line numbers
    scenario_actions               what can happen in a scenario
    document_fields                decoding of the simulation's own documents
    clock                          virtual time
    simulated_cluster, workloads   the simulated cluster; its workload controllers
    action_runner, simulation      carries a scenario's actions out; the loop
    timeline, summary              what happened, in order; figures of a run
    node_usage                     requests and capacity of each node over time
    invariants, audit              checks after every step; an independent capacity audit
    expect                         a scenario's expectations
    output, report                 a run as JSON; a run as a folder with a page
    errors                         the errors of this package

May import `local` and the layers below. Reads files and writes reports; reads no real clock.
"""
