"""Exclusive CPUs and NUMA nodes, and the pods that have them.

cpu_manager      allocations of all nodes, kept in line with objects, pods and reservations
node_topology    the CPU topology of a node; CPU sets as text
allocation       CPUs and amounts by NUMA node: allocatable, allocated, free
cpu_accumulator  which CPUs to take
numa_filter   feasible nodes over all rows; NUMA hints and the policy merge
numa_allocator   the CPUs and NUMA nodes that a pod gets on one node
"""

from holdfast.scheduler.managers.numa.cpu_manager import CPUManager
from holdfast.scheduler.managers.numa.node_topology import CpuWantError, Want

__all__ = ["CPUManager", "CpuWantError", "Want"]
