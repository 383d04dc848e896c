"""Who has how much of each node, read from a cluster that was fed all objects.

The sums are the ledger's; nothing is added up here. What comes to be counted besides (limits, say) is
one more field of `Account`.
"""

from typing import NamedTuple

from holdfast.core.cluster import Cluster


class Account(NamedTuple):
    """Of one resource on one node."""

    allocatable: int
    requested: int
    """By pods."""
    held: int
    """By reservations, of what their owners have not taken yet."""

    @property
    def free(self) -> int:
        return self.allocatable - self.requested - self.held


def accounts_of(cluster: Cluster, node: str) -> dict[str, Account]:
    """By the resource's name; resources of which there is none and nothing asked are left out."""
    table = cluster.nodes
    row = table.row(node)
    if row is None:
        return {}
    found = {}
    for slot, name in table.slots.resources():
        held = table.held.item(slot, row)
        requested = table.claimed.item(slot, row) - held
        account = Account(table.allocatable.item(slot, row), requested, held)
        if any(account):
            found[name] = account
    return found
