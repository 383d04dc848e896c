"""Why an object has no node, or where it went and why: read from the server, and asked of a scheduler
that was fed the same objects.

report         what there is to say, as data and as text
placing        what stands against each node, and how nodes rank
promised       what stands against each reservation that is meant for a pod
helping        what would help
what_if        the scheduler asked again, with a change made
queues         what the queue of pods has against them
pods           a pod
reservations   a reservation
groups         a group of pods
"""
