"""What a run from trained weights says at the end: the network before and after, and what was removed."""

from __future__ import annotations

import torch
from safetensors.torch import save
from torch import Tensor, nn

from budgetnet.costs import macs, params
from budgetnet.network.graph import Architecture
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.results import Before
from budgetnet.runs.inherited import NONE
from budgetnet.runs.job import Job
from budgetnet.strategies.state import Inherited
from budgetnet.training.evaluation import judge


def removed(net: SuperNetwork, architecture: Architecture) -> tuple[str, ...]:
    """What an architecture leaves out of the full network: a line for each layer and each branch."""
    live = net.graph.live(architecture.gates()[None])[0].tolist()
    lines = []
    for number, operation in enumerate(net.graph.operations):
        module = net.edge_modules[number]
        kept = [live[edge] for edge in operation.edges]
        if not operation.bundle or not any(kept):
            if not any(kept):
                lines.append(f"{operation.name}: dropped")
            continue
        assert isinstance(module, Region)
        for axis, units in zip(module.axes, operation.axes, strict=True):
            left = axis.width([live[unit] for unit in units])
            if left < axis.blocks:
                what = "channels" if axis.channels == 1 else f"heads or groups of {axis.channels} channels"
                lines.append(f"{axis.name}: keeps {left} of {axis.blocks} {what}")
    return tuple(lines)


def before_and_after(
    job: Job, architecture: Architecture, model: nn.Module, inherited: Inherited | None, test: bool
) -> Before | None:
    """What is said at the end of a run from trained weights.

    Args:
        job: The run.
        architecture: What was kept.
        model: The finished network.
        inherited: What the search knew of the trained weights.
        test: Whether to look at test data.

    Returns:
        None if the weights were fresh.
    """
    if job.original is None:
        return None
    full = job.net.graph.full
    validation = judge(job.original, job.task, job.validation.evaluation())
    tested = judge(job.original, job.task, job.test.evaluation()) if test and job.test is not None else None
    return Before(
        validation_score=validation.metric,
        test_score=None if tested is None else tested.metric,
        macs=round(macs(job.net)(full)),
        params=round(params(job.net)(full)),
        costs={budget.name: budget.meter.full for budget in job.budgets},
        file_bytes=_file_bytes(job.original),
        file_bytes_after=_file_bytes(model),
        removed=removed(job.net, architecture),
        race_losses={} if inherited is None else dict(inherited.losses),
        teacher=NONE if job.teacher is None else job.teacher.name,
        uniform=inherited is not None and _has(inherited.uniform, architecture),
    )


def _has(uniform: Tensor | None, architecture: Architecture) -> bool:
    """Whether an architecture is the one of uniform widths."""
    return uniform is not None and torch.equal(uniform, architecture.live().gates())


def _file_bytes(model: nn.Module) -> int:
    return len(save({name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}))
