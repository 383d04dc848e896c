"""Kubernetes quantities."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.strategies import quantity_texts
from holdfast.api import quantity
from holdfast.api.quantity import MAX_AMOUNT, NANO, QuantityError, shown


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("100m", 100_000_000),
        ("1.5Gi", 1610612736 * NANO),
        ("1e3", 1000 * NANO),
        ("1E3", 1000 * NANO),
        ("1e-3", 1_000_000),
        ("1E", 10**18 * NANO),
        ("1Ei", 2**60 * NANO),
        ("1n", 1),
        ("1u", 1000),
        ("0.1", NANO // 10),
        (".5", NANO // 2),
        ("5.", 5 * NANO),
        ("5.Ki", 5120 * NANO),
        ("+1", NANO),
        ("-1", -NANO),
        ("-0.5k", -500 * NANO),
        ("007", 7 * NANO),
        ("0.5n", 1),
        ("-0.5n", -1),
        ("0.0000000001", 1),
        (3, 3 * NANO),
        (0.1, NANO // 10),
        (1e20, MAX_AMOUNT * NANO),
        (2.0, 2 * NANO),
    ],
)
def test_parses_to_exact_nano_units(text: Any, nano: int) -> None:
    assert quantity.parse(text) == nano


@pytest.mark.parametrize(
    "text",
    (
        *("1K", " 1", "1 ", "1\n", "１", "1KiB", "", "1e3m", "1e", "Ki", ".", "+", "1.2.3", "1i"),
        *("0x1", "1_000", "e3", "1ki", "--1", "nan", "inf", "1e1.5", "9" * 5000),
    ),
)
def test_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError):
        quantity.parse(text)


@pytest.mark.parametrize("value", [True, False, None, [], {}, float("nan"), float("inf")])
def test_refuses_what_is_no_number(value: Any) -> None:
    with pytest.raises(QuantityError):
        quantity.parse(value)


def test_error_shows_the_expected_form_and_what_was_given() -> None:
    with pytest.raises(QuantityError, match=r"regular expression .*'1 Gi'"):
        quantity.parse("1 Gi")


@pytest.mark.parametrize("text", ["1e999999999", "1e30", "9" * 50, "9999Ei", "1e" + "9" * 500])
def test_absurdly_large_is_capped_without_being_computed(text: str) -> None:
    if len(text) > 400:
        assert quantity.parse(text) == MAX_AMOUNT * NANO
    assert quantity.whole(text) == MAX_AMOUNT
    assert quantity.milli(text) == MAX_AMOUNT


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [("1", 1000, 1), ("1m", 1, 1), ("1.5m", 2, 1), ("1n", 1, 1), ("-1.5", -1500, -2), ("0", 0, 0)],
)
def test_rounds_up(text: str, milli: int, whole: int) -> None:
    assert (quantity.milli(text), quantity.whole(text)) == (milli, whole)


def test_cpu_counts_in_milli_and_the_rest_in_whole_units() -> None:
    assert quantity.amount("cpu", "1.5") == 1500
    assert quantity.amount("memory", "1Ki") == 1024
    assert quantity.amount("nvidia.com/gpu", 2) == 2


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 500, "500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("cpu", 1001, "1001m"),
        ("memory", 4 * 2**30, "4Gi"),
        ("memory", 1536 * 2**20, "1536Mi"),
        ("memory", 1000, "1k"),
        ("memory", 128 * 10**6, "128M"),
        ("memory", 1024000, "1000Ki"),
        ("memory", 0, "0"),
        ("memory", -(2**20), "-1Mi"),
        ("ephemeral-storage", 2**10, "1Ki"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("nvidia.com/gpu", 1024, "1024"),
        ("pods", 110, "110"),
    ],
)
def test_formats_canonically(resource: str, amount: int, text: str) -> None:
    assert quantity.format_amount(resource, amount) == text


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 2**60))
def test_what_is_formatted_reads_back(resource: str, amount: int) -> None:
    assert quantity.amount(resource, quantity.format_amount(resource, amount)) == amount


@given(quantity_texts())
def test_agrees_with_rational_arithmetic(text: str) -> None:
    exact = _by_fractions(text) * NANO
    expected = -(-exact.numerator // exact.denominator)
    assert quantity.parse(text) == min(expected, MAX_AMOUNT * NANO)


def _by_fractions(text: str) -> Fraction:
    binary = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    decimal = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12}
    for suffix, factor in binary.items():
        if text.endswith(suffix):
            return Fraction(text[:-2].rstrip(".") or "0") * factor
    for suffix, power in decimal.items():
        if text.endswith(suffix):
            return Fraction(text[:-1].rstrip(".") or "0") * Fraction(10) ** power
    number, _, exponent = text.lower().partition("e")
    return Fraction(number.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0)


def test_the_most_that_is_counted_is_shown_as_such() -> None:
    assert shown("memory", 16 * 10**18) == "32Pi or more"
    assert shown("memory", 2**54) == "16Pi"
