"""Whatever a file says, it is either used or refused with a reason."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.framework.config import ConfigError, default_configuration, load, to_mapping
from scheduler.framework.config.loading import IMPLEMENTS

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["name", "weight"]), inner)
    ),
    max_leaves=6,
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside a value."""
    inside = list(value.items() if isinstance(value, dict) else enumerate(value))
    here = [(value, key) for key, _ in inside]
    nested = [place for _, v in inside if isinstance(v, dict | list) for place in _places(v)]
    return here + nested


_DEFAULT = default_configuration(IMPLEMENTS)


@given(st.data())
def test_a_spoilt_configuration_is_refused_or_loads_the_same_again(data: st.DataObject) -> None:
    mapping = copy.deepcopy(_DEFAULT)
    mapping["extenders"] = []
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(_places(mapping)))
        container[key] = data.draw(_JSON)
    try:
        configuration = load(mapping, IMPLEMENTS)
    except ConfigError as error:
        assert error.problems
        return
    assert load(to_mapping(configuration), IMPLEMENTS) == configuration
