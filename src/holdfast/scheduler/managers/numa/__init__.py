"""CPUs of their own for pods that want them, and NUMA nodes: who has which.

cpuset      sets of CPUs as text
topology    what a node says of its CPUs and NUMA nodes
wants       what pods of a class want
taking      which CPUs to take
holding     what a pod has, as it is written on it
room        CPUs and amounts: had, free, left
counts      what is free, as arrays over all nodes
judging     which nodes will do, over those arrays
aligning    the part of it that is about NUMA nodes
placing     which CPUs and NUMA nodes of one node a pod gets
cpus        all of it, kept in step with objects, pods and reservations
"""

from holdfast.scheduler.managers.numa.cpu_manager import CPUManager
from holdfast.scheduler.managers.numa.node_topology import CpuWantError, Want

__all__ = ["CPUManager", "CpuWantError", "Want"]
