"""How much of a GPU cluster is filled, by the way pods are packed: the protocol of the openb trace.

command     what is done
arrivals    the nodes of the trace, and pods drawn from it
runs        one run per strategy and seed
fragments   what is free and of no use
figures     what comes of them: a table, JSON, a plot
"""
