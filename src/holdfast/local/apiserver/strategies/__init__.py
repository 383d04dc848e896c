"""The rules of single kinds when their objects are written: defaults, admission, updates.

    strategy             the rules that most kinds share
    table                the strategy of each kind
    pods, priorities     pods; priority classes and the admission that applies them
    workloads            selectors and templates of workload kinds
    core_kinds, crds     namespaces and nodes; CustomResourceDefinitions
    selectable_fields    the fields a CustomResourceDefinition makes selectable

A kind without a strategy of its own is stored as it was sent.
"""
