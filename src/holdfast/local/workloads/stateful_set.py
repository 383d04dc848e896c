"""The StatefulSet controller: pods with stable names, ordinals and claims.

Claims outlive their pods and their set, unless `persistentVolumeClaimRetentionPolicy` is Delete: then
the set owns them, or the pod that scaling down removes, and the garbage collector deletes them.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.local.workloads.lister import (
    BURST,
    NORMAL,
    ActionOutcome,
    CreateDependent,
    DeleteDependent,
    EmitEvent,
    Lister,
    Member,
    Raw,
    Ref,
    claim,
    is_going,
    labels_of,
    reference_to,
    with_metadata,
)
from holdfast.local.workloads.pods import available_at, ended, from_template, ready
from holdfast.local.workloads.replica_set import wanted_replicas
from holdfast.local.workloads.revisions import REVISION_LABEL, recorded

SOURCE = "statefulset-controller"
_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"


def reconcile(view: Lister, ref: Ref, owner: Raw, now: float) -> ActionOutcome:
    outcome = ActionOutcome()
    members = claim(view, owner, ("", "Pod"), outcome, may_adopt=lambda pod: _number(owner, pod) >= 0)
    pods = {_number(owner, pod): (ref_, pod) for ref_, pod in members if _number(owner, pod) >= 0}
    in_use = {labels_of(pod).get(REVISION_LABEL, "") for _, pod in members}
    in_use.add((owner.get("status") or {}).get("currentRevision") or "")
    history = recorded(view, ref, owner, in_use, outcome)
    digest = f"{ref.name}-{history.digest}"
    start = int((owner["spec"].get("ordinals") or {}).get("start") or 0)
    wanted = range(start, start + wanted_replicas(owner))
    good = _Good(view.min_ready(owner), now, outcome)
    if not is_going(owner):
        for number, (_, pod) in pods.items():
            _own_claims(view, owner, pod, number in wanted, outcome)
        make = _Maker(view, ref, owner, digest, history.templates, now, outcome)
        _manage(owner, pods, wanted, digest, good, make, outcome)
    _report(ref, owner, pods, wanted, digest, good, outcome)
    return outcome


class _Good:
    """Whether a pod exists and has been ready long enough."""

    def __init__(self, min_ready: float, now: float, outcome: ActionOutcome) -> None:
        self._min_ready = min_ready
        self._now, self._outcome = now, outcome

    def __call__(self, pod: Raw) -> bool:
        at = None if is_going(pod) else available_at(pod, self._min_ready)
        if at is not None and at > self._now:
            self._outcome.sync_again(at)
        return at is not None and at <= self._now


def _manage(
    owner: Raw,
    pods: dict[int, Member],
    wanted: range,
    digest: str,
    good: _Good,
    make: Callable[[int], None],
    outcome: ActionOutcome,
) -> None:
    """Scales up from the lowest ordinal and down from the highest, one at a time unless the policy
    is Parallel.
    """
    in_order = owner["spec"].get("podManagementPolicy", "OrderedReady") != "Parallel"
    made = 0
    for number in wanted:
        member = pods.get(number)
        if member is None:
            if made == BURST:
                break  # their creation queues the set again
            make(number)
            made += 1
        elif ended(member[1]) and not is_going(member[1]):
            _delete(owner, member, outcome)  # the next step creates it again
        if in_order and (member is None or not good(member[1])):
            return
    for number in sorted((each for each in pods if each not in wanted), reverse=True):
        if not is_going(pods[number][1]):
            _delete(owner, pods[number], outcome)
        if in_order:
            return
    _update(owner, pods, wanted, digest, good, outcome)


def _update(
    owner: Raw,
    pods: dict[int, Member],
    wanted: range,
    digest: str,
    good: _Good,
    outcome: ActionOutcome,
) -> None:
    if (owner["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
        return
    partition = _partition(owner)
    for number in reversed(wanted):
        if number < partition or number not in pods:
            return
        _, pod = pods[number]
        if labels_of(pod).get(REVISION_LABEL) != digest and not is_going(pod):
            _delete(owner, pods[number], outcome)
            return
        if not good(pod):
            return


def _partition(owner: Raw) -> int:
    """Pods of lower ordinals keep the old template."""
    rolling = (owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    return int(rolling.get("partition") or 0)


# Claims


_CLAIM = "PersistentVolumeClaim"
_CLAIM_RETRY = 1.0
"""Seconds after which a pod is tried again whose claim is being deleted."""


def _claim_refs(owner: Raw, pod_name: str) -> list[tuple[Raw, Ref]]:
    """The claim templates and the claims of a pod. No mount could name a template without a name."""
    return [
        (template, Ref("", _CLAIM, owner["metadata"]["namespace"], f"{volume}-{pod_name}"))
        for template in owner["spec"].get("volumeClaimTemplates") or ()
        if (volume := (template.get("metadata") or {}).get("name"))
    ]


def _claim_owner(owner: Raw, pod: Raw | None, wanted: bool) -> list[Raw]:
    """The owner reference of a pod's claims by the retention policy. `wanted` if the set is large
    enough for the pod."""
    policy = owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    when_scaled, when_deleted = policy.get("whenScaled"), policy.get("whenDeleted")
    if when_scaled == "Delete" and not wanted:
        return [reference_to(pod)] if pod is not None else []
    return [reference_to(owner)] if when_deleted == "Delete" else []


def _own_claims(view: Lister, owner: Raw, pod: Raw, wanted: bool, outcome: ActionOutcome) -> None:
    """Brings the owner references of the pod's claims in line with the retention policy."""
    ours = {owner["metadata"]["uid"], pod["metadata"]["uid"]}
    for _, ref in _claim_refs(owner, pod["metadata"]["name"]):
        found = view.get(ref)
        if found is None:
            continue
        given = found["metadata"].get("ownerReferences") or []
        others = [each for each in given if each.get("uid") not in ours]
        if any(each.get("controller") for each in others):
            owners = others  # another controller manages it
        else:
            owners = [*others, *_claim_owner(owner, pod, wanted)]
        if owners != given:
            outcome.update(ref, found, with_metadata(found, ownerReferences=owners))


