"""Going on with a run: which checkpoint fits, and whether it is one of the same run."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from budgetnet.data.feeds import Feed, SplitFeed
from budgetnet.data.nested import leaves
from budgetnet.errors import UserError
from budgetnet.records.folder import RunFolder
from budgetnet.runs.job import Job
from budgetnet.strategies.runner import Runner
from budgetnet.training import checkpoint

MISFIT = (KeyError, TypeError, ValueError, RuntimeError, IndexError, AttributeError)
"""What a state that does not fit its run raises where it is loaded."""


def fingerprint(job: Job) -> dict[str, str]:
    """What the course of a run follows from, by name: a checkpoint goes on only under the same.

    Device, threads and time limit are not among it: they may change when a run goes on.
    """
    config = job.config
    shapes = [(name, tuple(value.shape)) for name, value in job.net.state_dict().items()]
    recipe = {f.name: getattr(job.recipe, f.name) for f in dataclasses.fields(job.recipe) if f.compare}  # type: ignore[arg-type]
    taught = {} if job.teacher is None else {"teacher": job.teacher.name}
    return {
        **taught,
        "seed": str(config.seed),
        "space": f"{job.net.name}, {_short(repr((job.net.graph.edges, shapes)))}",
        "data": f"{job.data.name}, {job.train.steps} steps an epoch, {_targets(job.train)}",
        "budgets": ", ".join(budget.text for budget in job.budgets) or "none",
        "recipe": f"{job.recipe.name}, {_short(repr(recipe))}",
        "architecture": "searched" if job.architecture is None else _short(job.architecture.to_json()),
    }


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _targets(feed: Feed) -> str:
    """A checksum of the targets of data in memory; what a loader will give cannot be known."""
    if not isinstance(feed, SplitFeed):
        return "loaded"
    digest = hashlib.blake2b(digest_size=4)
    for leaf in leaves(feed.split.targets):
        digest.update(leaf.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if leaf.numel() else b"")
    return digest.hexdigest()


def check_fingerprint(folder: RunFolder, saved: Any, now: Mapping[str, str]) -> None:
    """Refuses to go on with a run that was started with other settings."""
    if not isinstance(saved, Mapping):
        raise UserError(
            f"the checkpoints in {folder.path} do not say what they belong to; run again with another --out"
        )
    for name, value in now.items():
        if saved.get(name) != value:
            raise UserError(
                f"{folder.path} cannot go on: its {name} was {saved.get(name)} and is now {value}; give what it was "
                "started with, or choose another --out"
            )


def check_origin(folder: RunFolder) -> None:
    """Refuses a folder that has checkpoints and no configuration: nobody can say what they are of."""
    if not folder.exists and folder.checkpoints.is_dir() and any(folder.checkpoints.glob("*.checkpoint")):
        raise UserError(
            f"{folder.path} has checkpoints and no config.json, which says what they are of; restore it, or choose "
            "another --out"
        )


@dataclasses.dataclass(frozen=True)
class Restored:
    """A runner where its last good checkpoint left it; the checkpoint's number and place in the records."""

    runner: Runner
    number: int = -1
    records: int = 0


def restore(folder: RunFolder, job: Job, make: Callable[[], Runner], say: Callable[[str], None]) -> Restored:
    """Goes on from the newest checkpoint that is whole and fits.

    Args:
        folder: The folder of the run.
        job: The job, whose network gets its initial weights back if no checkpoint fits.
        make: Makes a runner at the beginning of the run.
        say: Takes a sentence for each checkpoint that was passed over.

    Returns:
        The runner; one at the beginning if there is no checkpoint.
    """
    initial: dict[str, Tensor] = {}
    for path, state in checkpoint.load_all(folder.checkpoints):
        if state is not None:
            check_fingerprint(folder, state.get("fingerprint") if isinstance(state, dict) else None, fingerprint(job))
            initial = initial or {name: value.clone() for name, value in job.net.state_dict().items()}
            runner = make()
            try:
                runner.load_state_dict(state)
                return Restored(runner, int(state["number"]), int(state["records"]))
            except MISFIT:
                job.net.load_state_dict(initial)
        say(f"the checkpoint {path.name[:8]} is damaged and was passed over")
    return Restored(make())
