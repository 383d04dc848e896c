"""The capacity audit: an independent check of the scheduler's decisions.

It reads Kubernetes objects after every write and shares no code with the scheduler: it has its own
parsers of quantities, selectors and annotations, so that an error in one is not repeated in the other.
`holdfast simulate --audit` runs it, and so do all tests that simulate.

    audit        which writes are the scheduler's, and the rules that each one breaks
    capacity     rules of a node: resources, pods, ports, devices, CPUs, NUMA nodes, limits, volumes
    constraints  rules of where a pod may go: selectors, taints, anti-affinity, spread
    lifecycle    rules of an object: phases and status of reservations, binds, gangs
    plans        rules of reservations with a start
    cluster      the objects by node
    facts        capacity fields of an object; quantities and CPU lists

Imports nothing of Holdfast.
"""

from holdfast.sim.audit.audit import Audit

__all__ = ["Audit"]
