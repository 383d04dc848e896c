"""The rules of single kinds when their objects are written: admission, preparation, update rules.

    strategy             the rules that most kinds share
    table                the strategy of each kind
    admission            admission of pods; priority classes
    pods                 pods: what may change
    workloads            selectors and templates of workload kinds
    core_kinds, crds     the other built-in kinds and Reservations; CustomResourceDefinitions

A kind without a strategy of its own is stored as it was sent.
"""
