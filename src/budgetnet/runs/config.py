"""One frozen configuration of a run; Python, the command line and TOML are three faces of it."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.files import read_toml
from budgetnet.records.folder import RunFolder
from budgetnet.strategies.recipes import PER_EXAMPLE, Recipe, choose, fixed

DEVICES = ("auto", "cpu", "cuda")
MAX_SEED = 2**32 - 1
DEMO_EPOCHS = 8
"""For the embedded data: a result in about two minutes on two cores."""


@dataclass(frozen=True)
class Config:
    """What a run was asked to do. `None` leaves a choice to the recipe, the data or the machine."""

    space: str = "resnet-fabric:width=3,channels=8"
    data: str = "embedded"
    data_root: str | None = None
    budgets: tuple[str, ...] = ("macs<=40%",)
    costs: tuple[str, ...] = ()
    recipe: str = "fast"
    epochs: float | None = None
    groups: int | None = None
    batch_size: int | None = None
    penalty: float | None = None
    seed: int = 0
    max_time: float | None = None
    device: str = "auto"
    threads: int | None = None
    architecture: str | None = None
    """Train this one instead of searching."""

    def __post_init__(self) -> None:
        _positive("groups", self.groups)
        _positive("batch-size", self.batch_size)
        _positive("threads", self.threads)
        _positive("max-time", self.max_time)
        if self.penalty is not None and not self.penalty >= 0:
            raise UserError(f"a penalty of {self.penalty} would reward cost; give 0 or more")
        if not 0 <= self.seed <= MAX_SEED:
            raise UserError(f"the seed {self.seed} is out of range; give a whole number from 0 to {MAX_SEED}")
        if self.device not in DEVICES:
            raise UserError(f"there is no device {self.device!r}; use {', '.join(DEVICES)}")
        if self.architecture is None and 1 in (self.groups, self.batch_size):
            raise UserError("1 architecture per batch has no policy gradient; use 2 groups and examples or more")
        if not self.budgets and self.architecture is None:
            raise UserError('no budget was given; write at least one, such as --budget "macs<=60%"')

    def make_recipe(self, task: str) -> Recipe:
        """The recipe with what this configuration changes of it."""
        epochs = self.epochs
        if epochs is None and self.recipe.partition(":")[0] == "fast" and self.data.partition(":")[0] == "embedded":
            epochs = DEMO_EPOCHS
        return self.adjusted(choose(self.recipe, epochs, task))

    def adjusted(self, recipe: Recipe) -> Recipe:
        """A recipe with the batch, the groups and the penalty of this configuration, and for its fixed architecture."""
        changes: dict[str, Any] = {}
        if self.groups is not None:
            changes["groups"] = self.groups
        if self.batch_size is not None:
            changes["batch_size"] = self.batch_size
            if recipe.groups != PER_EXAMPLE and self.groups is None:
                changes["groups"] = max(2, min(recipe.groups, self.batch_size))
        if self.penalty is not None:
            changes["penalty"] = self.penalty
        recipe = replace(recipe, **changes)
        return fixed(recipe) if self.architecture is not None else recipe

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def from_mapping(values: Mapping[str, Any], where: str) -> Config:
    """A configuration from keys and values; unknown keys and wrong types are refused with the key."""
    hints = typing.get_type_hints(Config)
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in hints:
            raise UserError(f"{where}: {key!r} is not a setting; use {', '.join(hints)}")
        arguments[name] = _converted(value, hints[name], f"{where}: {key}", name)
    return Config(**arguments)


def of_run(folder: RunFolder) -> Config:
    """The configuration that a run was started with."""
    return from_mapping(folder.origin().config, str(folder.path / "config.json"))


def from_toml(path: Path) -> dict[str, Any]:
    """The settings of a TOML file."""
    return read_toml(path)


def duration(text: str) -> float:
    """`30m`, `1h30m`, `90s` in seconds."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if match is None or not any(match.groups()):
        raise UserError(f"{text!r} is not a duration; write it as 30m, 1h30m or 90s")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _converted(value: Any, hint: Any, where: str, name: str) -> Any:
    if name == "max_time" and isinstance(value, str):
        return duration(value)
    kinds = typing.get_args(hint) or (hint,)
    if hint == tuple[str, ...]:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif isinstance(value, bool) or not isinstance(value, tuple(kinds)):
        if float in kinds and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
    else:
        return value
    raise UserError(f"{where} cannot be {value!r}; it must be {_kind(hint)}")


def _kind(hint: Any) -> str:
    if hint == tuple[str, ...]:
        return "a list of texts"
    names = {int: "a whole number", float: "a number", str: "a text"}
    kinds = typing.get_args(hint) or (hint,)
    return " or ".join(names[kind] for kind in kinds if kind in names)


def _positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        raise UserError(f"{name} {value} is out of range; give a number above zero")
