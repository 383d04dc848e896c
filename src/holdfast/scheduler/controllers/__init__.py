"""Lifecycles that follow from objects rather than from a round. Pure, like the core. May import `core`
and `api`, never the framework.

reservations          expiry, use, waiting for room, resizing, collection; and their status
evictions             reservations that have to go for others
dynamic_reservations  the scheduler's side of those made on demand
provisioner           makes those
migration             pods that are moved, with room made for them first
podgroups, queues     what these say of themselves
claims                the volume controller's rules
workloads             what makes pods out of Deployments, Jobs and their like
"""
