"""The rule for sums in place: every combination of terms that may be written to, against what may not happen."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from budgetnet.network.executor.rows import gather
from budgetnet.network.executor.sums import add_up, in_place, writes_into_input

ALL = [own for count in (1, 2, 3, 4) for own in itertools.product([False, True], repeat=count)]


@pytest.mark.parametrize("own", ALL)
def test_only_terms_that_may_be_written_to_are(own: tuple[bool, ...]) -> None:
    order, written, fresh = add_up(own)
    assert sorted(order) == list(range(len(own)))
    assert written is own[order[0]]
    assert written or not any(own[:2]), "a new tensor is made only if neither of the first two may be written to"
    assert fresh is (len(own) > 1 or own[0])


@pytest.mark.parametrize("own", ALL)
def test_the_executor_writes_into_at_most_the_first_of_the_order(own: tuple[bool, ...]) -> None:
    terms = [torch.full((2,), float(10**i)) for i in range(len(own))]
    total = gather(terms, [None] * len(own), 2, None, own)
    assert total.tolist() == [float("1" * len(own))] * 2
    changed = [i for i, term in enumerate(terms) if term[0] != 10**i]
    order, written, _ = add_up(own)
    assert changed == ([order[0]] if written and len(own) > 1 else [])


def test_an_activation_is_in_place_only_on_a_fresh_sum_and_only_if_it_can_be() -> None:
    relu, tanh = nn.ReLU(), nn.Tanh()
    assert in_place(relu, fresh=False) is relu
    assert in_place(tanh, fresh=True) is tanh
    made = in_place(relu, fresh=True)
    assert isinstance(made, nn.ReLU)
    assert made.inplace
    assert (writes_into_input(relu), writes_into_input(tanh), writes_into_input(nn.ReLU6())) == (True, False, False)
