"""Decisions, carried out.

writer       takes decisions and hands them to those below
queue        what goes out when: binds before status before events; one object's writes in order
sender       one write, past the fence
persisting   one that is made again while that may help
binder       a pod's volumes, then the pod; and what became of it when nobody said
volumes      a volume to its claim, a claim to its node
claims       waiting for claims to be bound
statuses     conditions and nominations, several in one patch
evictions    a victim's condition, then its deletion
annotations  what is said on pods beside their status
reservations what was decided of reservations
jobs         the status of PodGroups and Queues
migrations   what was decided of jobs that move pods, and their evictions
recorder     Events, one for the same thing said again
"""
