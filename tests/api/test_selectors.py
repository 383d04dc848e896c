"""Labels, fields, node selectors, tolerations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.strategies import label_selectors, labels
from holdfast.api.affinity import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
    Toleration,
)
from holdfast.api.errors import SelectorError
from holdfast.api.meta import LabelSelector, LabelSelectorRequirement
from holdfast.api.selectors import (
    Requirement,
    Selector,
    compile_selector,
    find_untolerated,
    match_node_selector,
    match_node_selector_term,
    matches,
    parse_field_selector,
    parse_label_selector,
    selector_from_map,
    tolerates,
)

WEB = {"app": "web", "tier": "front", "n": "5"}


def _expression(key: str, operator: str, *values: str) -> LabelSelector:
    expression = LabelSelectorRequirement(key=key, operator=operator, values=list(values))
    return LabelSelector(match_expressions=[expression])


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        (LabelSelector(), True),
        (LabelSelector(match_labels={"app": "web"}), True),
        (LabelSelector(match_labels={"app": "db"}), False),
        (LabelSelector(match_labels={"app": "web", "zone": "a"}), False),
        (_expression("app", "In", "db", "web"), True),
        (_expression("zone", "In", "a"), False),
        (_expression("app", "NotIn", "db"), True),
        (_expression("app", "NotIn", "web"), False),
        (_expression("zone", "NotIn", "a"), True),
        (_expression("app", "Exists"), True),
        (_expression("zone", "Exists"), False),
        (_expression("zone", "DoesNotExist"), True),
        (_expression("app", "DoesNotExist"), False),
    ],
)
def test_label_selectors(selector: LabelSelector | None, expected: bool) -> None:
    assert matches(selector, WEB) is expected


@pytest.mark.parametrize(
    "selector",
    [
        _expression("app", "In"),
        _expression("app", "NotIn"),
        _expression("app", "Exists", "x"),
        _expression("app", "DoesNotExist", "x"),
        _expression("app", "Gt", "1"),
        _expression("app", "Is", "1"),
        _expression("", "Exists"),
        _expression("a b", "Exists"),
        _expression("app", "In", "not a value"),
        LabelSelector(match_labels={"UPPER.com/x/y": "z"}),
    ],
)
def test_malformed_label_selectors_are_refused(selector: LabelSelector) -> None:
    with pytest.raises(SelectorError):
        compile_selector(selector)


def test_equivalent_selectors_are_one_key() -> None:
    one = _expression("app", "In", "a", "b")
    other = _expression("app", "In", "b", "a", "b")
    assert compile_selector(one) == compile_selector(other)
    assert len({compile_selector(one), compile_selector(other)}) == 1
    assert compile_selector(LabelSelector(match_labels={"app": "a"})) == selector_from_map({"app": "a"})
    assert compile_selector(None) != compile_selector(LabelSelector())
    assert compile_selector(LabelSelector()).everything


def _naive(selector: LabelSelector, given: dict[str, str]) -> bool:
    for key, value in selector.match_labels.items():
        if given.get(key) != value:
            return False
    for e in selector.match_expressions:
        has = e.key in given
        answer = {
            "In": has and given[e.key] in e.values,
            "NotIn": not (has and given[e.key] in e.values),
            "Exists": has,
            "DoesNotExist": not has,
        }
        if not answer[e.operator]:
            return False
    return True


@given(label_selectors, labels)
def test_compiled_selectors_agree_with_the_definition(
    selector: LabelSelector, given: dict[str, str]
) -> None:
    assert compile_selector(selector).matches(given) is _naive(selector, given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("zone!=a", True),
        ("app=web,tier=front", True),
        ("app=web , tier=back", False),
        ("app in (db, web)", True),
        ("app in (db)", False),
        ("app notin (db),tier", True),
        ("zone notin (a)", True),
        ("!zone", True),
        ("! app", False),
        ("zone", False),
        ("n>4", True),
        ("n > 5", False),
        ("n<6", True),
        ("app>1", False),
        ("zone in (a,)", False),
        ("in=web", False),
    ],
)
def test_selectors_as_people_type_them(text: str, expected: bool) -> None:
    assert parse_label_selector(text).matches(WEB) is expected


def test_an_empty_value_can_be_asked_for() -> None:
    assert parse_label_selector("a=").matches({"a": ""})
    assert parse_label_selector("a=,b=c").matches({"a": "", "b": "c"})
    assert parse_label_selector("a in (,x)").matches({"a": ""})


@pytest.mark.parametrize(
    "text",
    (
        *("=a", "app=web,", ",app", "app in", "app in (", "app in (a", "app in (a b)", "app in a"),
        *("!", "app=a=b", "app is b", "n>x", "app web", "a in (x=y)", "(a)", "app=(x)", "!a=b"),
    ),
)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_label_selector(text)


RAW: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns"},
    "spec": {"nodeName": "n1", "hostNetwork": True},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("metadata.name=p", True),
        ("metadata.name==p,status.phase=Running", True),
        ("metadata.name=p,status.phase!=Running", False),
        ("spec.nodeName!=", True),
        ("spec.missing=", True),
        ("spec.missing=x", False),
        ("metadata.name.deeper=x", False),
        ("spec.hostNetwork=true", True),
        ("spec=", True),
    ],
)
def test_field_selectors(text: str, expected: bool) -> None:
    assert parse_field_selector(text).matches(RAW) is expected


def test_field_selectors_can_escape_separators() -> None:
    assert parse_field_selector(r"a=x\,y\=z").matches({"a": "x,y=z"})


@pytest.mark.parametrize("text", ["name", "=x", "a>b", "a=b=c"])
def test_malformed_field_selectors_are_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_field_selector(text)


def _term(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    expression = NodeSelectorRequirement(key=key, operator=operator, values=list(values))
    return NodeSelectorTerm(match_expressions=[expression])


def _field(operator: str, *values: str, key: str = "metadata.name") -> NodeSelectorTerm:
    expression = NodeSelectorRequirement(key=key, operator=operator, values=list(values))
    return NodeSelectorTerm(match_fields=[expression])


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (NodeSelectorTerm(), False),
        (_term("n", "Gt", "4"), True),
        (_term("n", "Gt", "5"), False),
        (_term("n", "Lt", "6"), True),
        (_term("n", "Lt", "x"), False),
        (_term("n", "Gt", "1", "2"), False),
        (_term("app", "Gt", "1"), False),
        (_term("zone", "Lt", "1"), False),
        (_term("app", "In", "web"), True),
        (_term("app", "In"), False),
        (_term("zone", "NotIn", "a"), True),
        (_term("zone", "Unheard"), False),
        (_field("In", "n1"), True),
        (_field("NotIn", "n1"), False),
        (_field("NotIn", "n2"), True),
        (_field("In", "n1", "n2"), False),
        (_field("Exists"), False),
        (_field("In", "n1", key="metadata.uid"), False),
    ],
)
def test_node_selector_terms(term: NodeSelectorTerm, expected: bool) -> None:
    assert match_node_selector_term(term, WEB, "n1") is expected


def test_node_selector_terms_are_alternatives() -> None:
    good, bad = _term("app", "Exists"), _term("zone", "Exists")
    assert match_node_selector(NodeSelector(node_selector_terms=[bad, good]), WEB, "n1")
    assert not match_node_selector(NodeSelector(node_selector_terms=[bad]), WEB, "n1")
    assert not match_node_selector(NodeSelector(), WEB, "n1")


TAINT = Taint(key="gpu", value="5", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="gpu", value="5"), True),
        (Toleration(key="gpu", value="5", operator="Equal", effect="NoSchedule"), True),
        (Toleration(key="gpu", value="6"), False),
        (Toleration(key="gpu"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(key="gpu", operator="Gt", value="4"), True),
        (Toleration(key="gpu", operator="Gt", value="5"), False),
        (Toleration(key="gpu", operator="Lt", value="6"), True),
        (Toleration(key="gpu", operator="Lt", value="x"), False),
        (Toleration(key="gpu", operator="Maybe"), False),
    ],
)
def test_tolerations(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


def test_the_first_untolerated_taint_is_found() -> None:
    soft = Taint(key="a", effect="PreferNoSchedule")
    hard = Taint(key="b", effect="NoExecute")
    assert find_untolerated([soft, hard], []) is hard
    assert find_untolerated([soft], []) is None
    assert find_untolerated([soft], [], effects=["PreferNoSchedule"]) is soft
    assert find_untolerated([hard], [Toleration(key="b", operator="Exists")]) is None


@given(st.text(max_size=30))
def test_any_text_is_either_a_selector_or_an_error(text: str) -> None:
    for parse in (parse_label_selector, parse_field_selector):
        try:
            parse(text)
        except SelectorError as error:
            assert str(error)


_REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from("abc"),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Other")),
    st.lists(st.sampled_from(("", "1", "2", "3", "x")), min_size=1, max_size=3).map(
        lambda values: tuple(sorted(set(values)))
    ),
)


@given(
    st.lists(_REQUIREMENTS, min_size=5, max_size=9, unique=True),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from(("", "1", "2", "3", "x"))),
)
def test_a_long_selector_matches_what_all_its_requirements_match(
    requirements: list[Requirement], labels: dict[str, str]
) -> None:
    selector = Selector(tuple(requirements))
    assert selector.matches(labels) is all(each.matches(labels) for each in requirements)


class _Counted(dict[str, str]):
    """Labels that count how often they are looked at."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


@pytest.mark.parametrize(
    "text",
    [
        ",".join(f"!k{n}" for n in range(5_000)),
        ",".join(f"k{n}!=v" for n in range(5_000)),
        ",".join(f"app!=v{n}" for n in range(5_000)),
        ",".join(f"k{n}" for n in range(5_000)),
        f"app notin ({','.join(f'v{n}' for n in range(5_000))})",
    ],
)
def test_what_labels_cost_to_match_does_not_depend_on_the_length_of_the_selector(text: str) -> None:
    labels = _Counted(WEB)
    parse_label_selector(text).matches(labels)
    assert labels.looks <= len(WEB)
