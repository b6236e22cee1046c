"""Does the memory of a search step follow what was sampled? Its peak over a full step's, per share of activations.

The peak is what torch's allocator handed out at a time, above what was held before the step: activations, gradients,
workspaces that torch allocates; weights and momentum are there before and after. The live share of activations counts
the bytes that backward keeps for each live edge and node, found by running every module alone. Eight groups, width 3,
batch 128. Memory does not depend on the machine's load, so the spread is that of the samples. Beside it: the warm-up
step of the default recipe, which samples too (the paper's warm-up step is the full one).

    python -m benchmarks.search_memory [--repeats 5]
"""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._common import Answer, answer, arguments, pin_threads, quartiles, write_answers
from benchmarks._networks import LARGE, SHARES, SMALL, Sampled, Size, fabric_step, optimizer_of
from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.costs import AdditiveCost
from budgetnet.costs.footprints import allocated_peak
from budgetnet.network.supernet import SuperNetwork
from budgetnet.runs.config import Config
from budgetnet.strategies.start import budgeted_start

BAR = 1.25
GROUPS = 8


def kept_for_backward(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Bytes per example that a module's own tensors keep for backward, its input and its weights apart."""
    x = torch.zeros(2, *shape, requires_grad=True) * 1
    own = {p.untyped_storage().data_ptr() for p in [*module.parameters(), *module.buffers()]}
    own.add(x.untyped_storage().data_ptr())
    kept: dict[int, Tensor] = {}

    def pack(value: Tensor) -> Tensor:
        if value.dim() == len(shape) + 1 or len(value) == len(x):
            kept.setdefault(value.untyped_storage().data_ptr(), value)
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        output = module.train()(x)
        del output
    return sum(v.untyped_storage().nbytes() for pointer, v in kept.items() if pointer not in own) // len(x)


def activations(net: SuperNetwork) -> AdditiveCost:
    """Bytes that backward keeps, as a cost of an architecture: of each edge, and the value of each node."""
    shapes = net.shapes
    edges = [
        float(kept_for_backward(module, shapes.nodes[source]))
        for module, source in zip(net.edge_modules, net.graph.sources, strict=True)
    ]
    nodes = [4.0 * torch.Size(shape).numel() for shape in shapes.nodes]
    base = nodes[0] + kept_for_backward(net.stem, net.input_shape) + kept_for_backward(net.head, shapes.nodes[-1])
    return AdditiveCost(net.graph, base, torch.tensor(edges).double(), torch.tensor([0.0, *nodes[1:]]).double())


def measure(size: Size, repeats: int) -> tuple[list[Answer], dict[str, Any]]:
    """An answer for each share, and the bytes behind them."""
    net, batch = size.fabric(width=3), size.batch()
    optimizer, cost = optimizer_of(net), activations(net)

    def peak(gates: Tensor | None) -> int:
        gc.collect()
        return allocated_peak(fabric_step(net, batch, lambda: gates, optimizer))

    fabric_step(net, batch, lambda: None, optimizer)()
    full_share, full = cost(net.graph.full), peak(None)
    answers, bytes_of = [], {}
    for share in SHARES:
        sets = list(Sampled(net, share, GROUPS).take(repeats))
        live = [float(cost.evaluate(net.graph.live(gates)).mean()) / full_share for gates in sets]
        peaks = [peak(gates) for gates in sets]
        ratios = [found / (full * part) for found, part in zip(peaks, live, strict=True)]
        answers.append(answer(f"peak of a search step / full step / live share, {size}, share {share}", ratios, BAR))
        bytes_of[str(share)] = {"peaks": peaks, "live_share_of_activations": live}
    return answers, {
        "full_step": full,
        "kept_for_backward_of_full_step": full_share * len(batch[0]),
        "warm_up_default": [peak(gates) for gates in _default_warm_up(net, repeats)],
        "search_steps": bytes_of,
    }


def _default_warm_up(net: SuperNetwork, count: int) -> list[Tensor]:
    """What the default recipe samples in its warm-up, under the default budget."""
    budgets = parse_all(Config().budgets, net)
    distribution = budgeted_start(budgets, net.graph, check(profile(budgets, 0), 0)).distribution(net.graph)
    generator = torch.Generator().manual_seed(0)
    return [distribution.sample(GROUPS, generator).gates for _ in range(count)]


def main() -> None:
    """Both sizes."""
    options = arguments(__doc__, repeats=5)
    pin_threads(1)
    answers: list[Answer] = []
    bytes_of = {}
    for size in (LARGE, SMALL):
        found, bytes_of[str(size)] = measure(size, options.repeats)
        answers += found
        warm_up = quartiles(bytes_of[str(size)]["warm_up_default"])[1] / bytes_of[str(size)]["full_step"]
        answers.append(Answer(f"peak of a default warm-up step / full step, {size}", *(warm_up,) * 3, options.repeats))
    write_answers("search_memory", answers, seeds=[0], bytes=bytes_of)


if __name__ == "__main__":
    main()
