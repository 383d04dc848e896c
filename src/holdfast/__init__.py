"""Holdfast: a Kubernetes scheduler that reserves capacity.

The packages, lowest layer first; each imports only from those before it, and import-linter checks it:

    api          Kubernetes objects as typed values; quantities, selectors, durations, names
    machinery    what an API server does to an object: decoding, defaults, validation, patches
    scheduler    the scheduler itself: events in, decisions out
    serving      HTTP listener, connection limits, health endpoints
    metrics      Prometheus metrics
    kube         Holdfast on a Kubernetes API server
    local        a cluster in one process: store, API server, controllers, kubelets
    snapshot     objects read from a cluster, and a scheduler to ask about them
    recording    the changes of a cluster over hours or days, in files
    explanation  why an object is pending, and what would help
    sim          scenarios on a virtual clock, the capacity audit, reports
    plugin       what plugin authors import: the contract and a test harness
    web          the dashboard and its read-only API
    bench        workloads and measurements
    cli          the `holdfast` command
"""

__version__ = "0.1.0"
