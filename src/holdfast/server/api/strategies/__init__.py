"""What is particular about a kind when its objects are written.

strategy    what there is to say about a kind, and what holds for most
table       every kind's strategy
metadata    rules for the metadata of every object
pods, namespaces, workloads, services, storage, configuration, priorities      kinds with rules of
their own
"""
