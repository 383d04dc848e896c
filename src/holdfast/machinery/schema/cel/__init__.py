"""CEL, the Common Expression Language, as Kubernetes 1.37 has it.

    program     an expression, compiled
    syntax      text to a tree
    checker     static types
    evaluation  a tree evaluated on values
    overloads   types, and overloads of functions
    values      values, equality and order
    functions   operators, standard functions, and all of these:
    strings, lists, regexps, times, quantities, network, formats

Device selectors (`machinery.schema.device_selectors`) and the rules of CustomResourceDefinitions
(`machinery.schema.custom.cel`) use it. cel-go's rules are rebuilt here, because no library for Python
has the functions of Kubernetes, optional values or `cel.bind`.

May import `machinery.schema.custom.regexp` and `api`.
"""
