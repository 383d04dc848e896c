"""The tables of `kubectl get`: per kind, the columns and the cells of an object.

    columns                a column; ages and labels in kubectl's format
    workloads, core_kinds, stored_kinds
                           columns of the built-in kinds
    render                 objects to Table documents; printer columns of CustomResourceDefinitions

A kind without columns is shown by name and age.
"""
