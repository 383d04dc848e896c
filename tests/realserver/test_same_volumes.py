"""The volumes we choose for claims that wait for their pods beside those a real kube-scheduler chooses.

There is no volume controller and no driver: what kube-scheduler asks of them is done here. A pod is
bound to one of the nodes we score best. If it is the one we chose, its claims get the same volumes, or
others of the same size, and the same ones are left to the driver. Or the pod gets the same message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness import choices
from holdfast.api.decode import decode
from holdfast.scheduler.cluster.decisions import Bind, BindVolume, SelectNode
from realserver import volumes
from realserver.assets import SCHEDULER, missing
from realserver.client import Json
from realserver.server import RealServer
from realserver.test_same_decisions import (
    CLUSTERS,
    READ,
    Side,
    message_of,
    node_of,
    play_all,
)

_SELECTED = "volume.kubernetes.io/selected-node"
_MORE = (("storage.k8s.io/v1", "csidrivers"), ("storage.k8s.io/v1", "csistoragecapacities"))


class StorageSide(Side):
    @contextmanager
    def started(self) -> Iterator[None]:
        self._server.empty()
        for raw in volumes.cluster(self._choose):
            self._client.create(raw)
        for api_version, plural in (*READ, *_MORE):
            self._ours.add(*map(decode, self._client.list(api_version, plural)))
        with self._server.kube_scheduler(self._compared.kube):
            yield

    def next_pod(self) -> None:
        self._made += 1
        raw = self._client.create(volumes.random_pod(self._choose, f"p{self._made}").raw())
        pod = self._decoded(raw)
        self._ours.add(pod)
        best, free = self._best(pod), self._named("persistentvolumes")
        decisions = self._ours.round(self._ours.now + 60)
        own = [d for d in decisions if getattr(d, "pod", None) == self._ours.record(pod).ref]
        node = next((d.node for d in own if isinstance(d, Bind)), "")
        message = self._message(own)
        ours = {d.claim.name: d.volume.name for d in decisions if isinstance(d, BindVolume)}
        made = {d.claim.name: d.node for d in decisions if isinstance(d, SelectNode)}
        theirs, made_too = self._look_after_volumes(raw)
        seen = self._client.get(raw)
        about = (raw["spec"], (node, message, ours, made), (seen["status"], theirs, made_too))
        if not node_of(seen):
            assert message_of(seen) == message, about
            self.outcomes["unschedulable"] += 1
            self._delete(seen)
            return
        assert {node, node_of(seen)} <= best, about
        if node == node_of(seen):
            assert _sizes(ours, free) == _sizes(theirs, free), about
            assert made == made_too, about
            self.outcomes["with volumes" if ours or made else "bound"] += 1
        self._ours.refuse(pod)
        for plural in ("persistentvolumes", "persistentvolumeclaims"):
            self._ours.update(*map(decode, self._named(plural).values()))
        self._settle(seen)

    def _look_after_volumes(self, pod: Json) -> tuple[dict[str, str], dict[str, str]]:
        """Does what is asked until the pod's fate is sealed; which claims were given volumes, and for
        which nodes volumes were made."""
        given: dict[str, str] = {}
        made: dict[str, str] = {}

        def is_settled() -> bool:
            claims = self._named("persistentvolumeclaims")
            for volume in self._named("persistentvolumes").values():
                reference = volume["spec"].get("claimRef")
                if reference and not claims[reference["name"]]["spec"].get("volumeName"):
                    given[reference["name"]] = volume["metadata"]["name"]
                    self._bind(claims.pop(reference["name"]), volume)
            for name, claim in claims.items():
                node = (claim["metadata"].get("annotations") or {}).get(_SELECTED)
                if node and not claim["spec"].get("volumeName"):
                    made[name] = node
                    self._bind(claim, self._client.create(volumes.made_for(claim, node)))
            seen = self._client.get(pod)
            return bool(node_of(seen) or message_of(seen))

        self._server.wait_until(is_settled)
        return given, made

    def _bind(self, claim: Json, volume: Json) -> None:
        completed = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        spec = {"volumeName": volume["metadata"]["name"]}
        self._client.patch(claim, {"metadata": completed, "spec": spec})
        has = {key: volume["spec"][key] for key in ("capacity", "accessModes")}
        self._client.patch(claim, {"status": {"phase": "Bound", **has}}, "status")
        self._client.patch(volume, {"status": {"phase": "Bound"}}, "status")

    def _named(self, plural: str) -> dict[str, Json]:
        return {raw["metadata"]["name"]: raw for raw in self._client.list("v1", plural)}


def _sizes(given: dict[str, str], volumes: dict[str, Json]) -> dict[str, str]:
    return {claim: volumes[name]["spec"]["capacity"]["storage"] for claim, name in given.items()}


@pytest.mark.skipif(bool(missing(SCHEDULER)), reason=missing(SCHEDULER) or "-")
def test_kube_scheduler_chooses_the_same_volumes(real_server: RealServer) -> None:
    outcomes = play_all(real_server, lambda seed: StorageSide(real_server, choices.seeded(seed)))
    assert outcomes["with volumes"] > CLUSTERS, outcomes
    print(dict(outcomes))
