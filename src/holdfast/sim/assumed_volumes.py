"""Volumes that a simulated cluster provisions at once, and a real one only if its provisioner works."""

from collections.abc import Iterable
from typing import Any

from holdfast.api.names import NO_PROVISIONER
from holdfast.api.plurals import plural

Raw = dict[str, Any]
_SHOWN = 3


def assumed_volumes(objects: Iterable[Raw]) -> list[str]:
    """A note about the claims with immediate binding that pending pods wait for; none if there are no
    such claims. `explain` advises to wait for these volumes."""
    found: dict[str, list[Raw]] = {"Pod": [], "PersistentVolumeClaim": [], "StorageClass": []}
    for raw in objects:
        if raw.get("kind") in found:
            found[raw["kind"]].append(raw)
    provisioners = {
        each["metadata"]["name"]: str(each.get("provisioner") or "")
        for each in found["StorageClass"]
        if each.get("volumeBindingMode") in (None, "Immediate")
    }
    wanted = {
        (pod["metadata"].get("namespace"), volume["persistentVolumeClaim"].get("claimName"))
        for pod in found["Pod"]
        if not pod["spec"].get("nodeName")
        for volume in pod["spec"].get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    }
    claims: list[str] = []
    makers: dict[str, None] = {}
    for raw in found["PersistentVolumeClaim"]:
        name, spec = raw["metadata"]["name"], raw.get("spec") or {}
        maker = provisioners.get(spec.get("storageClassName") or "", "")
        is_wanted = (raw["metadata"].get("namespace"), name) in wanted and not spec.get("volumeName")
        if is_wanted and maker not in ("", NO_PROVISIONER):
            claims.append(f"{raw['metadata'].get('namespace')}/{name}")
            makers[maker] = None
    if not claims:
        return []
    more = f", and {len(claims) - _SHOWN} more" if len(claims) > _SHOWN else ""
    of = f"{plural(len(claims), 'claim')} {', '.join(claims[:_SHOWN])}{more}"
    makes = f"{', '.join(makers)} {plural(len(makers), 'makes', 'make')}"
    return [f"it is assumed that {makes} the {plural(len(claims), 'volume')} for {of}, not bound yet"]
