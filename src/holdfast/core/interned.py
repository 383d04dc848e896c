"""How much is interned: what is kept by names that objects bring.

Each of these is released with the last object that uses it, so that names that come and go leave
nothing behind:

    classes         with their last pod; a few idle ones without names of their own are kept
    label columns   with the last compiled selector, topology term or constraint (weakly referenced)
    label values    codes with the last node that has the value
    counters        with the last compiled term or constraint (weakly referenced)
    slots           with the last node, class and reservation that has the resource (swept once a round)
    taint sets      codes with the last node
    images          with the last node
    host ports      with the last pod that uses the port
    owner specs     with the last reservation
"""

from holdfast.core.cluster import Cluster


def interned(cluster: Cluster) -> dict[str, int]:
    nodes = cluster.nodes
    columns = list(nodes.labels.known())
    return {
        "classes": len(cluster.classes),
        "label columns": len(columns),
        "label values": sum(column.in_use() for column in columns),
        "counters": len(cluster.topology.counters()),
        "slots": nodes.slots.in_use(),
        "taint sets": nodes.taints.in_use(),
        "images": len(nodes.images),
        "host ports": len(nodes.ports),
        "owner specs": len(cluster.promises.specs),
    }
