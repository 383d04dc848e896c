"""How much of a GPU cluster is filled, by the way pods are packed: the protocol of the openb trace.

arrivals    the nodes of the trace, and pods drawn from it
runs        one run per strategy and seed
figures     what comes of them: a table, JSON, a plot
"""
