"""Seeded mutations of bytes, of JSON values and of texts: what a damaged disk or a hostile hand may leave."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

PAYLOADS = ("trap:spring", "os:system:command=touch sprung", "builtins:eval", "trap:spring(x)")
NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e308, float("nan"), float("inf"), "", "x",
    "\x1b[2J", "[/x]", "[bold]", "\x00", "a\nb", "\ud800", "\u202e", "x" * 100_000, "../../../etc/passwd", "/dev/zero",
    "²", "9" * 5000, [], {}, [[]], [None], {"": None}, {"cost": "macs"}, [1, 2, 3], *PAYLOADS,
)  # fmt: skip
PIECES = (
    "<=", "≤", "%", "(", ")", ":", ",", "=", "@", "&", " & ", ".", "..", "-", "+", "e9", "e999", "inf", "nan", "0", "1",
    "9" * 30, "²", "٣", "½", "\x00", "\x1b[31m", "\n", "\t", " ", "\u202e", "ms", "kB", "M", "J", "macs", "steps",
    "latency", "batch=999999999999", "threads=1000000", "width=99999999", "none", "true", "*" * 50, "(" * 200,
    "." * 5000, *PAYLOADS,
)  # fmt: skip


def bytes_of(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, added, removed or repeated, or the end lost."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(changed) + 1)
        kind = rng.randrange(6)
        if kind == 0 and changed:
            changed[place % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[place:]
        elif kind == 2:
            del changed[place : place + rng.randrange(1, 64)]
        elif kind == 3:
            changed[place:place] = rng.randbytes(rng.randrange(1, 16))
        elif kind == 4:
            changed[place:place] = changed[place : place + 64]
        else:
            changed[place : place + 8] = rng.choice((b"\xff" * 8, b"\0" * 8, b"\xff\xfe", b"[" * 2000, b'"'))
    return bytes(changed)


def value_of(value: Any, rng: random.Random) -> Any:
    """One or two values of a JSON value replaced, removed, nested or added."""
    changed = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 2))):
        places = list(_places(changed))
        if not places:
            return _nasty(rng)
        owner, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            del owner[key]
        elif kind == 1:
            owner[key] = _nested(owner[key], rng.choice((1, 3, 40)))
        elif kind == 2 and isinstance(owner[key], str):
            owner[key] = text_of(owner[key], rng)
        elif kind == 3 and isinstance(owner, list):
            owner.append(owner[key])
        else:
            owner[key] = _nasty(rng)
    return changed


def _nasty(rng: random.Random) -> Any:
    """A value of its own: the next mutation may change it."""
    return copy.deepcopy(rng.choice(NASTY))


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, (dict, list)):
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from _places(item)


def text_of(text: str, rng: random.Random) -> str:
    """A text with pieces put in, taken out, doubled or exchanged."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        start, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:start] + rng.choice(PIECES) + text[start:]
        elif kind == 1:
            text = text[:start] + text[end:]
        elif kind == 2:
            text = text[:start] + rng.choice(PIECES) + text[end:]
        else:
            text = text[:end] + text[start:end] + text[end:]
    return text
