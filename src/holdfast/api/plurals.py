"""Counts in sentences: `1 pod`, `3 pods`, `1 pod is`, `3 pods are`."""


def number_of(count: int, one: str, several: str = "") -> str:
    """The count and its noun; `several` is what follows any other count than 1, where that is not
    `one` with an `s`."""
    return f"{count} {plural(count, one, several)}"


def plural(count: int, one: str, several: str = "") -> str:
    """The noun alone, or another word that depends on the count."""
    return one if count == 1 else several or f"{one}s"
