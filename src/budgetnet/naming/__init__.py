"""Names that a user writes: `name:key=value,…` for built-in things, `package.module:name` for their own code.

Objects named as `package.module:name` are the only code that is loaded by name, and only where the user names them: on
the command line of this process, or as an argument in Python. A file may name built-in things alone.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from budgetnet.errors import UserError, reason, user_code


def split_name(text: str, known: Iterable[str]) -> tuple[str, str]:
    """Parts a name from its options; a user's own `package.module:name` keeps its colon."""
    first, _, rest = text.partition(":")
    if first in known or not rest or "=" in rest.split(":", 1)[0]:
        return first, rest
    second, _, options = rest.partition(":")
    return f"{first}:{second}", options


_OWN = re.compile(r"\s*([^\W\d][\w.]*:[^\W\d]\w*)(?!\w|\s*=)")
_OWN_TARGET = re.compile(r"[(,]\s*target\s*=\s*([^\s,()<≤]+)")
_OWN_RUNTIME = re.compile(r"[(,]\s*runtime\s*=\s*([^\W\d][\w.]*:[^\W\d]\w*)\s*[,)]")


def own_names(*texts: str) -> frozenset[str]:
    """The `package.module:name` that each of these texts begins with or has as its runtime, and its target.

    That is the code which may be loaded, and the addresses which may be sent networks and a token.

    Args:
        texts: Spaces, costs or budgets as the user wrote them on the command line or gave them in Python; texts from
            files must not be passed.

    Returns:
        Names for the argument `own` of everything that loads code by name.
    """
    found = (m for text in texts for m in (_OWN.match(text), _OWN_RUNTIME.search(text), _OWN_TARGET.search(text)))
    return frozenset(match[1] for match in found if match)


def load_object(name: str, what: str, known: Iterable[str], own: Collection[str] = ()) -> Callable[..., Any]:
    """The callable that `package.module:name` says, looked up in the current folder too.

    Args:
        name: As it was written.
        what: The kind of thing, for messages: "a space" or "a cost".
        known: The built-in ones, for messages.
        own: The names that the user gave to this process (`own_names`). Any other is refused, wherever it came from.

    Returns:
        The callable.
    """
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise UserError(f"{name!r} is not {what}; use {', '.join(known)}, or your own as package.module:name")
    if name not in own:
        raise UserError(
            f"{name!r} is {what} of your own, and code is loaded only where you name it, never because a file does; "
            f"add --{what.rpartition(' ')[2]} {name} on the command line, or give the object itself in Python"
        )
    with user_code(f"the module {module_name!r}", "; correct it"):
        module = _imported(module_name, f"{name!r} names {what}")
        if not hasattr(module, attribute):
            raise UserError(f"the module {module_name!r} has nothing named {attribute!r}; check {name!r}")
        found = getattr(module, attribute)
    if not callable(found):
        raise UserError(f"{name!r} is a {type(found).__name__}, {what} must be callable")
    return typing.cast("Callable[..., Any]", found)


def written_options(
    text: str, positional: Sequence[str] = (), *, commas: bool = False
) -> Iterator[tuple[str, str | None, str]]:
    """Takes `key=value,…` apart: the one parser of options of spaces, recipes, costs and data sets.

    Args:
        text: As it was written.
        positional: The keys of values that are written without one, by their place.
        commas: Whether a value may hold commas: one that begins no `key=` then belongs to the value before it.

    Yields:
        The part as it was written, its key (None if it has none), and its value.
    """
    parts = re.split(r",(?=\s*\w+\s*=)" if commas else ",", text)
    for place, part in enumerate(filter(None, (part.strip() for part in parts))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if equals:
            yield part, key, value
        else:
            yield part, positional[place] if place < len(positional) else None, part


def _imported(name: str, who: str) -> ModuleType:
    """A module of the user's; the current folder is on the path for as long as it is imported, and no longer."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (ImportError, ValueError, TypeError) as error:
        raise UserError(f"{who} in a module that cannot be imported: {reason(error)}; check the name") from None
    finally:
        with suppress(ValueError):
            sys.path.remove(here)


def parameters(function: Callable[..., Any], owner: str) -> tuple[str, ...]:
    """The names of a callable's parameters; one that does not tell them is refused."""
    return tuple(_signature(function, owner).parameters)


def _signature(function: Callable[..., Any], owner: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        raise UserError(f"{owner} has no signature to call it by; wrap it in a function of your own") from None


def keyword_arguments(
    function: Callable[..., Any], text: str, owner: str, reserved: Sequence[str] = ()
) -> dict[str, Any]:
    """`width=3,task=segmentation` as arguments of a function, converted to the types that it declares.

    A parameter without a declared type has that of its default: `def build(width=8)` takes a whole number.
    """
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # annotations may name what is not there when they are looked up
        hints = {}
    declared = _signature(function, owner).parameters
    kinds = {name: hints.get(name, type(declared[name].default)) for name in declared if name not in reserved}
    return typed_options(text, kinds, owner)


def typed_options(text: str, kinds: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """`width=3,task=segmentation` as values of the kinds that are expected under these names."""
    arguments: dict[str, Any] = {}
    for part, key, value in written_options(text):
        if key is None or key not in kinds:
            options = ", ".join(kinds) or "nothing"
            raise UserError(f"{owner} has no option {part!r}; write name=value with a name of: {options}")
        if key in arguments:
            raise UserError(f"{owner} is given {key} twice; keep one")
        arguments[key] = convert(value, kinds[key], f"{key} of {owner}")
    return arguments


def convert(value: str, kind: Any, where: str) -> Any:
    """A written value as an int, a float, a bool or a text; `none` where None is a choice."""
    choices = typing.get_args(kind)
    if type(None) in choices:
        if value.lower() == "none":
            return None
        kind = next(choice for choice in choices if choice is not type(None))
    try:
        if kind is bool:
            return {"true": True, "false": False, "yes": True, "no": False}[value.lower()]
        return kind(value) if kind in (int, float) else value
    except (ValueError, KeyError):
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        raise UserError(f"{where} is {names[kind]}, not {value!r}; correct it") from None
