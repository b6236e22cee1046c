"""How long a reproduction would take here: multiply-adds to compute, times the time that one takes in a timed step."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch

from budgetnet.costs.latency.timing import torch_threads
from budgetnet.records.results import DataDescription
from budgetnet.reproduce.settings import Setting, cost_of
from budgetnet.runs.config import Config
from budgetnet.runs.job import Job, check_job, estimated_seconds
from budgetnet.runs.sweep import Plan
from budgetnet.spaces import build
from budgetnet.strategies.paper import PaperRecipe
from budgetnet.strategies.recipes import Recipe, fast
from budgetnet.training.device import Device
from budgetnet.training.tasks import Task

PROBES = {"resnet-fabric": "ResNet-20", "neural-fabric": "CNF W=2"}
"""The network that stands for its space: small enough to be timed at once, even in the paper's setting."""
PROBE_WORK = 4e9
"""Multiply-adds of the images in a timed batch."""
BATCHES = 4
"""The first step of a network takes longer than others."""
PROBE_EPOCHS = 1000.0
"""Of the training that is estimated: so many that the seconds of its files and of its certificate do not count."""
PROBE_IMAGES = (2, 128)
CLASSES = 10
"""Of every probe and count: more of them hardly take longer."""


def estimated(plan: Plan, chosen: Setting) -> float:
    """Seconds of all runs of a plan one after the other on this machine."""
    alike = replace(chosen, data="", classes=CLASSES)
    return sum(_work(config, alike) * _pace(_family(config), alike) for config in plan.values())


def _family(config: Config) -> str:
    return config.space.partition(":")[0]


def _work(config: Config, chosen: Setting) -> float:
    """Multiply-adds times images.

    Of a search: a super network that starts at its full cost is taken to halve its way to the budget, one that starts
    at the budget to stay there. A budget of steps or parameters is taken as the same share of multiply-adds.
    """
    recipe = config.make_recipe(chosen.task)
    full = _macs(config.space, "full", chosen)
    if config.architecture is not None:
        return recipe.finish_epochs * chosen.images * _macs(config.space, config.architecture, chosen)
    share = _share(config, chosen)
    assert isinstance(recipe, Recipe | PaperRecipe)
    whole = isinstance(recipe, PaperRecipe)
    warmup, middle = (1.0, (1 + share) / 2) if whole else (share, share)
    alone = recipe.epochs - recipe.warmup_epochs - recipe.search_epochs
    epochs = recipe.warmup_epochs * warmup + recipe.search_epochs * middle + alone * share
    return epochs * chosen.images * full


def _macs(space: str, architecture: str, chosen: Setting) -> float:
    return cost_of(space, architecture, "macs(accounting=paper)", chosen.shape, chosen.classes)


def _share(config: Config, chosen: Setting) -> float:
    """The budget as a share of the full network."""
    cost, _, maximum = config.budgets[0].partition("<=")
    if maximum.endswith("%"):
        return float(maximum.removesuffix("%")) / 100
    return min(1.0, float(maximum) / cost_of(config.space, "full", cost, chosen.shape, chosen.classes))


@cache
def _pace(family: str, chosen: Setting) -> float:
    """Seconds of training per multiply-add and image, from a few steps on noise; the same for all runs of a space.

    On one thread, as many as a worker has by default: two beside another process can be many times slower.
    """
    found = chosen.network(PROBES[family])
    assert found is not None
    space, name = found
    price = _macs(space, name, chosen)
    few, many = PROBE_IMAGES
    images = int(min(many, max(few, PROBE_WORK // (3 * price))))
    device = Device.chosen("auto")
    net = device.place(build(space, chosen.shape, chosen.classes))
    feed = device.feed(_noise(chosen, BATCHES * images), images, 0, None, net.memory_format)
    config = Config(space=space, budgets=(), architecture=name)
    recipe = fast(PROBE_EPOCHS).alone()
    data = DataDescription("noise", chosen.task, tuple(map(str, range(chosen.classes))), chosen.shape)
    job = Job(net, Task(), feed, feed, None, [], recipe, config, data, net.architecture(name), device)
    with torch_threads(1):
        seconds = estimated_seconds(job, check_job(job))
    return seconds / (recipe.finish_epochs * BATCHES * images * price)


def _noise(chosen: Setting, images: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(images, *chosen.shape, generator=generator)
    sides = chosen.shape[1:] if chosen.task == "segmentation" else ()
    return inputs, torch.randint(chosen.classes, (images, *sides), generator=generator)
