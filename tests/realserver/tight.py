"""Small nodes full of unimportant pods, and important ones that come with conditions of their own:
every fourth pod or so has others deleted for it."""

from __future__ import annotations

from harness.builders import PodBuilder, Raw, make_node, make_pod
from harness.choices import NODE_NAMES, Chooser, rarely, sometimes
from harness.strategies import ZONES

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_APPS = ("a", "b", "c")
_CONDITIONS = (
    "spread", "spread", "spread anyway", "away", "away", "rather away", "near",
    "port", "claim", "claim", "zone",
)  # fmt: skip


def nodes(choose: Chooser) -> list[Raw]:
    made = []
    for name in NODE_NAMES[: choose((2, 3, 3, 4, 5))]:
        node = make_node(name).allocatable(cpu=choose(("2", "3", "4")), memory="6Gi")
        node.allocatable(pods=choose((3, 5, 110, 110)))
        if not rarely(choose):
            node.zone(choose(ZONES))
        if rarely(choose):
            node.taint("dedicated", "a", choose(("NoSchedule", "PreferNoSchedule")))
        made.append(node.raw())
    return made


def random_pod(choose: Chooser, name: str) -> PodBuilder:
    made = make_pod(name).namespace(choose(("default", "default", "other")))
    made.label("app", choose(_APPS))
    if sometimes(choose):
        made.label("tier", choose(("a", "b")))
    made.cpu(choose(("100m", "500m", "1", "1", "2"))).memory(choose(("128Mi", "1Gi")))
    important = choose((True, False, False))
    classes = ("more", "most", "most", "polite") if important else ("least", "least", "less", "more")
    made.spec(priorityClassName=choose(classes), schedulerName="default-scheduler")
    for _ in range(choose((0, 1, 1, 2) if important else (0, 0, 0, 1))):
        _add_condition(choose, made)
    return made


def _add_condition(choose: Chooser, pod: PodBuilder) -> None:
    match choose(_CONDITIONS):
        case "spread":
            pod.spread(choose((HOST, ZONE)), choose((1, 1, 2)), **_spread(choose, pod))
        case "spread anyway":
            selector = _selector(choose, pod)
            pod.spread(choose((HOST, ZONE)), when="ScheduleAnyway", labelSelector=selector)
        case "away":
            more: Raw = {"labelSelector": _selector(choose, pod)}
            if rarely(choose):
                more["namespaceSelector"] = choose(({}, {"matchLabels": {"team": "a"}}))
            pod.pod_anti_affinity(choose((HOST, HOST, ZONE)), **more)
        case "rather away":
            weight, selector = choose((1, 10, 100)), _selector(choose, pod)
            pod.pod_anti_affinity(choose((HOST, ZONE)), weight=weight, labelSelector=selector)
        case "near":
            pod.pod_affinity(choose((HOST, ZONE)), labelSelector=_selector(choose, pod))
        case "port":
            pod.host_port(choose((8080, 8081)))
        case "claim":
            pod.namespace("default").claim(f"c{choose(range(6))}")
        case _:
            pod.node_selector({ZONE: choose(ZONES)})


def _spread(choose: Chooser, pod: PodBuilder) -> Raw:
    more: Raw = {"labelSelector": _selector(choose, pod)}
    if rarely(choose):
        more["minDomains"] = choose((2, 3, 5))
    for policy in ("nodeTaintsPolicy", "nodeAffinityPolicy"):
        if sometimes(choose):
            more[policy] = choose(("Honor", "Ignore"))
    if rarely(choose):
        more["matchLabelKeys"] = ["tier"]
    return more


def _selector(choose: Chooser, pod: PodBuilder) -> Raw:
    """Mostly pods like itself."""
    own: str = pod.raw_metadata["labels"]["app"]
    return {"matchLabels": {"app": own if choose((True, False)) else choose(_APPS)}}
