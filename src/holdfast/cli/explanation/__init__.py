"""Why an object has no node, or why it got the one it has: objects are read from the server and a
scheduler that was fed the same objects is asked.

    report        the explanation as data and as text
    pods          a pod: the reasons of each node, scores, queue limits
    reservations  a reservation, and why it does not serve a pod
    suggestions   changes that would make a node feasible
"""
