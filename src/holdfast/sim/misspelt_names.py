"""Labels and annotations of a scenario whose names are almost known ones: nothing reads them, and an
API server accepts them."""

from collections.abc import Iterator, Mapping, Sequence

from holdfast.api import names
from holdfast.api.similar_names import did_you_mean

_OURS = ("koordinator.sh", "volcano.sh", "holdfast.io", "scheduling.sigs.k8s.io")
"""Domains of labels and annotations that are read here, with those below them."""
_SIMILAR = 0.85
"""The ratio of equal characters of a name with one or two wrong ones."""


def _known() -> dict[str, list[str]]:
    """By prefix, the known names, but for run-time estimates, which are checked with their values."""
    found: dict[str, list[str]] = {}
    for constant, value in vars(names).items():
        if isinstance(value, str) and constant.isupper() and not constant.endswith("_API"):
            prefix, slash, name = value.partition("/")
            if slash and name and prefix.endswith(_OURS) and value != names.RUN_ESTIMATE:
                found.setdefault(prefix, []).append(name)
    return found


_KNOWN: Mapping[str, Sequence[str]] = _known()


def misspelt_names(metadata: Mapping[str, object]) -> Iterator[str]:
    """`metadata.annotations[holdfast.io/start-at]: unknown; did you mean …?`"""
    for part in ("labels", "annotations"):
        given = metadata.get(part)
        for key in given if isinstance(given, dict) else ():
            prefix, _, name = str(key).partition("/")
            known = _KNOWN.get(prefix, ())
            if known and name not in known and key != names.RUN_ESTIMATE:
                hint = did_you_mean(name, known, similar=_SIMILAR)
                if hint:
                    meant = hint.replace("did you mean ", f"did you mean {prefix}/", 1)
                    yield f"metadata.{part}[{key}]: is ignored{meant}"
