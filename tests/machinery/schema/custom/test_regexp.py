"""Regular expressions of schemas: Go's syntax, Go's words, linear time."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.widgets import widget_crd
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.machinery.schema.custom.regexp import BadPattern, TooCostly, compiled
from holdfast.machinery.validation.kinds import check_values


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^a+$", ["a", "aaa"], ["", "ab", "a\n"]),
        ("b", ["abc"], ["ac"]),
        ("^(a|bc|d)*$", ["", "abcd", "bcbc"], ["b", "ac"]),
        ("^a{2,3}$", ["aa", "aaa"], ["a", "aaaa"]),
        ("^a{2}b{0,1}c{1,}$", ["aac", "aabcc"], ["aab", "abc"]),
        ("^x{,2}$", ["x{,2}"], ["", "xx"]),
        ("^[a-c_.-]+$", ["a-b.c_"], ["d", ""]),
        ("^[]a]$", ["]", "a"], ["b"]),
        ("^[^]a]$", ["b", "\n"], ["]", "a"]),
        ("^[[:alpha:][:digit:]]+\\z", ["a1Z"], ["a-", ""]),
        ("^[[:^digit:]]$", ["a"], ["1"]),
        ("^\\d\\D\\w\\W\\s\\S$", ["1a_- x"], ["a1_- x"]),
        ("^[\\w.-]+$", ["a_.-9"], ["a/b"]),
        ("^\\pL\\p{Lu}\\PL\\p{Greek}$", ["éÉ1α"], ["1É1α", "éé1α"]),
        ("(?i)^straße[k]$", ["STRAßEK", "straßek"], ["strasek"]),
        ("(?i:A)b", ["ab", "Ab"], ["aB"]),
        ("^a.b$", ["axb"], ["a\nb"]),
        ("(?s)^a.b$", ["a\nb"], ["ab"]),
        ("(?m)^b$", ["a\nb\nc"], ["a\nbc"]),
        ("\\bfoo\\b", ["a foo b", "foo"], ["afoo", "foob"]),
        ("^\\x41\\x{42}\\103\\.\\Qa.*\\E$", ["ABC.a.*"], ["ABC.abb"]),
        ("^(?P<first>a)(?<second>b)(?:c)$", ["abc"], ["ab"]),
        ("^(a*)*$", ["", "aaaa"], ["b"]),
        ("^a*?b+?c??$", ["b", "aabbc"], ["a"]),
        ("", ["", "x"], []),
        ("a||b", ["", "x"], []),
    ],
)
def test_what_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    expression = compiled(pattern)
    assert [text for text in yes if not expression.search(text)] == []
    assert [text for text in no if expression.search(text)] == []


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){100}", "invalid repeat count: `{100}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=a)b", "invalid named capture: `(?<=a)b`"),
        ("(a)\\1", "invalid escape sequence: `\\1`"),
        ("\\Z", "invalid escape sequence: `\\Z`"),
        ("a\\", "trailing backslash at end of expression"),
        ("[b-a]", "invalid character class range: `b-a`"),
        ("[[:nope:]]", "invalid character class range: `[:nope:]`"),
        ("\\p{Nope}", "invalid character class range: `\\p{Nope}`"),
        ("(" * 1001 + ")" * 1001, "expression nests too deeply"),
        ("(abcdefghij){1000}" * 10, "expression too large"),
    ],
)
def test_what_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(BadPattern) as error:
        compiled(pattern)
    assert str(error.value).startswith(f"error parsing regexp: {message}")
    crd = widget_crd()
    schema = {"type": "object", "properties": {"spec": {"type": "string", "pattern": pattern}}}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    type = Catalogue().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert type is not None
    (problem,) = check_values(type, crd)
    why = "must be a valid regular expression, but isn't: error parsing regexp: "
    assert why in problem.text
    (served,) = Catalogue().add_crd(crd)
    assert check_values(served, {"spec": "x"}) == [], "one kept from before is not checked"


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a*)*b", "(a|a)*b", "(.*)(.*)(.*)(.*)(.*)x$", "(a?){500}a{500}b"]
)
def test_backtracking_is_none(pattern: str) -> None:
    """Where an engine tries one way after another, these take exponential time, or nearly."""
    assert not compiled(pattern).search("a" * 5000 + "!")


def test_a_text_too_costly_to_match_does_not_match() -> None:
    pattern = "(a|b)*a" + "(a|b)" * 900 + "c"
    letters = Random(1)
    text = "".join(letters.choice("ab") for _ in range(40_000))
    with pytest.raises(TooCostly):
        compiled(pattern).search(text)
    crd = widget_crd()
    schema = {"type": "object", "properties": {"spec": {"type": "string", "pattern": pattern}}}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    (served,) = Catalogue().add_crd(crd)
    (problem,) = check_values(served, {"spec": text})
    assert problem.text.endswith(f"spec in body should match '{pattern}'")


ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "\\w", "\\b", "(?:a|b)", "(a*)", "a{1,2}", "b?", "a+", "|", "[a-]"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ATOMS, max_size=6).map("".join), st.text("ab-_ ", max_size=8))
def test_where_both_mean_the_same_it_agrees_with_python(pattern: str, text: str) -> None:
    expected = re.compile(pattern, re.ASCII).search(text) is not None
    assert compiled(pattern).search(text) == expected
