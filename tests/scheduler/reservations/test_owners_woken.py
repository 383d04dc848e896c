"""Owners whose nodes lack capacity without their reservation wait for what a later filter lacks."""

from __future__ import annotations

from json import dumps
from typing import NamedTuple

import pytest
from yaml import safe_load

from harness.scenarios import Played, joined, simulate


class Situation(NamedTuple):
    objects: str
    """Beside the node n1, its reservation and the owner."""
    change: str
    """At 60 s, what the owner waits for."""
    spec: str = ""
    """Of the owner."""
    limits: str = ""
    """Of the owner's CPU."""
    node: str = ""
    """Further fields of the node's `metadata`."""


NODE = """
    apiVersion: v1
    kind: Node
    metadata: {name: n1%s}
    status: {allocatable: {cpu: '4', memory: 8Gi, pods: '20'}}
"""
RESERVATION = """
    apiVersion: scheduling.koordinator.sh/v1alpha1
    kind: Reservation
    metadata: {name: room}
    spec:
      ttl: 1h
      allocateOnce: false
      owners: [{labelSelector: {matchLabels: {app: own}}}]
      template: {spec: {containers: [{name: c, resources: {requests: {cpu: '4'}}}]}}
"""
DRIVER = "drivers: [{name: d.io, nodeID: n1, topologyKeys: [], allocatable: {count: %d}}]"
CLAIM = """
    apiVersion: v1
    kind: PersistentVolume
    metadata: {name: pv-%s}
    spec:
      capacity: {storage: 1Gi}
      accessModes: [ReadWriteOnce]
      claimRef: {name: %s, namespace: default}
      csi: {driver: d.io, volumeHandle: %s}
    ---
    apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {name: %s, namespace: default, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
    spec:
      storageClassName: ""
      volumeName: pv-%s
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
    status: {phase: Bound}
"""
LIMITS = "node.koordinator.sh/limit-to-allocatable"

SITUATIONS = {
    "a pod that its affinity wants": Situation(
        spec="affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ["
        "{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: x}}}]}}",
        objects="",
        change="""
            apply: {apiVersion: v1, kind: Pod, metadata: {name: x, labels: {app: x}},
                    spec: {nodeName: n1, containers: [{name: c}]}}
        """,
    ),
    "its volume": Situation(
        spec="volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]",
        objects="""
            apiVersion: storage.k8s.io/v1
            kind: StorageClass
            metadata: {name: local}
            provisioner: kubernetes.io/no-provisioner
            volumeBindingMode: WaitForFirstConsumer
            ---
            apiVersion: v1
            kind: PersistentVolumeClaim
            metadata: {name: data, namespace: default}
            spec:
              storageClassName: local
              accessModes: [ReadWriteOnce]
              resources: {requests: {storage: 1Gi}}
        """,
        change="""
            apply:
              apiVersion: v1
              kind: PersistentVolume
              metadata: {name: pv}
              spec:
                storageClassName: local
                capacity: {storage: 1Gi}
                accessModes: [ReadWriteOnce]
                local: {path: /mnt}
                nodeAffinity:
                  required:
                    nodeSelectorTerms:
                    - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]
        """,
    ),
    "a device for its claim": Situation(
        spec="resourceClaims: [{name: d, resourceClaimName: d}]",
        objects="""
            apiVersion: resource.k8s.io/v1
            kind: DeviceClass
            metadata: {name: gpu}
            spec: {}
            ---
            apiVersion: resource.k8s.io/v1
            kind: ResourceClaim
            metadata: {name: d, namespace: default}
            spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
        """,
        change="""
            apply:
              apiVersion: resource.k8s.io/v1
              kind: ResourceSlice
              metadata: {name: s1}
              spec:
                driver: gpu.example.com
                nodeName: n1
                pool: {name: n1, generation: 1, resourceSliceCount: 1}
                devices: [{name: g0}]
        """,
    ),
    "a topology label": Situation(
        spec="topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, "
        "whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: own}}}]",
        objects="",
        change="patch: {kind: Node, name: n1, merge: {metadata: {labels: {zone: a}}}}",
    ),
    "a higher bound on limits": Situation(
        limits="8",
        node=f', annotations: {{{LIMITS}: \'{{"cpu": "100%"}}\'}}',
        objects="",
        change=f"""
            patch: {{kind: Node, name: n1,
                    merge: {{metadata: {{annotations: {{{LIMITS}: '{{"cpu": "300%"}}'}}}}}}}}
        """,
    ),
    "more volumes of its driver": Situation(
        spec="volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]",
        objects=joined(
            CLAIM.replace("%s", "data"),
            CLAIM.replace("%s", "other"),
            f"{{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {{name: n1}}, "
            f"spec: {{{DRIVER % 1}}}}}",
            """
            apiVersion: v1
            kind: Pod
            metadata: {name: holder}
            spec:
              nodeName: n1
              containers: [{name: c}]
              volumes: [{name: v, persistentVolumeClaim: {claimName: other}}]
            """,
        ),
        change=f"patch: {{kind: CSINode, name: n1, merge: {{spec: {{{DRIVER % 2}}}}}}}",
    ),
}


def owner(situation: Situation, labels: str = "") -> str:
    limits = f", limits: {{cpu: '{situation.limits}'}}" if situation.limits else ""
    container = f"{{name: c, resources: {{requests: {{cpu: '2'}}{limits}}}}}"
    more = f", {situation.spec}" if situation.spec else ""
    return f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: own, labels: {{app: own{labels}}}}}
        spec: {{containers: [{container}]{more}}}
    """


@pytest.mark.parametrize("in_gang", [False, True], ids=["alone", "in a gang"])
@pytest.mark.parametrize("name", SITUATIONS)
def test_an_owner_is_woken_by_what_it_waits_for(name: str, in_gang: bool) -> None:
    situation = SITUATIONS[name]
    labels = ", pod-group.scheduling.sigs.k8s.io: g" if in_gang else ""
    gang = """
        apiVersion: scheduling.sigs.k8s.io/v1alpha1
        kind: PodGroup
        metadata: {name: g, namespace: default}
        spec: {minMember: 1}
    """
    parts = [NODE % situation.node, RESERVATION, situation.objects, gang if in_gang else ""]
    change = f"""
        apiVersion: sim.holdfast.io/v1alpha1
        kind: Step
        at: 60s
        {situation.change.strip()}
    """
    created = "{apiVersion: sim.holdfast.io/v1alpha1, kind: Step, at: 10s, apply: %s}"
    parts += [change, created % dumps(safe_load(owner(situation, labels)))]
    played = Played(simulate(joined(*filter(None, parts)), until=600))
    [time] = played.times("own")
    assert time is not None and 60 <= time <= 120
