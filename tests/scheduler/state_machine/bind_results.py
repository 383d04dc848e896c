"""What comes back to the scheduler: answers to its binds, and news that is late or makes no sense."""

from __future__ import annotations

import copy

from harness.builders import make_pod
from harness.choices import Chooser
from holdfast.api.errors import InvalidObject
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.events import BindConfirmed, BindRefused, Malformed, Updated
from scheduler.state_machine.expected_state import POD_NAMES, Books
from scheduler.state_machine.observer import Witness


class Answers(Books):
    # Strange things

    def delete_unknown_pod(self, choose: Chooser) -> None:
        """The deletion of a pod whose name has another bearer now."""
        self.driver.delete(make_pod(choose(POD_NAMES)).uid("gone").obj())

    def spoil_pod(self, choose: Chooser) -> None:
        """What is placed stays where it is; what is not is out of the game."""
        pod = self._some(choose)
        if pod is None:
            return
        uid, name = pod.metadata.uid, pod.metadata.name
        if choose((True, False)):
            error = InvalidObject(f"Pod/default/{name}", "spec", "expected a map")
            self.driver.feed(Malformed("Pod", "default", name, uid, error))
        else:
            pod.spec.containers[0].resources.requests["cpu"] = choose(("1K", "-1", " 1"))
            self.driver.update(pod)
        if not pod.spec.node_name and uid not in self.reserved:
            self._forget(uid)

    def late_word_of_a_pending_pod(self, choose: Chooser) -> None:
        """An update from before the pod was bound arrives after it."""
        pod = self._some(choose)
        if pod is not None and pod.spec.node_name:
            pod.spec.node_name = ""
            self.driver.feed(Updated(pod))

    # Binds

    def _one_in_flight(self, choose: Chooser) -> Pod | None:
        return self.pods[choose(sorted(self.in_flight))] if self.in_flight else None

    def confirm(self, choose: Chooser) -> None:
        """By the answer, or by the pod being seen on its node, or both."""
        pod = self._one_in_flight(choose)
        if pod is None:
            return
        uid = pod.metadata.uid
        how = choose(("answer", "seen", "both"))
        pod.spec.node_name = self.in_flight.pop(uid)
        del self.reserved[uid]
        if how != "seen":
            self.driver.feed(BindConfirmed(uid))
        if how != "answer":
            self.driver.update(copy.deepcopy(pod))
        self.answered.append(uid)

    def refuse(self, choose: Chooser) -> None:
        pod = self._one_in_flight(choose)
        if pod is None:
            return
        del self.in_flight[pod.metadata.uid]
        self.driver.feed(BindRefused(pod.metadata.uid, "conflict"))
        self._witness()
        self._hold(pod)

    def overtake(self, choose: Chooser) -> None:
        """Somebody else binds a pod that is about to be bound, perhaps elsewhere; our bind, if it
        was sent, is answered later."""
        if not self.reserved:
            return
        uid = choose(sorted(self.reserved))
        pod = self.pods[uid]
        self.waiting.pop(uid, None)
        if self.in_flight.pop(uid, None) is not None:
            self.answered.append(uid)
        pod.spec.node_name = choose((*self.names, "unknown"))
        if pod.spec.node_name == self.reserved[uid]:
            del self.reserved[uid]
        self.driver.update(copy.deepcopy(pod))
        self._witness()
        self._hold(pod)

    def late_answer(self, choose: Chooser) -> None:
        """To a bind that was overtaken, or answered before."""
        done = [uid for uid in self.answered if uid not in self.in_flight]
        done = [uid for uid in done if uid not in self.pods or self.pods[uid].spec.node_name]
        if done:
            uid = choose(sorted(done))
            late = choose((True, False))
            self.driver.feed(BindConfirmed(uid) if late else BindRefused(uid, "late"))

    def allow(self, choose: Chooser) -> None:
        if self.waiting:
            Witness.allowed.add(choose(sorted(self.waiting)))

    def forbid(self, choose: Chooser) -> None:
        """For now: the next time the pod may be lucky."""
        Witness.refused.clear()
        if self.waiting:
            Witness.refused.add(choose(sorted(self.waiting)))
