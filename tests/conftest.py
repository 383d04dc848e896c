"""How hard property tests try.

`default` is for working and for CI, where it is also repeatable; `HYPOTHESIS_PROFILE=thorough` tries
ten times as many examples; `mutations` is repeatable and does not shrink what fails.
"""

from __future__ import annotations

import gc
import os
import sys

import pytest
from hypothesis import HealthCheck, Phase, settings

from realserver.fixtures import real_cluster, real_server

os.environ.setdefault("HOLDFAST_AUDIT", "1")  # `holdfast simulate` of tests runs the capacity audit
# Tests start hundreds of processes. Without compiled files on disk each compiles the package again,
# which takes it longer than anything else.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

__all__ = ["real_cluster", "real_server"]

_common = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

settings.register_profile("default", _common, max_examples=100, derandomize="CI" in os.environ)
settings.register_profile("thorough", _common, max_examples=1000, print_blob=True)
settings.register_profile(
    "mutations",
    _common,
    max_examples=100,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

_LONG = ("test_up_killed.py", "test_killing.py", "test_mutations.py")
"""Files with tests of minutes. They begin first, so that no worker is alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in _LONG)


def pytest_collection_finish() -> None:
    """Keeps the collected tests out of garbage collections, which would go through all of them each
    time."""
    gc.collect()
    gc.freeze()
