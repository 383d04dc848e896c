"""Why an object has no node, or why it got the one it has: asks the scheduler of a
snapshot.

    explainer     finds and explains an object of a snapshot
    report        the explanation as data; feasible and infeasible nodes
    pods          a pod: the reasons of each node, scores, queue limits
    reservations  a reservation, and why it does not serve a pod
    suggestions   changes that would make a node feasible
"""
