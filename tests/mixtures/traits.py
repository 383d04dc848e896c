"""What a single pod, or the template of a reservation, may be like."""

import json

from mixtures.making import KOORD, TEAMS, Making, Raw, annotate, label, requests, resources


def whole_gpu(making: Making, metadata: Raw, spec: Raw) -> None:
    name, amount = making.pick(
        (("nvidia.com/gpu", 1), ("nvidia.com/gpu", 2), ("koordinator.sh/gpu", 100))
    )
    requests(spec)[name] = str(amount)


def gpu_share(making: Making, metadata: Raw, spec: Raw) -> None:
    wanted = requests(spec)
    if any("gpu" in name for name in wanted):
        return
    share = str(making.pick((20, 30, 50, 60, 80)))
    if making.chance(0.5):
        wanted["koordinator.sh/gpu"] = share
    else:
        wanted["koordinator.sh/gpu-core"] = str(making.pick((10, 30, 50)))
        wanted["koordinator.sh/gpu-memory-ratio"] = share


def exclusive_cpus(making: Making, metadata: Raw, spec: Raw) -> None:
    label(metadata, "koordinator.sh/qosClass", making.pick(("LSR", "LSR", "LSE")))
    cpus = str(making.some(1, 4))
    requests(spec)["cpu"] = cpus
    if "limits" in resources(spec):
        resources(spec)["limits"].pop("cpu", None)
    if making.chance(0.5):
        policy = making.pick(
            (
                {"preferredCPUBindPolicy": "FullPCPUs"},
                {"preferredCPUBindPolicy": "SpreadByPCPUs"},
                {"requiredCPUBindPolicy": "FullPCPUs"},
                {"preferredCPUExclusivePolicy": "PCPULevel"},
                {"preferredCPUExclusivePolicy": "NUMANodeLevel"},
            )
        )
        annotate(metadata, KOORD + "resource-spec", json.dumps(policy))


def numa_policy(making: Making, metadata: Raw, spec: Raw) -> None:
    policy = {"numaTopologyPolicy": making.pick(("SingleNUMANode", "Restricted", "BestEffort"))}
    if making.chance(0.3):
        policy["singleNUMANodeExclusive"] = "Preferred"
    annotate(metadata, KOORD + "numa-topology-spec", json.dumps(policy))


def host_port(making: Making, metadata: Raw, spec: Raw) -> None:
    port: Raw = {"containerPort": making.pick((7001, 7002)), "hostPort": making.pick((7001, 7002))}
    if making.chance(0.25):
        port["hostIP"] = making.pick(("10.0.0.1", "10.0.0.2"))
    if making.chance(0.2):
        port["protocol"] = "UDP"
    spec["containers"][0]["ports"] = [port]


def limits(making: Making, metadata: Raw, spec: Raw) -> None:
    wanted = requests(spec)
    given: Raw = {"memory": making.pick(("1Gi", "4Gi", "8Gi"))}
    if "LS" not in metadata.get("labels", {}).get("koordinator.sh/qosClass", ""):
        given["cpu"] = making.pick(("4", "6", "8"))
    resources(spec)["limits"] = given
    if making.chance(0.2):
        wanted.pop("memory", None)
    wanted_cpu = float(wanted.get("cpu", 0)) if str(wanted.get("cpu", 0)).isdigit() else 1
    if "cpu" in given and wanted_cpu > float(given["cpu"]):
        given["cpu"] = str(int(wanted_cpu))
    if "memory" in wanted:
        given["memory"] = "8Gi"


def claim(making: Making, metadata: Raw, spec: Raw) -> None:
    volumes = spec.setdefault("volumes", [])
    if making.claims and making.chance(0.85):
        name = making.pick(making.claims)
        volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": name}})
        return
    template = {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": making.pick(("local", "made")),
            "resources": {"requests": {"storage": "1Gi"}},
        }
    }
    volumes.append({"name": f"v{len(volumes)}", "ephemeral": {"volumeClaimTemplate": template}})


