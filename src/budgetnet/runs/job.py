"""A job: everything that a run needs, made from a configuration, and what is known of it before any training."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from budgetnet import spaces
from budgetnet.budgets.budget import Budget, parse_all, set_deadline
from budgetnet.budgets.feasibility import Profile, check, profile
from budgetnet.data import DataSet, Split
from budgetnet.data import load as load_data
from budgetnet.data.convert import check_class_targets
from budgetnet.data.feeds import Feed, SplitFeed
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.results import DataDescription
from budgetnet.runs.config import Config
from budgetnet.runs.duration import estimate
from budgetnet.runs.inherited import make_teacher, original_of
from budgetnet.spaces.named import find_architecture
from budgetnet.strategies.optimizers import trained_with
from budgetnet.strategies.recipes import Strategy
from budgetnet.strategies.runner import Runner
from budgetnet.strategies.start import Start
from budgetnet.strategies.trained import TrainedRecipe
from budgetnet.training.device import Device
from budgetnet.training.distillation import DistilledStep, Teacher
from budgetnet.training.fits import Step
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import OptimizerFactory, Trainer

CHECK_SHARE, START_SHARE = 0.15, 0.2
"""The shares of a time limit after which a user's own cost is no longer asked for the check, and for Γ's start."""


@dataclass(frozen=True)
class Job:
    """Everything that a run needs, made: the network, the data as feeds, the budgets, the recipe."""

    net: SuperNetwork
    task: Task
    train: Feed
    validation: Feed
    test: Feed | None
    budgets: Sequence[Budget]
    recipe: Strategy
    config: Config
    data: DataDescription
    architecture: Architecture | None = None
    device: Device = field(default_factory=Device)
    optimizer: OptimizerFactory | None = None
    """A user's own; that of the recipe if not given."""
    notes: tuple[str, ...] = ()
    """What a user should know of the data, as sentences."""
    original: nn.Module | None = None
    """The full network with the trained weights that the run starts from; None if they are fresh."""
    teacher: Teacher | None = None


