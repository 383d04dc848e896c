"""Lifecycles that follow from objects rather than from a round: reservations, provisioning,
migration, collection. Pure, like the core. May import `core` and `api`, never the framework.
"""
