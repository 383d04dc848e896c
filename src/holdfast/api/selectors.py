"""Everything that selects: labels, fields, nodes, taints.

The door to four small modules, so that users need not know which of them holds what.
"""

from __future__ import annotations

from holdfast.api.errors import SelectorError
from holdfast.api.label_selectors import (
    EVERYTHING,
    NOTHING,
    Requirement,
    Selector,
    compile_selector,
    matches,
    requirement,
    selector_from_map,
)
from holdfast.api.node_selectors import (
    match_node_requirement,
    match_node_selector,
    match_node_selector_term,
    node_requirement,
)
from holdfast.api.selector_text import FieldSelector, parse_field_selector, parse_label_selector
from holdfast.api.tolerations import find_untolerated, tolerates

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "FieldSelector",
    "Requirement",
    "Selector",
    "SelectorError",
    "compile_selector",
    "find_untolerated",
    "match_node_requirement",
    "match_node_selector",
    "match_node_selector_term",
    "matches",
    "node_requirement",
    "parse_field_selector",
    "parse_label_selector",
    "requirement",
    "selector_from_map",
    "tolerates",
]
