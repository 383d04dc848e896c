"""What is particular about a kind when its objects are written.

    strategy    what there is to say about a kind, and what holds for most
    table       every kind's strategy
    metadata    rules for the metadata of every object
    the rest    kinds with rules of their own: pods, workloads, services …

A kind without rules of its own is kept as it comes.
"""
