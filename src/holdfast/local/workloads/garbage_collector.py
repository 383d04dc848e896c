"""The garbage collector: deletes objects whose owners are gone.

background   the owner is deleted at once, its dependents after it
foreground   the owner waits, with a finalizer, for the dependents that block it
orphan       the owner waits until its dependents' owner references are removed
"""

from __future__ import annotations

from holdfast.local.workloads.job import TRACKING
from holdfast.local.workloads.lister import (
    ActionOutcome,
    DeleteDependent,
    Lister,
    Raw,
    Ref,
    is_going,
    with_metadata,
)

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def collect(view: Lister, ref: Ref, raw: Raw) -> ActionOutcome:
    """Processes one object: whether its owners exist, and whether it waits for its dependents."""
    outcome = ActionOutcome()
    finalizers = raw["metadata"].get("finalizers") or ()
    if is_going(raw):
        if ORPHAN in finalizers:
            _let_go(view, ref, raw, outcome)
        elif FOREGROUND in finalizers:
            _wait_for_dependents(view, ref, raw, outcome)
    if not outcome.actions:
        _judge_owners(view, ref, raw, outcome)
    return outcome


def waits(raw: Raw) -> bool:
    """Whether a finalizer of the garbage collector keeps the object."""
    finalizers = raw["metadata"].get("finalizers") or ()
    return is_going(raw) and (ORPHAN in finalizers or FOREGROUND in finalizers)


def _judge_owners(view: Lister, ref: Ref, raw: Raw, outcome: ActionOutcome) -> None:
    owners = raw["metadata"].get("ownerReferences") or []
    if not owners:
        return
    found = {each.get("uid", ""): view.owner(ref, each) for each in owners}
    there = [
        each for each in owners if found[each.get("uid", "")] is not None or not view.is_gone(ref, each)
    ]
    if not there:
        if TRACKING in (raw["metadata"].get("finalizers") or ()):
            kept = [each for each in raw["metadata"]["finalizers"] if each != TRACKING]
            outcome.update(ref, raw, with_metadata(raw, finalizers=kept))
        if not is_going(raw):
            outcome.actions.append(DeleteDependent(ref, raw["metadata"]["uid"]))
        return
    staying = [each for each in there if not _deletes_dependents(found[each.get("uid", "")])]
    if staying and len(staying) < len(owners):
        # One owner is enough to stay; those that go are forgotten.
        outcome.update(ref, raw, with_metadata(raw, ownerReferences=staying))
    elif not staying and not is_going(raw):
        # Its owners wait for it; if something depends on it in turn, it has to wait as well.
        further = any(view.dependents(raw["metadata"]["uid"]))
        propagation = "Foreground" if further else "Background"
        outcome.actions.append(DeleteDependent(ref, raw["metadata"]["uid"], propagation))


def _deletes_dependents(found: tuple[Ref, Raw] | None) -> bool:
    if found is None:
        return False
    _, owner = found
    return is_going(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or ())


def _let_go(view: Lister, ref: Ref, raw: Raw, outcome: ActionOutcome) -> None:
    uid = raw["metadata"]["uid"]
    for dependent in view.dependents(uid):
        each = view.get(dependent)
        if each is not None:
            kept = [
                owner for owner in each["metadata"]["ownerReferences"] if owner.get("uid", "") != uid
            ]
            outcome.update(dependent, each, with_metadata(each, ownerReferences=kept))
    outcome.update(ref, raw, _without(raw, ORPHAN))


def _wait_for_dependents(view: Lister, ref: Ref, raw: Raw, outcome: ActionOutcome) -> None:
    """Removes the finalizer once no dependent blocks; dependents are processed on their own."""
    uid = raw["metadata"]["uid"]
    for dependent in view.dependents(uid):
        each = view.get(dependent)
        owners = each["metadata"].get("ownerReferences") or () if each is not None else ()
        if any(owner.get("uid", "") == uid and owner.get("blockOwnerDeletion") for owner in owners):
            return
    outcome.update(ref, raw, _without(raw, FOREGROUND))


def _without(raw: Raw, finalizer: str) -> Raw:
    kept = [each for each in raw["metadata"].get("finalizers") or () if each != finalizer]
    return with_metadata(raw, finalizers=kept)
