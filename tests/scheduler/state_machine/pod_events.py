"""What can happen to pods by the doing of users and kubelets."""

from __future__ import annotations

from harness import choices
from harness.builders import PodBuilder, make_pod
from harness.choices import TOPOLOGY, Chooser
from scheduler.state_machine.expected_state import POD_NAMES, Books
from scheduler.state_machine.observer import OURS


class PodLife(Books):
    def add_pod(self, choose: Chooser) -> None:
        """A new pod; if the name is taken, its bearer is gone without a word."""
        pod = self._new_pod(choose, choose(POD_NAMES))
        self._put(pod.obj())

    def add_simple_pod(self, choose: Chooser) -> None:
        """One that fits anywhere there is room, but for one thing it may ask for."""
        pod = self._new_pod(choose, choose(POD_NAMES), simple=True)
        kinds = ("nothing", "port", "label", "node", "patience", "spread", "near", "away", "urgent")
        match choose(kinds):
            case "spread":
                when = choose(("DoNotSchedule", "ScheduleAnyway"))
                pod.spread(choose(TOPOLOGY), choose((1, 2)), {"app": choose(("a", "b"))}, when=when)
            case "near":
                weight = choose((None, 10))
                pod.pod_affinity(choose(TOPOLOGY), {"app": choose(("a", "b"))}, weight=weight)
            case "away":
                weight = choose((None, 10))
                pod.pod_anti_affinity(choose(TOPOLOGY), {"app": choose(("a", "b"))}, weight=weight)
            case "urgent":
                pod.priority(choose((100, 1000)))
            case "patience":
                pod.label("patient")
            case "port":
                pod.host_port(80)
            case "label":
                pod.node_selector({"app": choose(("a", "b"))})
            case "node":
                field = {"key": "metadata.name", "operator": "In", "values": [choose(self.names)]}
                pod.node_affinity_term(fields=[field])
        self._put(pod.obj())

    def add_gated_pod(self, choose: Chooser) -> None:
        self._put(self._new_pod(choose, choose(POD_NAMES)).gate("later").obj())

    def add_assigned_pod(self, choose: Chooser) -> None:
        """By somebody else, to a node that may not even be known."""
        pod = self._new_pod(choose, choose(POD_NAMES)).on(choose((*self.names, "unknown"))).obj()
        self._put(pod)

    def _new_pod(self, choose: Chooser, name: str, *, simple: bool = False) -> PodBuilder:
        self._uids += 1
        if simple:
            pod = make_pod(name).cpu(choose(("100m", "1", "2"))).memory(choose(("1", "1Gi")))
            pod.label("app", choose(("a", "b"))).priority(choose((0, 0, 10, 100)))
        else:
            pod = choices.pod_builder(choose, name)
        pod.namespace("default").uid(f"{name}-{self._uids}")
        return pod.scheduler(choose((*OURS, *OURS, "someone-else")))

    def change_pod(self, choose: Chooser) -> None:
        pod = self._some(choose)
        if pod is None:
            return
        match choose(("label", "ungate", "terminate", "tolerate", "again")):
            case "label":
                pod.metadata.labels["app"] = choose(("a", "b", "c"))
            case "ungate":
                pod.spec.scheduling_gates = []
            case "terminate":
                pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
            case "tolerate":
                pod.spec.tolerations = make_pod("x").tolerates_everything().obj().spec.tolerations
        self._put(pod)

    def end_pod(self, choose: Chooser) -> None:
        pod = self._some(choose)
        if pod is not None:
            self._forget(pod.metadata.uid)
            pod.status.phase = choose(("Succeeded", "Failed"))
            self.driver.update(pod)

    def delete_pod(self, choose: Chooser) -> None:
        pod = self._some(choose)
        if pod is not None:
            self._forget(pod.metadata.uid)
            self.driver.delete(pod)

    def delete_victims(self, choose: Chooser) -> None:
        """Pods that were to make room are gone."""
        for pod in [p for p in self.pods.values() if p.metadata.deletion_timestamp is not None]:
            if choose((True, True, False)):
                self._forget(pod.metadata.uid)
                self.driver.delete(pod)

    def put_other(self, choose: Chooser) -> None:
        """A namespace, service or controller."""
        self._put_object(choices.other_object(choose))
