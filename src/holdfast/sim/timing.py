"""The simulation's annotations: when things happen to an object."""

from holdfast.api import names
from holdfast.api.decode import object_name
from holdfast.api.errors import InvalidObject
from holdfast.sim.reading import hint, seconds
from holdfast.store.objects import Raw

_ANNOTATIONS = (names.SIM_AT, names.SIM_DELETE_AT, names.SIM_RUNS_FOR, names.SIM_STOPS_IN)
_POD_ONLY = (names.SIM_RUNS_FOR, names.SIM_STOPS_IN)


def timing(raw: Raw, found: list[InvalidObject], step_at: float | None = None) -> dict[str, float]:
    """What the simulation's annotations say, in seconds."""
    name = object_name(raw)
    prefix = "apply." if step_at is not None else ""
    times: dict[str, float] = {names.SIM_AT: 0.0}
    annotations = raw["metadata"].get("annotations") or {}
    for key, text in annotations.items():
        field = f"{prefix}metadata.annotations[{key}]"
        if not key.startswith(names.SIM_PREFIX):
            continue
        if key not in _ANNOTATIONS:
            message = f"unknown annotation{hint(key, _ANNOTATIONS)}"
            found.append(InvalidObject(name, field, message))
        elif key in _POD_ONLY and raw["kind"] != "Pod":
            found.append(InvalidObject(name, field, "only pods can have this"))
        elif key == names.SIM_AT and step_at is not None:
            message = "has no place here: the Step says when"
            found.append(InvalidObject(name, field, message))
        else:
            times[key] = seconds(text, name, field, found)
    start = times[names.SIM_AT] if step_at is None else step_at
    if times.get(names.SIM_DELETE_AT, start) < start:
        field = f"{prefix}metadata.annotations[{names.SIM_DELETE_AT}]"
        found.append(InvalidObject(name, field, "is before the object is created"))
    return times
