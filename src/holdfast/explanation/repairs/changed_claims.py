"""ResourceClaims and ResourceClaimTemplates with other requests.

Their specs are immutable, so they are deleted and created again. A claim that was made from a template
stays as it is until its pod is deleted, and the next one is made from the template as it is then: its
pod is deleted too, and created again by its controller or else by hand.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from holdfast.api.kinds import KindInfo
from holdfast.api.plurals import plural
from holdfast.explanation.facts.created_claims import CLAIM_TEMPLATE, claims_from_templates
from holdfast.explanation.facts.other_pods import siblings
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ObjectChange, create, delete, patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, RESOURCE_CLAIM, ClusterSnapshot

_REPLACING = ("ReplicaSet", "StatefulSet")
"""Controllers whose pods that run are created again as they were: nothing is lost but their time."""

Edit = Callable[[Raw], None]
"""Changes `devices` of a claim's spec in place."""


class ClaimsOfPod(NamedTuple):
    """What a pod or reservation, and others that are like it, claim."""

    named: list[tuple[KindInfo, Raw]]
    """Claims that are not allocated, and templates; not the claims that are made from these. A template
    that does not exist any more is as the claim that was made from it."""
    pending: list[Raw]
    """The pods without a node that have claims from templates."""
    running: list[Raw]
    """Those with a node, of the same workload, if it replaces pods that are deleted."""

    @property
    def requests(self) -> Iterator[tuple[str, Raw]]:
        """The requests by name, alternatives of one under its name."""
        for _, raw in self.named:
            yield from _requests(_devices(raw))


