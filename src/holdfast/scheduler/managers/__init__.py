"""Resource managers: exclusive CPUs and NUMA alignment, devices, volumes, claims.

    resource_manager   what the CPU manager and the device manager share
    resource_managers  all managers, as the cluster calls them
    numa               CPU manager and NUMA alignment
    devices            device manager
    volumes            claims, volumes, attach limits, storage capacity
    claims             devices by claim (DRA)

May import `cluster`, `machinery` and `api`.
"""
