"""A cluster that is not there: the embedded cluster's parts, driven by a virtual clock.

    loading     files to documents (`api.documents`, `api.yaml_documents`), with limits and line numbers
    scenario    documents to what happens when (`happenings`); what is wrong with them is found here,
                with `step_documents`, `expect`, `timing`, `reading`, `strict_decoding` (misspelt
                fields), `skipped_kinds`, `owners` (references by name) and `start_time`
    clock       virtual time
    updates     what an API server does not let an update change in a pod
    timeline    what happened, in order
    accounts    requests against capacity, kept apart from the core's own books
    audit       every write of the scheduler checked by an independent count
    invariants  what must hold after every step
    world       the embedded cluster with all of these
    workloads   pods of Deployments, Jobs and so on, as `up` makes them
    steps       what the scenario does to the world
    simulation  the loop
    summary     figures about a run
    expect      a scenario's own expectations, checked
    output      a run as JSON
    report      a run written to a folder

May import `backends` and below. Reads files and writes reports; reads no real clock.
"""
