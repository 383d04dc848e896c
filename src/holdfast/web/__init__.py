"""The dashboard: a read-only view of a scheduler's state for browsers, and its JSON.

    node_columns     nodes as columns: capacity, pods, reservations, holds, GPUs
    row_tables       reservations, pending pods and queues as rows, and what changed in them
    event_log        the latest Events
    live_view        the whole view: snapshots, changes since, who is told
    object_details   one node, pod or reservation in full
    explainer        `holdfast explain` in a child process
    access           tokens, cookies and host names
    dashboard        the HTTP interface, and the files of the page
    static           the page: plain ES modules and one style sheet, nothing to build

Nothing is read while no browser is connected. May import `api`, `scheduler`, `serving`.
"""
