"""Particular resources of a node: exclusive CPUs and NUMA nodes, devices, volumes.

resource_manager    what the managers have in common
resource_managers   all of them, as the cluster uses them
numa                CPU manager and NUMA alignment
devices             device manager
volumes             claims, volumes, attach limits, storage capacity
"""
