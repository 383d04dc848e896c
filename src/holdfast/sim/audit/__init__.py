"""The capacity audit: an independent check of what the scheduler gives out.

It reads Kubernetes objects and nothing else, after every write, and shares no code with the scheduler:
quantities, selectors and annotations are read anew here, so that an error in one is not an error in the
other. `holdfast simulate --audit` runs it, and so do all tests that simulate.

    audit       which writes are the scheduler's, and what each made worse
    capacity    rules about a node: resources, pods, ports, devices, CPUs, NUMA nodes, limits, volumes
    lifecycle   rules about an object: phases and statuses of reservations, binds, gangs
    liveness    what waits though nothing keeps it waiting
    cluster     the objects by node, kept in step
    facts       what an object says
    owners      who is an owner of a reservation
    quantity    quantities

Imports nothing of Holdfast.
"""

from holdfast.sim.audit.audit import Audit

__all__ = ["Audit"]