def _is_stale(found: Raw, pod_name: str) -> bool:
    """Whether the claim is being deleted, or will be with a former pod of this name."""
    owners = found["metadata"].get("ownerReferences") or ()
    return is_going(found) or any(
        each.get("kind") == "Pod" and each.get("name") == pod_name for each in owners
    )


class _Maker:
    """Creates the pod of an ordinal, and its missing claims."""

    def __init__(
        self,
        view: Lister,
        ref: Ref,
        owner: Raw,
        digest: str,
        templates: dict[str, Raw],
        now: float,
        outcome: ActionOutcome,
    ) -> None:
        self._view, self._ref, self._owner = view, ref, owner
        self._digest, self._templates = digest, templates
        self._now, self._outcome = now, outcome

    def __call__(self, number: int) -> None:
        name, spec = f"{self._ref.name}-{number}", self._owner["spec"]
        claims = _claim_refs(self._owner, name)
        present = {ref: self._view.get(ref) for _, ref in claims}
        if any(found is not None and _is_stale(found, name) for found in present.values()):
            self._outcome.sync_again(self._now + _CLAIM_RETRY)
            return
        for template, ref in claims:
            if present[ref] is None:
                made = _claim(self._owner, template, ref.name)
                self._outcome.actions.append(CreateDependent(made, self._ref))
        of_claims = {
            template["metadata"]["name"]: {"persistentVolumeClaim": {"claimName": ref.name}}
            for template, ref in claims
        }
        digest, template = self._revision_of(number)
        given = (template.get("spec") or {}).get("volumes") or []
        volumes = [each for each in given if each["name"] not in of_claims]
        volumes += [{"name": volume, **source} for volume, source in of_claims.items()]
        labels = {_NAME_LABEL: name, _INDEX_LABEL: str(number), REVISION_LABEL: digest}
        more: Raw = {"hostname": name, "subdomain": spec.get("serviceName") or ""}
        if volumes:
            more["volumes"] = volumes
        pod = from_template(self._owner, template, name=name, labels=labels, spec=more)
        self._outcome.actions.append(CreateDependent(pod, self._ref))

    def _revision_of(self, number: int) -> tuple[str, Raw]:
        former = (self._owner.get("status") or {}).get("currentRevision") or ""
        if number < _partition(self._owner) and former in self._templates:
            return former, self._templates[former]
        return self._digest, self._owner["spec"].get("template") or {}


def _claim(owner: Raw, template: Raw, name: str) -> Raw:
    matching = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    given = template["metadata"]
    metadata = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(given.get("labels") or {}), **matching},
        "annotations": given.get("annotations") or {},
    }
    if owners := _claim_owner(owner, None, wanted=True):
        metadata["ownerReferences"] = owners
    return {
        "apiVersion": "v1",
        "kind": _CLAIM,
        "metadata": metadata,
        "spec": template.get("spec") or {},
        "status": {"phase": "Pending"},
    }


def _delete(owner: Raw, member: Member, outcome: ActionOutcome) -> None:
    ref, pod = member
    outcome.actions.append(DeleteDependent(ref, pod["metadata"]["uid"]))
    name = owner["metadata"]["name"]
    message = f"delete Pod {ref.name} in StatefulSet {name} successful"
    outcome.actions.append(EmitEvent(owner, NORMAL, "SuccessfulDelete", message, SOURCE))


def _report(
    ref: Ref,
    owner: Raw,
    pods: dict[int, Member],
    wanted: range,
    digest: str,
    good: _Good,
    outcome: ActionOutcome,
) -> None:
    status = owner.get("status") or {}
    present = [pod for _, pod in pods.values()]
    updated = [pod for pod in present if labels_of(pod).get(REVISION_LABEL) == digest]
    before = status.get("currentRevision") or digest
    done = len(updated) == len(present) == len(wanted) and all(map(ready, updated))
    current = digest if done else before
    counts = {
        "readyReplicas": sum(ready(pod) and not is_going(pod) for pod in present),
        "currentReplicas": sum(labels_of(pod).get(REVISION_LABEL) == current for pod in present),
        "updatedReplicas": len(updated),
    }
    reported = {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": len(present),
        "availableReplicas": sum(map(good, present)),
        "currentRevision": current,
        "updateRevision": digest,
        "collisionCount": int(status.get("collisionCount") or 0),
        **{key: value for key, value in counts.items() if value},
    }
    outcome.update(ref, owner, {**owner, "status": reported})


def _number(owner: Raw, pod: Raw) -> int:
    """The ordinal in the pod's name; -1 if it is not one of the set's."""
    base, _, number = pod["metadata"]["name"].rpartition("-")
    whole = number.isascii() and number.isdigit() and (number == "0" or number[0] != "0")
    return int(number) if base == owner["metadata"]["name"] and whole else -1
