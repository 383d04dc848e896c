"""Which objects are a controller's own.

An object that fits its selector and has no controller is adopted; one that no longer fits is let go.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.controllers.workloads.actions import Outcome, Raw, Ref
from holdfast.controllers.workloads.view import (
    View,
    is_going,
    labels_of,
    reference_to,
    selects,
    with_metadata,
)

Member = tuple[Ref, Raw]


def claim(
    view: View,
    owner: Raw,
    kind: tuple[str, str],
    outcome: Outcome,
    may_adopt: Callable[[Raw], bool] = lambda raw: True,
) -> list[Member]:
    """The owner's members as they will be; the changes this takes are added to the outcome."""
    selector, uid = (owner.get("spec") or {}).get("selector"), owner["metadata"]["uid"]
    going = is_going(owner)
    mine: list[Member] = []
    for ref, raw in view.controlled(uid, kind[1]):
        if going or not selector or selects(selector, labels_of(raw)):
            mine.append((ref, raw))
        else:
            outcome.update(ref, raw, _released(raw, uid))
    if going or not selector:
        return mine
    for ref, raw in view.free(kind, owner["metadata"]["namespace"], selector):
        if not is_going(raw) and may_adopt(raw):
            owners = raw["metadata"].get("ownerReferences") or []
            others = [each for each in owners if each.get("uid") != uid]
            adopted = with_metadata(raw, ownerReferences=[*others, reference_to(owner)])
            outcome.update(ref, raw, adopted)
            mine.append((ref, adopted))
    return mine


def _released(raw: Raw, uid: str) -> Raw:
    owners = [each for each in raw["metadata"]["ownerReferences"] if each.get("uid") != uid]
    return with_metadata(raw, ownerReferences=owners)
