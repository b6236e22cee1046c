"""The Python entry point: a user's own network, data, loss and optimizer as a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from budgetnet.budgets.budget import Budget, BudgetLike, parse_all
from budgetnet.data.feeds import Feed
from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.folder import new_folder
from budgetnet.records.records import Sink
from budgetnet.records.results import DataDescription
from budgetnet.runs.arguments import check_arguments, check_network
from budgetnet.runs.config import Config, from_mapping
from budgetnet.runs.execute import Options, execute
from budgetnet.runs.inherited import make_teacher, original_of
from budgetnet.runs.job import Job, check_examples, check_job, estimated_seconds
from budgetnet.runs.stored import OWN
from budgetnet.strategies.optimizers import OptimizerLike, trained_with
from budgetnet.strategies.recipes import Strategy
from budgetnet.strategies.trained import TrainedRecipe
from budgetnet.training.callbacks import Callback
from budgetnet.training.distillation import Teacher
from budgetnet.training.metrics import Measure, Metric, cross_entropy
from budgetnet.training.tasks import Forward, Task


@dataclass(frozen=True)
class DryRun:
    """What `search(…, dry_run=True)` says: what the budgets leave, and how long the run would take here.

    Attributes:
        budgets: For each budget its text, its maximum, and the smallest and the full cost.
        seconds: The estimated time of the run on this machine.
    """

    budgets: tuple[Mapping[str, Any], ...]
    seconds: float


def search(
    net: SuperNetwork,
    train: Any,
    validation: Any,
    test: Any = None,
    *,
    budgets: str | Sequence[BudgetLike] | Mapping[str, Any],
    loss: str | Measure | None = None,
    metric: str | Metric | Measure | None = None,
    forward: Forward | None = None,
    optimizer: OptimizerLike | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    schedule: str | None = None,
    clip: float | None = None,
    classes: Sequence[str] = (),
    out: str | Path | None = None,
    recipe: str | Strategy | None = None,
    teacher: str | Path | nn.Module | Teacher | None = None,
    augmentation: Any = None,
    workers: int | None = None,
    callbacks: Sequence[Callback] = (),
    sinks: Sequence[Sink] = (),
    quiet: bool = False,
    resume: bool = False,
    lr_scale: float = 1.0,
    dry_run: bool = False,
    **settings: Any,
) -> Any:
    """Learns a network that fits the budgets, on your own super network, data and loss.

    Args:
        net: The super network: `from_model`, a space, or a `SuperNetwork` of yours.
        train: Inputs and targets: tensors or arrays, dicts of them, a torch `Dataset` or a `DataLoader`.
        validation: The same, of other examples.
        test: The same; only looked at once, at the end.
        budgets: `"macs<=60%"`, a list of such texts, or a dict such as `{"latency": "12 ms", "size": "500 kB"}`.
        loss: `cross_entropy`, `mse`, `mae`, `bce`, or a function of outputs and targets to a value per example or one
            mean.
        metric: `accuracy`, `top5`, `r2`, `mae`, `mse`, `binary_accuracy`, `mean_iou`, a `Metric`, or a function.
        forward: Runs a model on the inputs of a batch, where calling it with them does not fit.
        optimizer: `sgd`, `adamw`, or a function of parameters to a torch optimizer.
        lr: The largest learning rate.
        weight_decay: Of the optimizer.
        schedule: `one-cycle`, `cosine` or `constant`.
        clip: The largest norm of a gradient; 0 for no limit.
        classes: The names of the classes, for `result.labels` and exported files.
        out: The run folder; the first free `runs/run-N` if not given.
        recipe: `fast`, `paper`, `trained`, each with options, or a strategy; by default `trained` if the weights are.
        teacher: What the result learns from besides its targets: `self`, the full network with its trained weights (the
            default of the recipe `trained`), `none`, a module, a `Teacher`, a safetensors file of the full network's
            weights, or the folder of a run.
        augmentation: For tensors in memory: `budgetnet.data.Augmentation`.
        workers: Processes that read a map-style `Dataset`; by default as many as are worth it.
        callbacks: Called at the end of steps, epochs and phases.
        sinks: Take every record, beside the JSON lines in the folder.
        quiet: No progress.
        resume: Goes on with the run in `out`.
        lr_scale: Multiplies every learning rate, for a run that goes on after it diverged.
        dry_run: Trains nothing; returns a `DryRun`.
        **settings: Fields of `Config`: epochs, groups, batch_size, seed, max_time, threads, device, precision,
            compile, sync_batch_norm, micro_groups.

    Returns:
        The `Result`; a `DryRun` if asked for.
    """
    _check_given(net, train, validation)
    asked = check_arguments(budgets, recipe, out, augmentation)
    optimization = {"lr": lr, "weight_decay": weight_decay, "schedule": schedule, "clip": clip}
    named = {"optimizer": optimizer if isinstance(optimizer, str) else None}
    config, chosen = _configured(net, asked, recipe, {**optimization, **named, **settings})
    chosen, factory = trained_with(chosen, net, **{**config.optimization, "optimizer": optimizer})
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    device = config.make_device()
    net = device.place(net, net.memory_format)
    sources = ((train, augmentation), (validation, None), (test, None))
    feeds = [
        None
        if source is None
        else device.feed(source, chosen.batch_size, config.seed, crop, net.memory_format, workers)
        for source, crop in sources
    ]
    assert feeds[0] is not None
    assert feeds[1] is not None
    task = Task.of(loss, metric, forward)
    for feed in feeds:
        check_examples(net, feed, classes=net.shapes.output[0] if task.loss is cross_entropy else None, task=task)
    original = original_of(net)
    taught = make_teacher(teacher, net, original, isinstance(chosen, TrainedRecipe))
    about = _described(net, feeds[1], task, tuple(classes))
    made = (net, task, feeds[0], feeds[1], feeds[2], _parsed(asked, net, feeds[1]), chosen, config, about)
    job = Job(*made, device=device, optimizer=factory, original=original, teacher=taught)
    if dry_run:
        return _forecast(job)
    options = Options(quiet=quiet, resume=resume, lr_scale=lr_scale, sinks=sinks, callbacks=callbacks, say=_say(quiet))
    return execute(job, Path(out) if out is not None else new_folder(), options)


def _check_given(net: Any, train: Any, validation: Any) -> None:
    check_network(net)
    if train is None or validation is None:
        raise UserError("search() was given no training or no validation data; it needs both, of different examples")


def _configured(
    net: SuperNetwork, asked: Sequence[BudgetLike], recipe: str | Strategy | None, settings: Mapping[str, Any]
) -> tuple[Config, Strategy]:
    """The configuration of a run from Python, and its recipe."""
    name = recipe if recipe is None or isinstance(recipe, str) else recipe.name
    given = {"space": OWN, "data": OWN, "budgets": tuple(map(str, asked)), "recipe": name, **settings}
    config = from_mapping(given, "search()")
    if recipe is None or isinstance(recipe, str):
        chosen = config.make_recipe("classification", net.trained)
    else:
        chosen = config.adjusted(recipe)
    return replace(config, recipe=chosen.name), chosen


def _parsed(budgets: Sequence[BudgetLike], net: SuperNetwork, validation: Feed) -> list[Budget]:
    texts = [budget[0] if isinstance(budget, tuple) else budget for budget in budgets]
    own = own_names(*(text for text in texts if isinstance(text, str)))
    return parse_all(budgets, net, example=next(validation.evaluation())[0], own=own)


def _described(net: SuperNetwork, feed: Feed, task: Task, classes: tuple[str, ...]) -> DataDescription:
    scaling = "[-1,1]" if getattr(feed, "scaled", False) else "none"
    kind = "segmentation" if classes and len(net.shapes.output) == 3 else "classification" if classes else OWN
    dtype = str(net.input_dtype).removeprefix("torch.")
    return DataDescription(OWN, kind, classes, tuple(net.input_shape), scaling, task.metric.about, dtype)  # type: ignore[arg-type]


def _forecast(job: Job) -> DryRun:
    checked = check_job(job)
    rows = tuple(
        {"budget": row.budget.text, "maximum": row.budget.maximum, "smallest": row.smallest, "full": row.full}
        for row in checked.rows
    )
    return DryRun(rows, estimated_seconds(job, checked))


def _say(quiet: bool) -> Any:
    return (lambda line: None) if quiet else (lambda line: print(line))
