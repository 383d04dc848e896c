"""What `kubectl get` prints: per kind, the columns and how an object fills them.

    columns     what a column is; ages and labels as people read them
    pods, nodes, workloads, storage, plain      kubectl's columns of the built-in kinds
    custom      the columns a CustomResourceDefinition names
    jsonpath    the paths those are written in
    render      objects to Table documents

A kind without columns of its own is shown by name and age.
"""
