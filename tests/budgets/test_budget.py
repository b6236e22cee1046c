"""Budgets as people write them, the penalty, and the controller of the multiplier."""

from dataclasses import replace

import pytest
import torch

from budgetnet.budgets.budget import parse, parse_all, penalty, proven_within, within_all
from budgetnet.costs import macs, params, size, steps
from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.network.supernet import SuperNetwork
from tests import small_runs
from tests.random_graphs import every_gate_row
from tests.small_runs import mlp


@pytest.fixture(scope="module")
def net() -> SuperNetwork:
    return mlp()


@pytest.mark.parametrize(
    ("text", "name", "maximum"),
    [
        ("macs<=40.9M", "macs", 40.9e6),
        ("macs <= 40.9 M", "macs", 40.9e6),
        ("macs≤40.9M", "macs", 40.9e6),
        ("macs<=1e3", "macs", 1e3),
        ("macs<=2kmacs", "macs", 2e3),
        ("macs(paper)<=7", "macs(paper)", 7),
        ("params<=0.27M", "params", 0.27e6),
        ("size<=500kB", "size", 500e3),
        ("size<=0.5KiB", "size", 512),
        ("steps(4)<=20", "steps(4)", 20),
        ("steps( 4, dfs )<=20", "steps(4,dfs)", 20),
        ("steps(machines=2)<=20", "steps(machines=2)", 20),
        ("tests.small_runs:joules<=300mJ", "tests.small_runs:joules", 0.3),
        ("tests.small_runs:weigh<=3", "tests.small_runs:weigh", 3),
    ],
)
def test_what_is_written_is_what_is_meant(net: SuperNetwork, text: str, name: str, maximum: float) -> None:
    budget = parse(text, net, own=own_names(text))
    assert budget.name == name
    assert budget.maximum == pytest.approx(maximum, rel=1e-12)
    assert budget.text == text


def test_a_share_is_of_the_full_network(net: SuperNetwork) -> None:
    full = net.graph.full
    assert parse("macs<=60%", net).maximum == pytest.approx(0.6 * macs(net)(full))
    assert parse("params<=12.5 %", net).maximum == pytest.approx(0.125 * params(net)(full))
    assert parse("size<=100%", net).maximum == size(net)(full)
    assert parse("steps(2)<=50%", net).maximum == steps(net, 2)(full) / 2


def test_a_cost_of_ones_own_by_its_short_name_and_as_a_pair(net: SuperNetwork) -> None:
    short = parse("joules<=3J", net, {"joules": "tests.small_runs:joules"}, own=["tests.small_runs:joules"])
    assert (short.maximum, short.meter.unit) == (3.0, "J")
    pair = parse((small_runs.joules, 3), net)
    assert (pair.name, pair.maximum, pair.meter.unit) == ("joules", 3.0, "J")
    assert pair.meter(net.graph.full) == short.meter(net.graph.full) == small_runs.weight_of(net.graph.full)
    assert parse(("steps(2)", 7), net).name == "steps(2)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a budget"),
        ("macs", "not a budget"),
        ("macs<=", "not a budget"),
        ("<=5", "not a budget"),
        ("macs<5", "not a budget"),
        ("macs>=5", "not a budget"),
        ("macs<=12 xs", "'12 xs'"),
        ("macs<=12ms", "'12ms'"),
        ("macs<=many", "'many'"),
        ("macs<=3<=4", "'3<=4'"),
        ("macs<=-5M", "above zero"),
        ("macs<=0", "above zero"),
        ("macs<=1e999", "finite"),
        ("macs<=-5%", "above zero"),
        ("macs<=nan%", "finite"),
        ("macs<=inf%", "finite"),
        ("macs<=half%", "'half%'"),
        ("size<=500", "'500'"),
        ("flops<=3", "'flops'"),
        ("macs(true<=3", "does not name a cost"),
        ("macs(wrong)<=3", "'wrong'"),
        ("macs(true,true)<=3", "does not take"),
        ("steps<=20", "needs machines"),
        ("steps(0)<=20", "0"),
        ("steps(-1)<=20", "-1"),
        ("steps(x)<=20", "'x'"),
        ("steps(2,best)<=20", "'best'"),
        ("no_such_module:cost<=3", "cannot be imported"),
        ("tests.small_runs:nothing<=3", "nothing named 'nothing'"),
        ("tests.small_runs:INPUTS<=3", "callable"),
        ("tests.small_runs:not_a_cost<=3", "gave a float"),
        ("tests.small_runs:raising<=30%", "raised ZeroDivisionError: by hand"),
        ("tests.small_runs:not_a_number<=30%", "is nan"),
        ("tests.small_runs:negative<=30%", "is -1.0"),
    ],
)
def test_a_bad_budget_is_refused_with_what_was_written(net: SuperNetwork, text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        parse(text, net, own=own_names(text))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("maximum", ["abc", None, float("nan"), -1, 0])
def test_a_bad_pair_is_refused(net: SuperNetwork, maximum: float) -> None:
    with pytest.raises(UserError):
        parse(("macs", maximum), net)


def test_something_else_than_a_budget_is_refused(net: SuperNetwork) -> None:
    with pytest.raises(UserError, match="is not a budget"):
        parse(7, net)  # type: ignore[arg-type]


def test_two_budgets_for_one_cost_are_refused(net: SuperNetwork) -> None:
    with pytest.raises(UserError, match="limit the same cost"):
        parse_all(["macs<=60%", "params<=60%", "macs <= 50%"], net)


def test_penalty_is_the_sum_of_weighted_hinges(net: SuperNetwork) -> None:
    budgets = parse_all([("macs", 100), ("params", 50)], net)
    costs = [torch.tensor([50.0, 150.0, 200.0]), torch.tensor([100.0, 50.0, 25.0])]
    assert penalty(budgets, costs, [2.0, 3.0]).tolist() == [3.0, 1.0, 2.0]
    looser = [replace(budget, maximum=2 * budget.maximum) for budget in budgets]
    assert penalty(looser, costs, [2.0, 3.0]).tolist() == [0.0, 0.0, 0.0]


def test_within_all_is_the_definition_for_every_architecture(net: SuperNetwork) -> None:
    budgets = parse_all(["macs<=50%", "steps(2)<=7"], net)
    gates = every_gate_row(net.graph)
    expected = []
    for row in gates:
        architecture = net.graph.architecture(row)
        inside = architecture.connected and macs(net)(architecture) <= 0.5 * macs(net)(net.graph.full)
        expected.append(inside and steps(net, 2)(architecture) <= 7)
    assert within_all(budgets, gates).tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_without_a_budget_nothing_can_be_within_it(net: SuperNetwork) -> None:
    with pytest.raises(UserError, match="no budget"):
        within_all([], net.graph.full.gates()[None])


def test_a_random_cost_holds_by_its_upper_bound(net: SuperNetwork) -> None:
    torch.manual_seed(0)
    value = small_runs.weight_of(net.graph.full)
    assert proven_within(parse_all([(small_runs.noisy, value * 1.05)], net), net.graph.full)
    assert not proven_within(parse_all([(small_runs.noisy, value * 0.99)], net), net.graph.full)
