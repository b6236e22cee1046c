"""Searching in a loop of one's own: ask, tell, candidates, certify."""

from __future__ import annotations

import accelerate
import pytest
import torch
from torch.nn import functional as F

from budgetnet import Searcher
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from tests.small_runs import mlp, vectors


@pytest.fixture(scope="module")
def net() -> SuperNetwork:
    return mlp()


def losses_of(net: SuperNetwork, searcher: Searcher, groups: int = 4) -> torch.Tensor:
    x, y = vectors(32)
    draw = searcher.ask(groups)
    losses = F.cross_entropy(net(x, draw.gates), y, reduction="none").view(groups, -1).mean(1)
    searcher.tell(draw, losses.detach())
    return losses


def test_draws_follow_from_the_seed_and_connect(net: SuperNetwork) -> None:
    first, again, other = (Searcher(net, "macs<=60%", seed=seed) for seed in (3, 3, 4))
    draws = [[searcher.ask(8).gates for _ in range(3)] for searcher in (first, again, other)]
    assert all(torch.equal(a, b) for a, b in zip(draws[0], draws[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(draws[0], draws[2], strict=True))
    assert bool(net.graph.live(torch.cat(draws[0])).any(1).all()), "every architecture reaches the output"


def test_gamma_leaves_edges_whose_groups_do_badly(net: SuperNetwork) -> None:
    searcher = Searcher(net, "macs<=90%", rate=0.3)
    edge = net.graph.index["0-3"]
    before = float(searcher.policy.distribution.probabilities[edge])
    for _ in range(40):
        draw = searcher.ask(8)
        seen = searcher.tell(draw, draw.gates[:, edge].double())
    assert float(searcher.policy.distribution.probabilities[edge]) < before - 0.1
    assert {"cost/macs", "lambda/macs", "violation/macs"} <= seen.keys()


def test_candidates_are_within_the_budgets_and_the_best_first(net: SuperNetwork) -> None:
    searcher = Searcher(net, {"macs": "60%"})
    losses_of(net, searcher)
    limit = searcher.budgets[0]
    for found in (searcher.candidates(3), searcher.candidates(3, lambda a: float(len(a)), evaluations=8)):
        assert 1 <= len(found) <= 3
        assert len(set(found)) == len(found)
        assert all(limit.meter(architecture) <= limit.maximum for architecture in found)
    lengths = [len(architecture) for architecture in found]
    assert lengths == sorted(lengths), "the score is the number of edges"


def test_an_extracted_network_is_certified_as_it_is(net: SuperNetwork) -> None:
    searcher = Searcher(net, "params<=70%")
    architecture = searcher.candidates(1)[0]
    model = searcher.extract(architecture)
    certificate = searcher.certify(model)
    assert certificate.holds
    assert certificate.budgets[0].measured == sum(p.numel() for p in model.parameters())
    assert searcher.certify(architecture).budgets[0].measured == certificate.budgets[0].measured
    assert not searcher.certify(net.graph.full).holds, "the whole network is over 70 % of itself"


def test_it_goes_on_from_a_state(net: SuperNetwork) -> None:
    one, other = Searcher(net, "macs<=60%"), Searcher(net, "macs<=60%")
    losses_of(net, one)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.ask(4).gates, other.ask(4).gates)
    assert torch.equal(one.policy.distribution.logits, other.policy.distribution.logits)


MISTAKES = {
    "no super network": (lambda net: Searcher(torch.nn.Linear(1, 1), "macs<=60%"), "Linear is not a super network"),
    "no budget": (lambda net: Searcher(net, []), "no budget was given"),
    "a budget that cannot be met": (lambda net: Searcher(net, "macs<=1"), "cannot be met"),
    "one group": (lambda net: Searcher(net, "macs<=60%").ask(1), "2 groups or more"),
    "too few losses": (lambda net: told(net, torch.zeros(3)), r"4 architectures were drawn but \(3,\) losses"),
    "a loss that is no number": (lambda net: told(net, torch.tensor([0, 0, 0, torch.nan])), "not finite"),
    "another module": (lambda net: Searcher(net, "macs<=60%").certify(torch.nn.Linear(1, 1)), "which architecture"),
}


def told(net: SuperNetwork, losses: torch.Tensor) -> None:
    searcher = Searcher(net, "macs<=60%")
    searcher.tell(searcher.ask(4), losses)


@pytest.mark.parametrize(("mistake", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_said(mistake, words: str, net: SuperNetwork) -> None:
    with pytest.raises(UserError, match=words):
        mistake(net)


def test_it_works_in_a_loop_of_accelerate(net: SuperNetwork) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    x, y = vectors(96)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32)
    searcher = Searcher(net, "macs<=60%", steps=12)
    model, optimizer, batches = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), 3e-3), data)
    seen: list[float] = []
    for _ in range(8):
        for inputs, targets in batches:
            draw = searcher.ask(4)
            losses = F.cross_entropy(model(inputs, draw.gates), targets, reduction="none").view(4, -1).mean(1)
            optimizer.zero_grad()
            accelerator.backward(losses.mean())
            optimizer.step()
            searcher.tell(draw, losses)
            seen.append(float(losses.detach().mean()))
    assert sum(seen[-3:]) < sum(seen[:3]), "the shared weights learn"
    found: Architecture = searcher.candidates(1)[0]
    assert searcher.certify(searcher.extract(found)).holds