def claims_of_pod(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> ClaimsOfPod:
    """The claims of the pod, and of the waiting pods of its job, or pods of its workload."""
    job = snapshot.cluster.jobs.of(pod)
    members = job.waiting() if job is not None and not job.is_ready else [pod]
    subjects = [subject, *(Subject.of(each) for each in members if each is not pod)]
    found: dict[tuple[str, str], tuple[KindInfo, Raw]] = {}
    for each in subjects:
        for info, raw in _named(snapshot, each, pod.namespace):
            if not (raw.get("status") or {}).get("allocation"):
                found[info.kind, raw["metadata"]["name"]] = info, raw
    pods = [*subjects, *siblings(snapshot, subject)] if subject.info is POD else []
    raws = [raw for each in pods if claims_from_templates(raw := each.raw(snapshot))]
    return ClaimsOfPod(
        list(found.values()),
        [raw for raw in raws if not raw["spec"].get("nodeName")],
        [
            raw
            for raw in raws
            if raw["spec"].get("nodeName") and controller_of(raw).get("kind") in _REPLACING
        ],
    )


def _named(
    snapshot: ClusterSnapshot, subject: Subject, namespace: str
) -> Iterator[tuple[KindInfo, Raw]]:
    """The claims and templates that the pod, or the reservation's template, names."""
    raw = subject.raw(snapshot)
    if subject.info is RESERVATION:
        raw = (raw.get("spec") or {}).get("template") or {}
        namespace = (raw.get("metadata") or {}).get("namespace") or "default"
    made = {template: claim for claim, template in claims_from_templates(raw).items()}
    for entry in (raw.get("spec") or {}).get("resourceClaims") or ():
        template, name = (entry.get(f"resourceClaim{each}Name") or "" for each in ("Template", ""))
        if (claim := snapshot.find(RESOURCE_CLAIM, name, namespace)) is not None:
            yield RESOURCE_CLAIM, claim
        elif (found := snapshot.find(CLAIM_TEMPLATE, template, namespace)) is not None:
            yield CLAIM_TEMPLATE, found
        elif (claim := snapshot.find(RESOURCE_CLAIM, made.get(template, ""), namespace)) is not None:
            yield CLAIM_TEMPLATE, _template_of(claim, template)


def _template_of(claim: Raw, name: str) -> Raw:
    """The template from which a claim was made."""
    return {
        "apiVersion": CLAIM_TEMPLATE.api_version,
        "kind": CLAIM_TEMPLATE.kind,
        "metadata": {"name": name, "namespace": claim["metadata"].get("namespace") or ""},
        "spec": {"spec": copy.deepcopy(claim["spec"])},
    }


class ChangedClaims:
    """Claims and templates that request other devices."""

    def __init__(
        self, snapshot: ClusterSnapshot, claims: ClaimsOfPod, edit: Edit, with_running: bool = False
    ) -> None:
        """Of claims from templates, those of pods that run stay as they are unless `with_running`."""
        self.objects: list[ObjectChange] = []
        self._names: list[str] = []
        specs: dict[str, Raw] = {}
        is_new = True
        for info, raw in claims.named:
            changed = copy.deepcopy(raw)
            edit(_devices(changed))
            if changed == raw:
                continue
            name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace") or ""
            if snapshot.find(info, name, namespace) is not None:
                self.objects.append(delete(info, name, namespace))
                is_new = False
            self.objects.append(create(info, _unallocated(changed)))
            self._names.append(f"{info.kind} {name}")
            if info is CLAIM_TEMPLATE:
                specs[name] = changed["spec"]["spec"]
        self._again = "create it again" if is_new else "delete and create it again"
        pods = RecreatedPods(snapshot, claims, specs, with_running)
        self.objects += pods.objects
        self._pods = f", then {pods.text}: {pods.whose} made from the old template" if pods.text else ""

    @property
    def where(self) -> str:
        """` in ResourceClaim c (delete and create it again)`"""
        return f" in {self.what}" if self._names else ""

    @property
    def what(self) -> str:
        return f"{few(self._names)} ({self._again}){self._pods}"


class RecreatedPods:
    """Pods that are deleted and created again, with claims from templates as they are then."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        claims: ClaimsOfPod,
        specs: Mapping[str, Raw],
        with_running: bool = False,
    ) -> None:
        """`specs` are those of the templates that change, by name."""
        self.objects: list[ObjectChange] = []
        self._pods: list[Raw] = []
        for raw in (*claims.pending, *(claims.running if with_running else ())):
            if specs.keys() & claims_from_templates(raw).values():
                self.objects += _recreated(snapshot, raw, specs)
                if not snapshot.is_hypothetical:
                    self._pods.append(raw)

    @property
    def text(self) -> str:
        """`delete the pods (kubectl delete pod a b)`"""
        if not self._pods:
            return ""
        metadata = [each["metadata"] for each in self._pods]
        namespace = metadata[0].get("namespace") or "default"
        where = "" if namespace == "default" else f" -n {namespace}"
        names = " ".join(each["name"] for each in metadata)
        made = [each for each in self._pods if not controller_of(each)]
        again = f" and create {plural(len(made), 'it', 'them')} again" if made else ""
        command = "" if made else f" (kubectl delete pod {names}{where})"
        return f"delete the {plural(len(metadata), 'pod')}{command}{again}"

    @property
    def whose(self) -> str:
        return plural(len(self._pods), "its claim was", "their claims were")


def _recreated(snapshot: ClusterSnapshot, raw: Raw, specs: Mapping[str, Raw]) -> list[ObjectChange]:
    """The pod without its node, and its claims made again from templates with these specs."""
    metadata, namespace = raw["metadata"], raw["metadata"].get("namespace") or ""
    follows = bool(controller_of(raw)) or snapshot.is_hypothetical
    spec = {key: value for key, value in raw["spec"].items() if key != "nodeName"}
    statuses = (raw.get("status") or {}).get("resourceClaimStatuses") or []
    bound = {"status": {"phase": "Pending", "resourceClaimStatuses": statuses}}
    found = [delete(POD, metadata["name"], namespace)._replace(follows=snapshot.is_hypothetical)]
    for name, template in claims_from_templates(raw).items():
        claim = snapshot.find(RESOURCE_CLAIM, name, namespace)
        if claim is not None:
            now = snapshot.find(CLAIM_TEMPLATE, template, namespace) or _template_of(claim, template)
            made = _unallocated({**claim, "spec": specs.get(template) or now["spec"]["spec"]})
            found.append(delete(RESOURCE_CLAIM, name, namespace)._replace(follows=True))
            found.append(create(RESOURCE_CLAIM, made, follows=True))
    if follows:
        return [*found, create(POD, {**raw, "spec": spec, **bound}, follows=True)]
    return [*found, create(POD, {**raw, "spec": spec}), patch(POD, raw, bound, follows=True)]


def _unallocated(claim: Raw) -> Raw:
    return {key: value for key, value in claim.items() if key != "status"}


def outdated_claims(snapshot: ClusterSnapshot, claims: ClaimsOfPod) -> Iterator[Repair]:
    """Pods whose claims were made from a template that is another one since: deleted if they have no
    node, then all of them. The outdated ones may be only those that run, which then have devices that
    others need."""
    pending = [(raw, _outdated(snapshot, raw)) for raw in claims.pending]
    running = [(raw, _outdated(snapshot, raw)) for raw in claims.running]
    for outdated in (pending, [*pending, *running] if any(specs for _, specs in running) else []):
        specs = {template: spec for _, those in outdated for template, spec in those.items()}
        raws = [raw for raw, those in outdated if those]
        pods = RecreatedPods(snapshot, claims._replace(pending=raws), specs)
        if pods.text:
            template = f"ResourceClaimTemplate {few(list(specs))} as it was"
            text = f"{pods.text}: {pods.whose} made from {template}"
            yield repair(text, "RecreatePods", pods.objects)


def _outdated(snapshot: ClusterSnapshot, pod: Raw) -> dict[str, Raw]:
    """By name, the present specs of the templates that are not as the pod's claims were made."""
    namespace, found = pod["metadata"].get("namespace") or "", dict[str, Raw]()
    for name, template in claims_from_templates(pod).items():
        claim = snapshot.find(RESOURCE_CLAIM, name, namespace)
        now = snapshot.find(CLAIM_TEMPLATE, template, namespace)
        if claim is not None and now is not None and claim["spec"] != now["spec"]["spec"]:
            found[template] = now["spec"]["spec"]
    return found


def each_request(edit: Callable[[str, Raw], None]) -> Edit:
    """Changes each request, by its name, and alternatives of one under its name."""

    def edit_all(devices: Raw) -> None:
        for name, exact in _requests(devices):
            edit(name, exact)

    return edit_all


def _devices(raw: Raw) -> Raw:
    """What a claim, or template, requests."""
    spec = raw.get("spec") or {}
    return (spec.get("devices") or (spec.get("spec") or {}).get("devices")) or {}


def _requests(devices: Raw) -> Iterator[tuple[str, Raw]]:
    for each in devices.get("requests") or ():
        for exact in (each.get("exactly"), *(each.get("firstAvailable") or ())):
            if exact is not None:
                yield str(each.get("name")), exact
