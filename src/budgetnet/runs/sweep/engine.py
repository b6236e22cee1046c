"""The interface between a sweep and what carries out its work: orders in, endings out, results in the run folders."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Protocol

TRAIN, TEST = "train", "test"
FINISHED, REFUSED, FAILED, INTERRUPTED = "finished", "refused", "failed", "interrupted"

Asked = Callable[[], bool]


@dataclass(frozen=True)
class Order:
    """Work for one process: a run to train, or finished runs to judge on their test data."""

    name: str
    kind: str
    work: tuple[tuple[str, dict[str, Any]], ...]
    """Folders and configurations."""
    command: str = ""
    """What the user wrote, for the folders."""
    own: tuple[str, ...] = ()
    """Names of the user's own code, as the sweep's command line gave them."""

    def to_json(self, **settings: Any) -> str:
        """One line, with what an engine adds: threads, the current folder."""
        return json.dumps({**asdict(self), "version": code_version(), **settings})


@dataclass(frozen=True)
class Ending:
    """How an order ended: finished, refused (before any training), failed, or interrupted with its state saved."""

    name: str
    state: str
    message: str = ""


class Engine(Protocol):
    """Carries out orders, as many at a time as there are slots."""

    @property
    def slots(self) -> int:
        """Orders at a time."""
        ...

    def carry_out(self, orders: Sequence[Order], should_stop: Asked) -> Iterator[Ending]:
        """Each order's ending, as they come. Once `should_stop` says so, what runs is saved and nothing is begun."""
        ...


def code_version() -> str:
    """The version of the code that runs; in a checkout it may differ from the one that was installed."""
    code = str(importlib.import_module("budgetnet").__version__)
    try:
        installed = metadata.version("budgetnet")
    except metadata.PackageNotFoundError:
        return code
    return code if code == installed else f"{code} (installed as {installed})"
