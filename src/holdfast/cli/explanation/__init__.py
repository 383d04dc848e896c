"""Why an object has no node, or why it got the one it has: reads objects from the server and queries a
scheduler that was fed the same objects.

    report        the explanation as data and as text
    pods          a pod: the reasons of each node, scores, queue limits
    reservations  a reservation, and why it does not serve a pod
    suggestions   changes that would make a node feasible
"""
