"""What is trained at each scale, and the spaces and costs of the paper's networks there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from budgetnet.costs import Meter, bind
from budgetnet.errors import UserError
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import build
from budgetnet.spaces.named import find_architecture
from budgetnet.strategies.paper import paper

SCALES = ("reduced", "full")
KEPT = 128
"""Networks and counts that are remembered: to count the largest takes seconds."""


@dataclass(frozen=True)
class Setting:
    """One data set, the sizes of the two spaces for it, and how everything is trained."""

    data: str
    shape: tuple[int, int, int]
    classes: int
    images: int
    """For training."""
    recipe: str
    epochs: float | None = None
    channels: int = 16
    columns: int = 8
    """Of the fabric that is searched."""
    scales: int = 6
    filters: int = 128
    task: str = "classification"
    batch_size: int | None = None
    groups: int | None = None
    """Architectures that share a batch; the recipe's own number if None."""
    penalties: str | None = None

    def resnets(self, width: int) -> str:
        """The space of a ResNet fabric."""
        return f"resnet-fabric:width={width},channels={self.channels}"

    def fabric(self, width: int) -> str:
        """The space of a convolutional neural fabric."""
        task = "" if self.task == "classification" else f",task={self.task}"
        return f"neural-fabric:width={width},scales={self.scales},filters={self.filters}{task}"

    def network(self, model: str) -> tuple[str, str] | None:
        """Space and architecture of `ResNet-20` or `CNF W=8`; None for models that are not ours to build."""
        kind, _, size = model.replace(" W=", "-").partition("-")
        if kind == "ResNet":
            return self.resnets((int(size) - 2) // 6), model.lower()
        return (self.fabric(int(size)), "full") if kind == "CNF" else None

    def cost(self, model: str, cost: str) -> float:
        """What one of the paper's networks costs here."""
        found = self.network(model)
        if found is None:
            raise UserError(f"{model} is no network of the built-in spaces; use ResNet-20 or CNF W=8")
        return cost_of(*found, cost, self.shape, self.classes)


def cost_of(space: str, architecture: str, cost: str, shape: tuple[int, ...], classes: int) -> float:
    """The cost of an architecture."""
    meter = _meter(space, cost, shape, classes)
    return meter(find_architecture(_net(space, shape, classes), architecture))


@lru_cache(maxsize=KEPT)
def _meter(space: str, cost: str, shape: tuple[int, ...], classes: int) -> Meter:
    return bind(cost, _net(space, shape, classes))


@lru_cache(maxsize=KEPT)
def _net(space: str, shape: tuple[int, ...], classes: int) -> SuperNetwork:
    return build(space, shape, classes)


_CIFAR10 = Setting("cifar10", (3, 32, 32), 10, 45_000, "paper", penalties="0.1:10:5")
_PARTS = Setting(
    *("lfw-parts", (3, 256, 256), 3, 1_500, "paper"),
    scales=9,
    filters=64,
    task="segmentation",
    penalties="0.1:10:5",
)
FULL = {"cifar10": _CIFAR10, "cifar100": replace(_CIFAR10, data="cifar100", classes=100), "part-labels": _PARTS}
"""The paper's: 300 epochs (Part Labels: 200) of its recipe, five λ from 0.1 to 10."""

PAPER_DRAWS = 64 * 250 * 45_000 / 64
"""Architectures that the paper's search on CIFAR draws: one for each of 64 examples of a batch, in 250 epochs."""
SMALL_BATCH, SMALL_GROUPS = 64, 8
SOONER = 4.0
"""Times the rate at which a short run moves Γ as far as the paper's. Γ has then decided after a quarter of the search,
and the rest of the few epochs trains what it chose (`benchmarks/paper_method.py` has other rates)."""


def adapted(images: int, epochs: float, batch: int = SMALL_BATCH, task: str = "classification") -> str:
    """The paper's recipe for a short run of few groups: Γ's rate grows by as much as it draws fewer architectures.

    With the paper's own rate such a run would end before Γ has moved.
    """
    recipe = paper(epochs, task)
    draws = SMALL_GROUPS * recipe.search_epochs * images / batch
    return f"paper:policy_lr={SOONER * recipe.policy_lr * PAPER_DRAWS / draws:.3g}"


_SMALL10 = Setting(
    *("cifar10:size=16,limit=10000", (3, 16, 16), 10, 10_000, adapted(10_000, 24), 24),
    channels=8,
    scales=5,
    filters=16,
    batch_size=SMALL_BATCH,
    groups=SMALL_GROUPS,
    penalties="0.3:1:2",
)
_SMALL_PARTS = Setting(
    *("lfw-parts:size=64", (3, 64, 64), 3, 1_500, adapted(1_500, 40, SMALL_BATCH // 2, "segmentation"), 40),
    columns=4,
    scales=7,
    filters=16,
    task="segmentation",
    batch_size=SMALL_BATCH // 2,
    groups=SMALL_GROUPS,
    penalties="1",
)
REDUCED = {
    "cifar10": _SMALL10,
    "cifar100": replace(
        _SMALL10, data="cifar100:size=16,limit=20000", classes=100, images=20_000, recipe=adapted(20_000, 24)
    ),
    "part-labels": _SMALL_PARTS,
}
"""What two cores can do: smaller images and networks, fewer epochs, eight architectures a batch, a faster Γ."""


def setting(data: str, scale: str) -> Setting:
    """By the name of the data set and of the scale."""
    if scale not in SCALES:
        raise UserError(f"there is no scale {scale!r}; use {' or '.join(SCALES)}")
    return (FULL if scale == "full" else REDUCED)[data]
