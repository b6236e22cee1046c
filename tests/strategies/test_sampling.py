"""Processes share out the architectures of a step evenly; micro-batches add up to the batch."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from budgetnet import extract
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.phases import Search
from budgetnet.strategies.sampling import PER_EXAMPLE, SampledStep, Sampling, evenly
from budgetnet.training.device import Device
from budgetnet.training.processes import Processes
from tests.small_runs import CLASSES, INPUTS, make_runner, short


def plain() -> SuperNetwork:
    """Parallel linear edges without batch norm, so that an example's gradient does not depend on its batch."""
    torch.manual_seed(0)
    graph = Graph(Edge(name, "in", "out") for name in "abcd")
    return SuperNetwork(
        graph, {name: nn.Linear(INPUTS, INPUTS) for name in "abcd"}, input_shape=(INPUTS,), head=nn.Linear(6, CLASSES)
    )


@pytest.mark.parametrize("groups", [8, PER_EXAMPLE])
@pytest.mark.parametrize("count", [2, 3])
def test_processes_share_out_what_one_would_draw(groups: int, count: int) -> None:
    state, sampling = make_runner().state, Sampling(3, groups)
    parts = [sampling.draw(state, "search", 5, 12, Processes(rank, count)).gates for rank in range(count)]
    assert len({len(part) for part in parts}) == 1
    together = torch.cat(parts)
    total = len(together)
    alone = Sampling(3, total).draw(state, "search", 5, total).gates
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, alone.tolist()))


def test_every_process_has_about_as_much_work() -> None:
    generator = torch.Generator().manual_seed(0)
    for count, rows in ((2, 8), (3, 9), (4, 64), (2, 2)):
        work = torch.rand(rows, generator=generator).add(0.5).tolist()
        mine = [evenly(work, Processes(rank, count)) for rank in range(count)]
        assert sorted(row for part in mine for row in part) == list(range(rows))
        assert {len(part) for part in mine} == {rows // count}
        loads = [sum(work[row] for row in part) for part in mine]
        if count == 2:  # against every way to halve them
            halves = itertools.combinations(range(rows), rows // 2)
            best = min(
                max(sum(work[row] for row in half), sum(work) - sum(work[row] for row in half)) for half in halves
            )
            assert max(loads) <= 1.03 * best
        assert max(loads) - min(loads) < 0.5


def stepped(architectures: int, net: SuperNetwork, batch: Any) -> tuple[dict[str, Tensor], list[float], float]:
    """Weights, Γ's losses and the loss that is recorded, after one step of a search."""
    told: list[float] = []
    runner = make_runner(net=net, recipe=short(groups=4), device=Device(architectures=architectures))
    policy, update = runner.state.searching, runner.state.searching.update

    def heard(draw: Any, losses: Any, *rest: Any) -> dict[str, float]:
        assert len(draw.gates) == 4
        told.extend(losses.value().tolist())
        return update(draw, losses, *rest)

    policy.update = heard  # type: ignore[method-assign]
    search = next(phase for phase in runner.phases if isinstance(phase, Search))
    fit = runner.trainer.begin(runner.state.net)
    seen = runner.trainer._step(search.course(runner.state, runner.trainer), fit, batch, 0.5)
    return dict(fit.module.state_dict()), told, float(seen.loss)


@pytest.mark.parametrize("architectures", [1, 2, 3])
def test_micro_batches_add_up_to_the_batch(architectures: int) -> None:
    """30 examples, so that the groups have 8, 8, 7 and 7 of them."""
    torch.manual_seed(1)
    batch = torch.randn(30, INPUTS), torch.randint(CLASSES, (30,))
    whole, losses, loss = stepped(0, plain(), batch)
    parts, few, recorded = stepped(architectures, plain(), batch)
    assert few == pytest.approx(losses, rel=1e-5)
    assert recorded == pytest.approx(loss, rel=1e-5)
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value)


def test_a_micro_batch_of_one_architecture_is_its_extracted_network() -> None:
    """Batch norm, too, sees the examples of that architecture only."""
    runner = make_runner(recipe=short(groups=4), device=Device(architectures=1))
    state, trainer = runner.state, runner.trainer
    torch.manual_seed(1)
    inputs, targets = torch.randn(30, INPUTS), torch.randint(CLASSES, (30,))
    state.net.train()
    step = SampledStep(state, Sampling(0, 4), "search")
    gates = step.draw(30, 0).gates
    modules = [extract(state.net, state.net.graph.architecture(row)).train() for row in gates]
    sizes = [0, 8, 16, 23, 30]
    expected = [module(inputs[a:b]) for module, a, b in zip(modules, sizes[:-1], sizes[1:], strict=True)]
    found = [part.outputs for part in step.forwards(trainer, state.net, (inputs, targets), 0)]
    assert len(found) == 4
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
