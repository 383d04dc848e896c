"""The tables of `kubectl get`: per kind, the columns and the cells of an object.

    columns            a column; ages and labels in kubectl's format
    workloads, others  columns of the built-in kinds
    custom             the printer columns of a CustomResourceDefinition, and their JSONPath
    render             objects to Table documents

A kind without columns is shown by name and age.
"""
