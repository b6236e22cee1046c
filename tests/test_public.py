"""The public interface explains itself: arguments and returns in the docstrings of everything that a user calls."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import budgetnet

IMPLICIT = {"self", "cls", "args", "kwargs"}


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions of the package and public methods of its classes, by name."""
    for name in budgetnet.__all__:
        found = getattr(budgetnet, name)
        if inspect.ismodule(found):
            for part in found.__all__:
                if inspect.isfunction(getattr(found, part)):
                    yield f"{name}.{part}", getattr(found, part)
        elif inspect.isclass(found):
            for method, value in vars(found).items():
                value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
                if not method.startswith("_") and inspect.isfunction(value):
                    yield f"{name}.{method}", value
        else:
            yield name, found


@pytest.mark.parametrize(("name", "function"), list(public()), ids=[name for name, _ in public()])
def test_a_docstring_has_every_argument_and_what_is_returned(name: str, function: Callable[..., Any]) -> None:
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    asked = [argument for argument in signature.parameters if argument not in IMPLICIT]
    assert text, f"{name} has no docstring"
    assert [argument for argument in asked if f"{argument}:" not in text] == []
    if asked and signature.return_annotation not in (None, "None"):
        assert "Returns:" in text


@pytest.mark.parametrize("name", [name for name in budgetnet.__all__ if inspect.isclass(getattr(budgetnet, name))])
def test_a_class_says_what_it_is_made_of(name: str) -> None:
    found = getattr(budgetnet, name)
    made = found if dataclasses.is_dataclass(found) else found.__init__
    asked = [] if made is object.__init__ or issubclass(found, Exception) else list(inspect.signature(made).parameters)
    text = inspect.getdoc(found) or ""
    assert text
    assert [argument for argument in asked if argument not in IMPLICIT and f"{argument}:" not in text] == []
