"""A cluster that is not there: the same core, driven by a virtual clock.

    loading     files to documents (`documents`, `yaml_documents`), with limits and line numbers
    scenario    documents to what happens when (`happenings`); what is wrong with them is found here,
                with `step_documents`, `expect`, `timing` and `reading`
    clock       virtual time
    agenda      what is yet to happen
    store       objects in full, as an API server would keep them
    admission   what an API server fills in
    updates     what it does not let an update change in a pod
    kubelet     pods that start, run, end and stop
    events      Kubernetes Events, counted when they repeat
    volumes     claims that find their volumes
    budgets     the status of disruption budgets
    timeline    what happened, in order
    accounts    requests against capacity, kept apart from the core's own books
    invariants  what must hold after every step
    world       all of these, wired to the scheduler
    setup       the scheduler, from its configuration
    steps       what the scenario does to the world
    hands       what the scheduler's decisions do to it
    simulation  the loop
    summary     figures about a run
    expect      a scenario's own expectations, checked
    output      a run as JSON
    report      a run written to a folder

May import `backends` and below. Reads files and writes reports; reads no real clock.
"""
