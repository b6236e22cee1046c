"""A cost that depends on the input: work on an accelerator that skips blank pixels.

Such hardware does no multiply-add for a zero. Early layers see the picture itself, much of it blank, so what they cost
depends on which pictures come; later layers are dense. A cost with two parameters, `(architecture, batch)`, is given
the batch at hand: training batches during the search, validation batches for the certificate, which holds when the
upper 95 % bound of the mean over those batches is within the budget.

Return the cost *per input*: batches differ in size.

    python examples/input_dependent.py [--out FOLDER]
"""

import argparse
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import budgetnet
from budgetnet import Architecture, SuperNetwork
from budgetnet.costs import macs
from budgetnet.data import prepare

SHARE = 0.5  # of what the full network costs on the same pictures
BLANK = -1.0  # pictures come scaled to [-1, 1]


def filled(batch: Tensor) -> float:
    """The share of pixels that are not blank."""
    return float((batch > BLANK).float().mean())


def sparse_work(net: SuperNetwork) -> Callable[[Architecture, Tensor], float]:
    """Multiply-adds per input: edges out of the first group cost as much of theirs as pixels are filled."""
    work = macs(net)

    @functools.cache
    def split(architecture: Architecture) -> tuple[float, float]:
        live, edges = architecture.live(), zip(net.graph.edges, work.edges.tolist(), strict=True)
        early = sum(count for edge, count in edges if edge.name in live and edge.source.startswith("g0"))
        return early, work(live) - early

    def cost(architecture: Architecture, batch: Tensor) -> float:
        early, late = split(architecture)
        return early * filled(batch) + late

    return cost


sparse_work.unit = "macs"


def main(out: Path) -> dict[str, Any]:
    """Searches, and compares the certificate with the mean over every single validation picture."""
    dataset = budgetnet.data.load("embedded:size=14,limit=1280")
    torch.manual_seed(0)  # the first weights of your own network are yours to choose
    net = budgetnet.spaces.resnet_fabric(width=2, channels=4, classes=10, input_shape=dataset.input_shape)
    pictures = prepare(dataset.validation.inputs)
    cost = sparse_work(net)
    full = cost(net.graph.full, pictures)
    result = budgetnet.search(
        net,
        dataset.train,
        dataset.validation,
        dataset.test,
        budgets=[(sparse_work, SHARE * full)],
        out=out / "run",
        epochs=2,
        threads=1,
        quiet=True,
    )
    (entry,) = result.certificate.budgets
    each = torch.tensor([cost(result.architecture, picture) for picture in pictures])
    print(f"pixels that are not blank: {filled(pictures):.0%} on average")
    print(f"promised: at most {entry.maximum:,.0f} multiply-adds per picture; the full network does {full:,.0f}")
    print(
        f"certificate: {entry.measured:,.0f}, at most {entry.upper_bound:,.0f} (95 %) over "
        f"{entry.how['samples']} batches: it {'holds' if entry.holds else 'does not hold'}"
    )
    print(f"picture by picture: {each.mean():,.0f} on average, from {each.min():,.0f} to {each.max():,.0f}")
    print(f"test accuracy {result.summary.test_score:.1%} after a very short training")
    return {"certificate": result.certificate, "mean": float(each.mean()), "full": full}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the run; a temporary one if not given")
    given = parser.parse_args().out
    with tempfile.TemporaryDirectory() as temporary:
        main(given or Path(temporary))
