"""Expiry of reservations without ttl or expires, and with ones set later."""

from typing import Any

import pytest

from holdfast.machinery.strategies.core_kinds import with_expiry

TIME = "2027-01-01T00:00:00Z"


def having(**spec: Any) -> dict[str, Any]:
    return {"kind": "Reservation", "spec": {name: value for name, value in spec.items() if value}}


@pytest.mark.parametrize(
    ("before", "given", "kept"),
    [
        pytest.param(None, having(), having(ttl="24h"), id="not set"),
        pytest.param(None, having(ttl="2h"), having(ttl="2h"), id="a ttl"),
        pytest.param(None, having(expires=TIME), having(expires=TIME), id="a time"),
        pytest.param(
            None,
            having(ttl="24h", expires=TIME),
            having(ttl="24h", expires=TIME),
            id="both, to be refused",
        ),
        pytest.param(
            having(ttl="24h"),
            having(ttl="24h", expires=TIME),
            having(expires=TIME),
            id="a time instead of the default",
        ),
        pytest.param(
            having(ttl="2h"),
            having(ttl="2h", expires=TIME),
            having(ttl="2h", expires=TIME),
            id="a time beside a ttl, to be refused",
        ),
        pytest.param(having(expires=TIME), having(), having(ttl="24h"), id="a time taken back"),
        pytest.param(
            having(expires=TIME),
            having(ttl="24h", expires=TIME),
            having(ttl="24h", expires=TIME),
            id="a ttl beside a time, to be refused",
        ),
    ],
)
def test_the_default_applies_until_a_value_is_set(
    before: dict[str, Any] | None, given: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert with_expiry(given, before) == kept
