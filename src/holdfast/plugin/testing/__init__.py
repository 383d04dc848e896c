"""A cluster for plugin authors' tests.

    from holdfast.plugin.testing import Cluster, check_plugin, node, pod

    def test_a_dirty_node_is_refused():
        cluster = Cluster(CarbonAware, args={"most": 2})
        cluster.add(node("clean", annotations={"example.com/carbon": "90"}))
        cluster.add(node("dirty", annotations={"example.com/carbon": "700"}))
        picky = pod("p", annotations={"example.com/max-carbon": "300"})
        assert cluster.where(picky) == "clean"
        assert cluster.why_not(picky) == {"dirty": ["node(s) had too much carbon"]}

    def test_it_keeps_the_contract():
        check_plugin(CarbonAware, node=random_node, pod=random_pod)

The cluster is the one of `holdfast simulate`: objects are read as `kubectl apply` reads them, time is
virtual, the scheduler is the real one, with the default plugins and the tested one. Every answer is
computed for one row and for many, kept and recomputed, and a difference raises `ContractBroken`.

    objects     builders of nodes, pods and reservations
    cluster     the cluster: steps, queries, its objects
    queries     queries about one pod, answered on every kind of view
    properties  random lives of a cluster, and the properties that hold in all of them
"""

from holdfast.plugin.testing.cluster import PluginTestCluster, RecordedEvent
from holdfast.plugin.testing.objects import node, pod, reservation
from holdfast.plugin.testing.properties import check_plugin
from holdfast.plugin.testing.queries import ContractBroken, PluginRaised

Cluster = PluginTestCluster
Event = RecordedEvent
"""The stable names of the two; their own names are unique in the source."""

__all__ = [
    "Cluster",
    "ContractBroken",
    "Event",
    "PluginRaised",
    "check_plugin",
    "node",
    "pod",
    "reservation",
]
