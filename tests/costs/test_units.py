"""Quantities as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetnet.costs.units import parse, scales, show
from budgetnet.errors import UserError
from tests.random_graphs import examples

UNITS = ("macs", "params", "steps", "", "B", "s", "J")


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("40.9M", "macs", 40.9e6),
        ("40.9 Mmacs", "macs", 40.9e6),
        ("273258", "params", 273258),
        (".27M", "params", 0.27e6),
        ("2.", "params", 2),
        ("20", "steps", 20),
        ("20 steps", "steps", 20),
        ("1e3", "", 1000),
        ("1.5E-2", "", 0.015),
        ("2G", "macs", 2e9),
        ("2T", "macs", 2e12),
        ("500kB", "B", 500_000),
        ("500KB", "B", 500_000),
        ("500 kB", "B", 500_000),
        ("1MB", "B", 1e6),
        ("1MiB", "B", 2**20),
        ("1KiB", "B", 1024),
        ("7B", "B", 7),
        ("12ms", "s", 0.012),
        ("12 ms ", "s", 0.012),
        ("3us", "s", 3e-6),
        ("3µs", "s", 3e-6),
        ("2s", "s", 2),
        ("3J", "J", 3),
        ("3mJ", "J", 0.003),
        ("-3", "", -3),
    ],
)
def test_quantities_are_read_in_the_base_unit(text: str, unit: str, value: float) -> None:
    assert parse(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", "macs"),
        ("M", "macs"),
        ("12ms", "macs"),
        ("12", "s"),
        ("12", "B"),
        ("500kb", "B"),
        ("12 m s", "s"),
        ("1,5", "macs"),
        ("nan", ""),
        ("inf", ""),
        ("0x10", ""),
        ("12mB", "B"),
        ("40m", "macs"),
        ("1MiB", "s"),
        ("1__0", ""),
    ],
)
def test_what_is_no_quantity_of_the_unit_is_refused_with_the_suffixes_that_there_are(text: str, unit: str) -> None:
    with pytest.raises(UserError) as error:
        parse(text, unit)
    assert repr(text.strip()) in str(error.value)
    assert all((suffix or "none") in str(error.value) for suffix in scales(unit))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (40_899_200, "macs", "40.90M"),
        (273_258, "params", "273.3k"),
        (20, "steps", "20"),
        (0, "steps", "0"),
        (1_093_032, "B", "1.093 MB"),
        (999, "B", "999 B"),
        (0.012, "s", "12.00 ms"),
        (0.0000031, "s", "3.100 µs"),
        (1.5, "s", "1.500 s"),
        (0.25, "", "0.2500"),
        (35_613_551_808, "macs", "35.61G"),
        (math.inf, "s", "inf s"),
        (math.nan, "", "nan"),
    ],
)
def test_quantities_are_shown_with_four_digits(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


@given(st.floats(1e-12, 1e14), st.sampled_from(UNITS))
@examples(300)
def test_what_is_shown_can_be_read_back(value: float, unit: str) -> None:
    assert parse(show(value, unit), unit) == pytest.approx(value, rel=6e-4)


@given(st.integers(0, 999), st.sampled_from(UNITS))
@examples(60)
def test_small_whole_numbers_are_shown_exactly(value: int, unit: str) -> None:
    assert parse(show(value, unit), unit) == value


@given(st.floats(1e-6, 1e6), st.sampled_from(UNITS))
@examples(100)
def test_every_suffix_is_a_factor(value: float, unit: str) -> None:
    for suffix, factor in scales(unit).items():
        assert parse(f"{value!r}{suffix}", unit) == pytest.approx(value * factor)
