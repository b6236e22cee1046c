"""Plain values become dataclasses by their type hints; what does not fit is named by its path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from budgetnet.errors import UserError
from budgetnet.naming.values import NoneIfNotFinite, Range, plain, printable, typed


@dataclass(frozen=True)
class Inner:
    share: Annotated[float, Range(0, 1)]
    mode: Literal["min", "max"] = "max"


@dataclass(frozen=True)
class Outer:
    name: str
    count: int
    met: bool
    score: Annotated[float | None, NoneIfNotFinite()]
    limit: float | None
    inner: tuple[Inner, ...]
    phases: Mapping[str, float] = field(default_factory=dict)
    either: int | str = 0
    bound: Annotated[float, Range()] = 0.0
    shape: tuple[int, int] = (1, 1)
    rest: Any = None


GOOD = {
    "name": "a",
    "count": 3,
    "met": True,
    "score": 0.5,
    "limit": None,
    "inner": [{"share": 1}],
    "phases": {"search": 2},
}


def made(**changes: Any) -> Outer:
    return typed({**GOOD, **changes}, Outer, "some.json")


def test_a_value_with_a_type_goes_to_json_and_back() -> None:
    value = made(rest={"free": [1]}, shape=[2, 3])
    assert value == Outer("a", 3, True, 0.5, None, (Inner(1.0),), {"search": 2.0}, 0, 0.0, (2, 3), {"free": [1]})
    assert typed(plain(value), Outer, "again") == value
    assert type(value.inner[0].share) is float, "a whole number is made a float where the type says so"


def test_unknown_keys_are_left_out_and_defaults_fill_in() -> None:
    assert made(later_version=1) == made()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "name is a whole number, not a text"),
        ({"name": None}, "name is null, not a text"),
        ({"count": 1.5}, "count is a number, not a whole number"),
        ({"count": True}, "count is true or false, not a whole number"),
        ({"count": 10**400}, "count is a number of too many digits"),
        ({"met": 1}, "met is a whole number, not true or false"),
        ({"score": "high"}, "score is a text, not a number"),
        ({"score": 10**400}, "score is inf, not a finite number"),
        ({"limit": math.nan}, "limit is nan, not a finite number"),
        ({"inner": 1}, "inner is a whole number, not a list"),
        ({"inner": {}}, "inner is an object with fields, not a list"),
        ({"inner": [[]]}, "inner[0] is a list, not an object with fields"),
        ({"inner": [{}]}, "inner[0].share is missing"),
        ({"inner": [{"share": 1}, {"share": "x"}]}, "inner[1].share is a text, not a number"),
        ({"inner": [{"share": 1.5}]}, "inner[0].share is 1.5, not a number from 0 to 1"),
        ({"inner": [{"share": math.nan}]}, "inner[0].share is nan, not a number from 0 to 1"),
        ({"inner": [{"share": 1, "mode": "mean"}]}, "inner[0].mode is a text, not one of: min, max"),
        ({"phases": {"search": math.inf}}, "phases.search is inf, not a finite number"),
        ({"phases": []}, "phases is a list, not an object with fields"),
        ({"either": 1.5}, "either is a number, not a whole number or a text"),
        ({"bound": math.nan}, "bound is nan, not a number from -inf to inf"),
        ({"shape": [1]}, "shape has 1 entries, not 2"),
    ],
)
def test_the_field_that_is_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        made(**changes)
    assert str(error.value) == f"some.json: {message}; restore the file or run again"


def test_a_number_that_is_none_is_none_where_that_is_a_choice() -> None:
    assert made(score=math.nan).score is None
    assert made(bound=math.inf).bound == math.inf


def test_a_whole_value_of_the_wrong_kind_is_named() -> None:
    with pytest.raises(UserError, match=r"^some.json: is a list, not an object with fields; add it$"):
        typed([], Outer, "some.json", "add it")


def test_text_of_others_is_one_bounded_line_without_characters_that_act() -> None:
    assert printable("caf\u00e9 [/b] 猫 😀") == "café [/b] 猫 😀"
    assert printable("a\x1b[31mb\x00\u202ec\ud800\u2028") == "a\ufffd[31mb\ufffd\ufffdc\ufffd\ufffd"
    assert printable("one\ntwo\tthree\r") == "one two three "
    assert printable("x" * 201) == "x" * 199 + "…"
    assert printable("x" * 200) == "x" * 200
    assert printable(12.5) == "12.5"
