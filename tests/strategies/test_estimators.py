"""Baselines and losses against the formulas of the paper and exact expectations."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from budgetnet.errors import UserError
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.executor.plan import group_of_rows
from budgetnet.network.graph import Edge, Graph
from budgetnet.strategies.estimators import batch_mean, leave_one_out, score_function_loss
from budgetnet.training.tasks import group_means
from tests.random_graphs import examples

VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=12)


@given(VALUES)
@examples(50)
def test_leave_one_out_subtracts_the_mean_of_the_others(values: list[float]) -> None:
    found = leave_one_out(torch.tensor(values, dtype=torch.float64)).tolist()
    for i, value in enumerate(values):
        others = values[:i] + values[i + 1 :]
        assert found[i] == pytest.approx(value - sum(others) / len(others), abs=1e-9)


@given(VALUES)
@examples(50)
def test_leave_one_out_is_the_papers_baseline_up_to_a_factor(values: list[float]) -> None:
    objective = torch.tensor(values, dtype=torch.float64)
    torch.testing.assert_close(leave_one_out(objective), batch_mean(objective) * len(values) / (len(values) - 1))
    assert float(batch_mean(objective).sum()) == pytest.approx(0, abs=1e-9)


def test_a_single_group_has_no_policy_gradient() -> None:
    assert batch_mean(torch.tensor([3.0])).tolist() == [0]
    with pytest.raises(UserError, match=r"1 architecture per batch.*use 2 groups or more"):
        leave_one_out(torch.tensor([3.0]))


@given(st.integers(1, 20), st.integers(1, 20))
@examples(50)
def test_group_means_are_the_means_of_the_groups(batch: int, groups: int) -> None:
    groups = min(batch, groups)
    values, group = torch.randn(batch, dtype=torch.float64), group_of_rows(batch, groups)
    expected = torch.stack([values[group == g].mean() for g in range(groups)])
    torch.testing.assert_close(group_means(values, group, groups), expected)


def test_group_means_carry_gradients_to_every_example() -> None:
    values = torch.randn(5, requires_grad=True)
    group_means(values, group_of_rows(5, 2), 2).sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2]))


def test_the_advantage_is_a_constant() -> None:
    log_prob, objective = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    score_function_loss(log_prob, leave_one_out(objective)).backward()
    assert objective.grad is None
    torch.testing.assert_close(log_prob.grad, leave_one_out(objective).detach())


@pytest.mark.parametrize("baseline", [leave_one_out, batch_mean])
def test_the_estimator_is_unbiased_over_every_pair_of_samples(baseline) -> None:  # type: ignore[no-untyped-def]
    graph = Graph([Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("c", "x", "z")])
    gamma = EdgeDistribution(graph).double()
    gamma.logits.data = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)
    every = torch.tensor([row for row in itertools.product([False, True], repeat=3) if row[0] or not row[1]])
    objective = torch.tensor([3.0, -1.0, 0.5, 2.0, 7.0, -4.0], dtype=torch.float64)
    p = gamma.log_prob(every).exp()
    assert float(p.detach().sum()) == pytest.approx(1)
    (truth,) = torch.autograd.grad((p * objective).sum(), gamma.logits)
    mean = torch.zeros(3, dtype=torch.float64)
    for pair in itertools.product(range(len(every)), repeat=2):
        loss = score_function_loss(gamma.log_prob(every[list(pair)]), baseline(objective[list(pair)]))
        (gradient,) = torch.autograd.grad(loss, gamma.logits)
        mean += p[pair[0]].detach() * p[pair[1]].detach() * gradient
    samples = 2 if baseline is leave_one_out else 1  # the batch mean shrinks the sum over G samples by (G − 1)/G
    torch.testing.assert_close(mean, samples * truth)