def prepare(config: Config, own: Collection[str] = ()) -> Job:
    """Loads the data, builds the space and the budgets of a configuration.

    Args:
        config: From the command line or from a file.
        own: The names of code that the user gave to this process (`naming.own_names`); a file can add none.

    Returns:
        What `execute` takes.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = config.make_device()
    data = load_data(config.data, Path(config.data_root) if config.data_root else None)
    torch.manual_seed(config.seed)
    net = spaces.build(
        config.space,
        data.input_shape,
        len(data.classes),
        own=own,
        dtype=_dtype(data.train),
        weights=config.weights,
    )
    net = device.place(net, net.memory_format)
    check_output(net, data)
    recipe, _ = trained_with(config.make_recipe(data.task, net.trained), net, **config.optimization)
    config = replace(config, recipe=recipe.name)
    feeds = [
        device.feed(split, recipe.batch_size, config.seed, augmentation, net.memory_format)
        if split is not None
        else None
        for split, augmentation in ((data.train, data.augmentation), (data.validation, None), (data.test, None))
    ]
    train, validation, test = feeds
    assert train is not None
    assert validation is not None
    example = next(validation.evaluation())[0]
    budgets = parse_all(config.budgets, net, short_names(config.costs), example, own=own)
    about = DataDescription(config.data, data.task, data.classes, data.input_shape, "[-1,1]")
    kept = None if config.architecture is None else find_architecture(net, config.architecture).live()
    original = original_of(net)
    teacher = make_teacher(config.teacher, net, original, isinstance(recipe, TrainedRecipe))
    made = (net, Task(), train, validation, test, budgets, recipe, config, about, kept, device)
    return Job(*made, notes=data.notes, original=original, teacher=teacher)


def _dtype(split: Split) -> torch.dtype:
    """The type in which inputs arrive at a network: images as numbers from -1 to 1."""
    inputs = split.inputs
    whole = not isinstance(inputs, Tensor) or inputs.dtype in (torch.uint8, torch.float32)
    return torch.float32 if whole else inputs.dtype


def check_output(net: SuperNetwork, data: DataSet) -> None:
    """Refuses a space whose output does not fit the task of the data."""
    expected = (len(data.classes), *(data.input_shape[1:] if data.task == "segmentation" else ()))
    if net.shapes.output != expected:
        raise UserError(
            f"{net.name} gives {'×'.join(map(str, net.shapes.output))} for an input, {data.name} ({data.task}) needs "
            f"{'×'.join(map(str, expected))}; use a space for {data.task}, such as neural-fabric:task={data.task}"
        )


def check_examples(net: SuperNetwork, feed: Feed | None, classes: int | None, task: Task | None = None) -> None:
    """Refuses examples that the network cannot take, and targets that are none of its classes if it has classes."""
    if feed is None:
        return
    inputs, targets = next(feed.evaluation())
    if task is not None and task.forward is not None:
        return  # what the network is called with is the user's own affair
    if isinstance(inputs, Tensor) and tuple(inputs.shape[1:]) != net.input_shape:
        shape = tuple(inputs.shape[1:])
        raise UserError(
            f"the data have inputs of {'×'.join(map(str, shape))}, the network takes "
            f"{'×'.join(map(str, net.input_shape))}; build it with input_shape={shape}"
        )
    if isinstance(inputs, Tensor) and inputs.dtype != net.input_dtype:
        raise UserError(
            f"the data have inputs of {inputs.dtype}, the network takes {net.input_dtype}; convert them, or build it "
            f"with input_dtype={inputs.dtype}"
        )
    if classes is not None:
        check_class_targets(feed.split if isinstance(feed, SplitFeed) else Split(inputs, targets), classes)


def short_names(costs: Sequence[str]) -> dict[str, str]:
    """`package.module:energy` may be called `energy` in a budget."""
    return {name.rpartition(":")[2]: name for name in costs}


@dataclass(frozen=True)
class Checked:
    """What is known before any training.

    Args:
        architecture: Meets every budget; or the one to train, if it is fixed.
        start: Γ's start; None if the architecture is fixed.
        rows: The profile table.
        seconds: What the check took, which counts against a time limit.
    """

    architecture: Architecture
    start: Start | None = None
    rows: Sequence[Profile] = ()
    seconds: float = 0.0

    @property
    def means(self) -> list[float | None]:
        """The expected cost at Γ's start, by row of the profile table."""
        expected = {} if self.start is None else self.start.expected
        return [expected.get(row.budget.name) for row in self.rows]


def check_job(job: Job) -> Checked:
    """Finds an architecture that meets every budget and where Γ starts, once for the whole run; or refuses.

    Under a time limit, a user's own cost is asked for a share of it only; what was not asked is not known to fit.
    """
    if job.architecture is not None:
        return Checked(job.architecture)
    limit, begun = job.config.max_time or math.inf, time.monotonic()
    set_deadline(job.budgets, begun + CHECK_SHARE * limit)
    rows = profile(job.budgets, job.config.seed)
    anchor = check(rows, job.config.seed)
    set_deadline(job.budgets, begun + START_SHARE * limit)
    start = job.recipe.start(job.budgets, job.net.graph, anchor)
    set_deadline(job.budgets, math.inf)
    return Checked(anchor, start, rows, time.monotonic() - begun)


def make_runner(job: Job, checked: Checked, trainer: Trainer) -> Runner:
    """The phases of a job from their beginning."""
    seed = job.config.seed
    if checked.start is None:
        return Runner.of_fixed(job.recipe, job.net, job.budgets, checked.architecture, trainer, seed)
    return Runner.of_search(job.recipe, job.net, job.budgets, checked.architecture, checked.start, trainer, seed)


def make_trainer(job: Job, **options: Any) -> Trainer:
    """The trainer of a job; options are fields of `Trainer`."""
    made, clip = job.optimizer or job.recipe.make_optimizer, job.recipe.clip
    alone = Step() if job.teacher is None else DistilledStep(job.teacher)
    return Trainer(job.task, job.train, job.validation, made, job.device, clip=clip, alone=alone, **options)


def estimated_seconds(job: Job, checked: Checked) -> float:
    """How long a job would take here: its check, as long as it took, and all else by timing a copy of its network."""
    runner = make_runner(replace(job, net=copy.deepcopy(job.net)), checked, make_trainer(job))
    return min(checked.seconds + estimate(runner, job.test), job.config.max_time or math.inf)