def more_containers(making: Making, metadata: Raw, spec: Raw) -> None:
    kind = making.pick(("init", "sidecar", "both", "overhead", "second"))
    wants = {"requests": {"cpu": making.pick(("500m", "1", "2")), "memory": "1Gi"}}
    if "koordinator.sh/qosClass" in metadata.get("labels", {}):
        wants = {"requests": {"cpu": "1", "memory": "1Gi"}}
    if kind in ("sidecar", "both"):
        spec.setdefault("initContainers", []).append(
            {"name": "side", "image": "x", "restartPolicy": "Always", "resources": wants}
        )
    if kind in ("init", "both"):
        spec.setdefault("initContainers", []).append({"name": "init", "image": "x", "resources": wants})
    if kind == "overhead":
        spec["overhead"] = {"cpu": "250m", "memory": "64Mi"}
        if "koordinator.sh/qosClass" in metadata.get("labels", {}):
            spec["overhead"] = {"memory": "64Mi"}
    if kind == "second":
        spec["containers"].append({"name": "second", "image": "x", "resources": wants})


def priority(making: Making, metadata: Raw, spec: Raw) -> None:
    spec["priorityClassName"] = making.pick(("low", "mid", "high", "high", "meek"))
    if making.chance(0.1):
        annotate(metadata, "volcano.sh/preemptable", "false")


def slow_to_stop(making: Making, metadata: Raw, spec: Raw) -> None:
    annotate(metadata, "sim.holdfast.io/stops-in", f"{making.pick((5, 10, 20, 30))}s")


def estimate(making: Making, metadata: Raw, spec: Raw) -> None:
    if making.chance(0.3):
        spec["activeDeadlineSeconds"] = making.some(30, 600)
    else:
        annotate(metadata, "holdfast.io/run-estimate", f"{making.some(30, 600)}s")


def queue(making: Making, metadata: Raw, spec: Raw) -> None:
    annotate(metadata, "scheduling.volcano.sh/queue-name", making.pick(making.queues))


def template(making: Making, metadata: Raw, spec: Raw) -> None:
    team = making.pick(TEAMS)
    label(metadata, "team", team)
    wanted: Raw = {
        "owners": [{"labelSelector": {"matchLabels": {"team": team}}}],
        "recommendedSize": {"cpu": making.pick(("2", "4", "8")), "memory": making.pick(("2Gi", "4Gi"))},
    }
    if making.chance(0.4):
        wanted["roundup"] = {"cpu": making.pick(("2", "3")), "memory": making.pick(("1Gi", "2Gi"))}
    if making.chance(0.2):
        del wanted["recommendedSize"]
    annotate(metadata, KOORD + "reservation-template", json.dumps(wanted))


def team(making: Making, metadata: Raw, spec: Raw) -> None:
    label(metadata, "team", making.pick(TEAMS))


def reservation_affinity(making: Making, metadata: Raw, spec: Raw) -> None:
    kind = making.pick(("ignored", "affinity", "named", "exact", "tolerates"))
    if kind == "ignored":
        label(metadata, KOORD + "reservation-ignored", "true")
    elif kind == "exact":
        annotate(metadata, KOORD + "exact-match-reservation", json.dumps({"resourceNames": ["cpu"]}))
    else:
        label(metadata, "team", making.pick(TEAMS))
        annotation: Raw = {}
        if kind == "affinity":
            annotation = {"reservationSelector": {"pool": making.pick(("x", "y"))}}
        elif kind == "named" and making.reservations:
            annotation = {"name": making.pick(making.reservations)}
        elif kind == "tolerates":
            annotation = {"tolerations": [{"operator": "Exists"}]}
        annotate(metadata, KOORD + "reservation-affinity", json.dumps(annotation))


def affinity(making: Making, metadata: Raw, spec: Raw) -> None:
    kind = making.pick(("anti", "together", "spread", "zone"))
    who = making.pick(("x", "y"))
    label(metadata, "app", who)
    chosen = {"matchLabels": {"app": who}}
    key = making.pick(("kubernetes.io/hostname", "zone"))
    term = [{"labelSelector": chosen, "topologyKey": key}]
    if kind == "anti":
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": term}
        spec.setdefault("affinity", {})["podAntiAffinity"] = rule
    elif kind == "together":
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": term}
        spec.setdefault("affinity", {})["podAffinity"] = rule
    elif kind == "spread":
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": chosen,
            }
        ]
    else:
        spec["nodeSelector"] = {"zone": making.pick(("za", "zb"))}


def tolerations(making: Making, metadata: Raw, spec: Raw) -> None:
    spec["tolerations"] = [
        {"key": "dedicated", "operator": "Exists", "effect": making.pick(("NoSchedule", "NoExecute"))}
    ]
