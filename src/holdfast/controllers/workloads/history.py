"""The templates a StatefulSet or DaemonSet has had, kept as ControllerRevisions: what
`kubectl rollout history` lists and `undo` brings back."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.controllers.workloads.actions import Create, Delete, Outcome, Raw, Ref
from holdfast.controllers.workloads.naming import short_hash
from holdfast.controllers.workloads.view import View, is_going, labels_of, reference_to

REVISION_LABEL = "controller-revision-hash"
HISTORY_LIMIT = 10
_KIND = "ControllerRevision"


@dataclass(frozen=True, slots=True)
class History:
    digest: str
    """The short name of the present template."""
    templates: dict[str, Raw]
    """Those before it that are still kept, by the name of their revision."""


def recorded(view: View, ref: Ref, owner: Raw, in_use: set[str], outcome: Outcome) -> History:
    """Sees to it that the present template is the latest revision, and that not too many are kept.
    `in_use` are the values pods have as REVISION_LABEL."""
    template = owner["spec"].get("template") or {}
    digest = short_hash(template)
    known = [*view.controlled(owner["metadata"]["uid"], _KIND)]
    newest = max((int(each["revision"]) for _, each in known), default=0)
    present = next((each for each in known if _template(each[1]) == template), None)
    if not is_going(owner):
        if present is None:
            name = f"{ref.name}-{digest}"
            if view.get(Ref("apps", _KIND, ref.namespace, name)) is None:
                made = new_revision(owner, name, digest, template, newest + 1)
                outcome.actions.append(Create(made, ref, announce=False))
        elif int(present[1]["revision"]) < newest:
            outcome.update(present[0], present[1], {**present[1], "revision": newest + 1})
        _clean_up(owner, [each for each in known if each is not present], in_use, outcome)
    if present is not None:
        digest = labels_of(present[1]).get(REVISION_LABEL) or digest
    return History(digest, {each_ref.name: _template(each) for each_ref, each in known})


def new_revision(owner: Raw, name: str, digest: str, template: Raw, number: int) -> Raw:
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {
        "apiVersion": "apps/v1",
        "kind": _KIND,
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**labels, REVISION_LABEL: digest},
            "ownerReferences": [reference_to(owner)],
        },
        # As a patch that brings it back: the template takes the place of the one that is there.
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }


def _template(revision: Raw) -> Raw:
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def _clean_up(owner: Raw, old: list[tuple[Ref, Raw]], in_use: set[str], outcome: Outcome) -> None:
    limit = owner["spec"].get("revisionHistoryLimit")
    limit = HISTORY_LIMIT if limit is None else int(limit)
    idle = [
        (ref, each)
        for ref, each in old
        if ref.name not in in_use and labels_of(each).get(REVISION_LABEL) not in in_use
    ]
    idle.sort(key=lambda member: int(member[1]["revision"]))
    for ref, each in idle[: max(0, len(idle) - limit)]:
        outcome.actions.append(Delete(ref, each["metadata"]["uid"]))
