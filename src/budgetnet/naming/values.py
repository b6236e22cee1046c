"""Plain values, as JSON and TOML have them, made into frozen dataclasses: every field is checked by its type hint.

A class needs no code for this: its annotations say what a field may be. `Annotated[float, Range(0, 1)]` limits a
number; a field with a default may be left out; keys that a class does not have are ignored, as later versions add some.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from budgetnet.errors import UserError

T = TypeVar("T")

REMEDY = "restore the file or run again"
LARGEST_INTEGER = 2**63 - 1
LONGEST_SHOWN = 200
"""Characters of other people's text that a message, a table or a chart shows."""

_WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "null"}
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Unicode categories that move the cursor, reverse the reading direction, or cannot be written at all."""


@dataclass(frozen=True)
class Range:
    """Limits of a number, both included: `Annotated[float, Range(0, 1)]`. NaN is refused unless `nan` allows it."""

    low: float = -math.inf
    high: float = math.inf
    nan: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high or (self.nan and math.isnan(value))


@dataclass(frozen=True)
class NoneIfNotFinite:
    """Reads NaN and infinities as None: `Annotated[float | None, NoneIfNotFinite()]`, for scores of broken training."""


class _Misfit(Exception):  # noqa: N818
    """The path of the field that is wrong, and what is wrong with it."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def typed(value: Any, kind: type[T], where: str, remedy: str = REMEDY) -> T:
    """Makes a value of a type from a plain value, and names the field that does not fit.

    Args:
        value: What a JSON or TOML parser returned.
        kind: A dataclass, or any type that annotates a field of one: `bool`, `int`, `float`, `str`, a `Literal`, a
            union with None, `tuple[X, ...]`, `Mapping[str, X]`, `Annotated[X, Range(low, high)]`, `Any`.
        where: The file (or other place) that the value is from; it begins the message.
        remedy: What the user should do about a value that does not fit.

    Returns:
        The value, with whole numbers made floats where the type asks for that. A number that is not finite is refused
        unless a `Range` includes it, or `NoneIfNotFinite` makes it None.

    Raises:
        UserError: "summary.json: budgets[0].maximum is a text, not a number; restore the file or run again".
    """
    try:
        return typing.cast("T", _made(value, kind, ""))
    except _Misfit as misfit:
        field = f"{misfit.path.removeprefix('.')} " if misfit.path else ""
        raise UserError(f"{where}: {field}{misfit.message}; {remedy}") from None


def plain(value: Any) -> Any:
    """A dataclass, with all that it holds, as a plain value for JSON: the inverse of `typed`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def printable(text: object, longest: int = LONGEST_SHOWN) -> str:
    """Other people's text for a terminal, a chart or a page: one line, bounded, without characters that act.

    Control characters, reversed reading directions and half surrogates become `�`; line breaks and tabs become spaces.
    """
    short = str(text)[: longest + 1]
    if short.isprintable() and len(short) <= longest:
        return short
    kept = "".join(_shown(character) for character in short)
    return kept if len(short) <= longest else f"{kept[: longest - 1]}…"


def _shown(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return "\ufffd" if unicodedata.category(character) in _HIDDEN else character


def _made(value: Any, kind: Any, path: str) -> Any:
    if kind is Any or kind is object:
        return value
    if dataclasses.is_dataclass(kind):
        return _instance(value, typing.cast("type", kind), path)
    origin = typing.get_origin(kind)
    if origin is None:
        return _scalar(value, kind, path)
    return _SHAPES[origin](value, typing.get_args(kind), path)


def _instance(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, Mapping):
        raise _Misfit(path, f"is {named(value)}, not an object with fields")
    arguments: dict[str, Any] = {}
    hints = _hints(kind)
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        if field.name in value:
            arguments[field.name] = _made(value[field.name], hints[field.name], f"{path}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _Misfit(f"{path}.{field.name}", "is missing")
    return kind(**arguments)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _scalar(value: Any, kind: Any, path: str, limits: Range | None = None) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= LARGEST_INTEGER else math.inf
    if type(value) is not kind:
        raise _Misfit(path, f"is {named(value)}, not {wanted(kind)}")
    if kind is int and abs(value) > LARGEST_INTEGER:
        raise _Misfit(path, "is a number of too many digits")
    if limits is not None and value not in limits:
        raise _Misfit(path, f"is {value:g}, not a number from {limits.low:g} to {limits.high:g}")
    if kind is float and limits is None and not math.isfinite(value):
        raise _Misfit(path, f"is {value:g}, not a finite number")
    return value


def _annotated(value: Any, arguments: tuple[Any, ...], path: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        value = None if any(isinstance(note, NoneIfNotFinite) for note in arguments[1:]) else value
    limits = next((note for note in arguments[1:] if isinstance(note, Range)), None)
    if limits is None or arguments[0] not in (int, float):
        return _made(value, arguments[0], path)
    return _scalar(value, arguments[0], path, limits)


def _union(value: Any, arguments: tuple[Any, ...], path: str) -> Any:
    choices = [choice for choice in arguments if choice is not type(None)]
    if value is None and len(choices) < len(arguments):
        return None
    misfits: list[_Misfit] = []
    for choice in choices:
        try:
            return _made(value, choice, path)
        except _Misfit as misfit:
            misfits.append(misfit)
    if len(misfits) == 1:
        raise misfits[0]
    kinds = " or ".join(wanted(choice) for choice in choices)
    raise _Misfit(path, f"is {named(value)}, not {kinds}")


def _items(value: Any, arguments: tuple[Any, ...], path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _Misfit(path, f"is {named(value)}, not a list")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_made(item, arguments[0], f"{path}[{i}]") for i, item in enumerate(value))
    if len(value) != len(arguments):
        raise _Misfit(path, f"has {len(value)} entries, not {len(arguments)}")
    return tuple(_made(item, kind, f"{path}[{i}]") for i, (item, kind) in enumerate(zip(value, arguments, strict=True)))


def _mapping(value: Any, arguments: tuple[Any, ...], path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Misfit(path, f"is {named(value)}, not an object with fields")
    return {str(key): _made(item, arguments[1], f"{path}.{printable(key, 40)}") for key, item in value.items()}


def _literal(value: Any, arguments: tuple[Any, ...], path: str) -> Any:
    if not any(value == choice and type(value) is type(choice) for choice in arguments):
        raise _Misfit(path, f"is {named(value)}, not one of: {', '.join(map(str, arguments))}")
    return value


_SHAPES: dict[Any, Callable[[Any, tuple[Any, ...], str], Any]] = {
    typing.Annotated: _annotated,
    typing.Union: _union,
    types.UnionType: _union,
    tuple: _items,
    dict: _mapping,
    Mapping: _mapping,
    typing.Literal: _literal,
}


def named(value: Any) -> str:
    """What a plain value is, in words: `a text`, `a list`, `the number nan`."""
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Mapping):
        return "an object with fields"
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value}"
    return _WANTED.get(type(value), f"a {type(value).__name__}")


def wanted(kind: Any) -> str:
    """What a type asks for, in words."""
    if typing.get_origin(kind) is typing.Annotated:
        return wanted(typing.get_args(kind)[0])
    if typing.get_origin(kind) is tuple:
        return "a list"
    return _WANTED.get(kind, "an object with fields")
