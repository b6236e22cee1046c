"""One frozen configuration of a run; Python, the command line and TOML are three faces of it."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.files import read_toml
from budgetnet.naming.values import printable, typed
from budgetnet.records.folder import RunFolder
from budgetnet.strategies.named import choose
from budgetnet.strategies.recipes import Strategy
from budgetnet.strategies.sampling import PER_EXAMPLE
from budgetnet.training.device import PRECISIONS, Device, check_name

MAX_SEED = 2**32 - 1
MOST_THREADS = 1024
"""More than any machine has cores: some thousands of threads end the process of torch without a message."""
FRESH = "fast"
"""The recipe for fresh weights."""
OPTIMIZATION = ("optimizer", "lr", "weight_decay", "schedule", "clip")
"""Settings of the optimizer."""
DEMO_EPOCHS = 8
"""For the embedded data: a result in about two minutes on two cores."""


@dataclass(frozen=True)
class Config:
    """What a run was asked to do. `None` leaves a choice to the recipe, the data or the machine.

    Args:
        space: The super network or model, `name:key=value,…`, or `package.module:name` for one of the user's own.
        weights: A checkpoint for a model of the user's.
        data: The data set, `name:key=value,…`, or a folder.
        data_root: The folder with official data files.
        budgets: As they are written, such as `macs<=40%`.
        costs: Costs of the user's own, `name=package.module:name`.
        recipe: By default `trained` for trained weights, `fast` for others.
        epochs: Of the network that is found; the recipe's own number if None.
        groups: Architectures that share a batch.
        batch_size: Examples in a batch.
        penalty: λ at the beginning.
        seed: Of everything that is random.
        max_time: A limit in seconds.
        device: Where a run computes; `auto` takes an accelerator where there is one.
        precision: `fp32` or `bf16`.
        compile: Whether phases with a fixed network use `torch.compile`.
        sync_batch_norm: Whether batch norm of networks that all processes train together sees the shares of all of
            them.
        micro_groups: Architectures of a micro-batch of the search; by default all groups at once on a CPU, and few on
            an accelerator.
        threads: Of the computation on the CPU.
        int8_drop: The points of accuracy that an int8 file may lose, where a budget is about that file.
        optimizer: By default SGD for networks with batch norm, AdamW for others; see `strategies.optimizers`.
        lr: The largest learning rate.
        weight_decay: Of the optimizer.
        schedule: A name of `training.optimization.SCHEDULES`.
        clip: The largest norm of a gradient.
        teacher: What a network that is trained alone learns from besides its targets: self, none, a run or a weights
            file.
        architecture: Train this one instead of searching.
    """

    space: str = "resnet-fabric:width=3,channels=8"
    weights: str | None = None
    data: str = "embedded"
    data_root: str | None = None
    budgets: tuple[str, ...] = ("macs<=40%",)
    costs: tuple[str, ...] = ()
    recipe: str | None = None
    epochs: float | None = None
    groups: int | None = None
    batch_size: int | None = None
    penalty: float | None = None
    seed: int = 0
    max_time: float | None = None
    device: str = "auto"
    precision: str = "fp32"
    compile: bool = False
    sync_batch_norm: bool = False
    micro_groups: int | None = None
    threads: int | None = None
    int8_drop: float = 1.0
    optimizer: str | None = None
    lr: float | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    clip: float | None = None
    teacher: str | None = None
    architecture: str | None = None

    def __post_init__(self) -> None:
        _positive("groups", self.groups)
        _positive("batch-size", self.batch_size)
        _positive("micro-groups", self.micro_groups)
        _positive("threads", self.threads)
        _positive("max-time", self.max_time)
        if self.penalty is not None and not 0 <= self.penalty < math.inf:
            raise UserError(f"the penalty {self.penalty} is out of range; give a number from 0 on, such as 1")
        if not 0 <= self.int8_drop < math.inf:
            raise UserError(
                f"an int8 drop of {self.int8_drop} points is out of range; give a number from 0 on, such as 1"
            )
        if self.threads is not None and self.threads > MOST_THREADS:
            raise UserError(f"{self.threads} threads are too many; give at most {MOST_THREADS}")
        if not 0 <= self.seed <= MAX_SEED:
            raise UserError(f"the seed {self.seed} is out of range; give a whole number from 0 to {MAX_SEED}")
        check_name(self.device)
        if self.precision not in PRECISIONS:
            raise UserError(f"there is no precision {self.precision!r}; use {' or '.join(PRECISIONS)}")
        if self.architecture is None and 1 in (self.groups, self.batch_size):
            raise UserError("1 architecture per batch has no policy gradient; use 2 groups and examples or more")
        if not self.budgets and self.architecture is None:
            raise UserError('no budget was given; write at least one, such as --budget "macs<=60%"')

    def make_device(self) -> Device:
        """The device that this run computes on.

        Returns:
            The device; a `UserError` if this machine does not have it.
        """
        return Device.chosen(self.device, self.precision, self.compile, self.sync_batch_norm, self.micro_groups)

    def make_recipe(self, task: str, trained: bool = False) -> Strategy:
        """The recipe with what this configuration changes of it.

        Args:
            task: `classification`, `segmentation` or another name of a task.
            trained: Whether the weights are trained.

        Returns:
            The recipe.
        """
        epochs, name = self.epochs, self.recipe or ("trained" if trained else FRESH)
        if epochs is None and name.partition(":")[0] == FRESH and self.data.partition(":")[0] == "embedded":
            epochs = DEMO_EPOCHS
        return self.adjusted(choose(name, epochs, task))

    def adjusted(self, recipe: Strategy) -> Strategy:
        """A recipe with the batch, the groups and the penalty of this configuration, and for its fixed architecture.

        Args:
            recipe: Any strategy.

        Returns:
            The strategy with these changes.
        """
        changes: dict[str, Any] = {}
        if self.groups is not None:
            changes["groups"] = self.groups
        if self.batch_size is not None:
            changes["batch_size"] = self.batch_size
            if recipe.groups != PER_EXAMPLE and self.groups is None:
                changes["groups"] = max(2, min(recipe.groups, self.batch_size))
        if self.penalty is not None:
            changes["penalty"] = self.penalty
        recipe = recipe.changed(changes)
        return recipe.alone() if self.architecture is not None else recipe

    @property
    def optimization(self) -> dict[str, Any]:
        """The settings of the optimizer that were given, as `strategies.optimizers.trained_with` takes them."""
        return {name: getattr(self, name) for name in OPTIMIZATION}

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def from_mapping(values: Mapping[str, Any], where: str) -> Config:
    """Makes a configuration from keys and values.

    Args:
        values: Fields of `Config`; `-` may stand for `_`, a single text for a list of one, `30m` for a time limit.
        where: The file or the command that the values are from; it begins the message about one that is wrong.

    Returns:
        The configuration. An unknown key is refused, and so is a value of the wrong type.
    """
    known = [field.name for field in dataclasses.fields(Config)]
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UserError(f"{where}: {printable(key, 40)!r} is not a setting; use {', '.join(known)}")
        arguments[name] = _as_written(name, value)
    return typed(arguments, Config, where, "correct it")


def _as_written(name: str, value: Any) -> Any:
    if isinstance(value, str) and name in ("budgets", "costs"):
        return [value]
    return duration(value) if isinstance(value, str) and name == "max_time" else value


def of_run(folder: RunFolder) -> Config:
    """The configuration that a run was started with."""
    return from_mapping(folder.origin().config, str(folder.path / "config.json"))


def from_toml(path: Path) -> dict[str, Any]:
    """The settings of a TOML file."""
    return read_toml(path)


def duration(text: str) -> float:
    """`30m`, `1h30m`, `90s` in seconds."""
    number = r"[0-9]+(?:\.[0-9]+)?"
    match = re.fullmatch(rf"(?:({number})h)?(?:({number})m)?(?:({number})s?)?", text.strip())
    if match is None or not any(match.groups()):
        raise UserError(f"{printable(text, 40)!r} is not a duration; write it as 30m, 1h30m or 90s")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        raise UserError(f"{name} {value} is out of range; give a number above zero")
