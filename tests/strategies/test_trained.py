"""The recipe for trained weights: its start, its candidates, its race, and resuming at any phase with the same bits."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks._resnet import HandResNet
from budgetnet import from_model
from budgetnet.budgets.budget import parse_all, within_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.errors import UserError
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import Kept
from budgetnet.strategies.candidates import Candidates, kept_last, stages_of
from budgetnet.strategies.importance import measure
from budgetnet.strategies.moves import Moves
from budgetnet.strategies.named import choose
from budgetnet.strategies.runner import Runner
from budgetnet.strategies.start import IMPORTANT, importance_start, marginal_costs, needed_units
from budgetnet.strategies.state import DONE, SearchState
from budgetnet.strategies.trained import (
    CANDIDATES,
    CHEAP_SHARE,
    TrainedRecipe,
    Worth,
    knapsack,
    narrow_enough,
    narrowed,
    thinned,
)
from budgetnet.strategies.widths import random_widths, uniform_widths
from budgetnet.training.distillation import DistilledStep, Teacher
from budgetnet.training.evaluation import evaluate
from budgetnet.training.tasks import Task
from tests.models import UNet
from tests.small_runs import make_runner, vectors
from tests.trained_runs import quick, small_resnet, table_net, trained_mlp

PHASES = ("importance", "choose", "race", "finish", DONE)


def runner(budget: str = "macs<=50%", recipe: TrainedRecipe | None = None, **options: Any) -> Runner:
    return make_runner([budget], table_net(), recipe or quick(), **options)


def kept_units(net: SuperNetwork, gates: torch.Tensor) -> list[tuple[int, int]]:
    """How many units of each bundle are kept, and how many there are."""
    return [(int(gates[list(units)].sum()), len(units)) for units in net.graph.bundles.values()]


def test_gamma_starts_at_importance_per_cost_with_the_budget_met_in_the_mean() -> None:
    net = table_net()
    found = measure(net, Task(), [vectors(64)])
    for text in ("macs<=30%", "macs<=60%", "params<=80%"):
        budgets = parse_all([text], net)
        start = importance_start(budgets, net.graph, found.edges, check(profile(budgets)))
        assert start.regime == IMPORTANT
        gates = start.distribution(net.graph).sample(400, torch.Generator().manual_seed(5), connected=True).gates
        mean = float(budgets[0].meter.evaluate(gates).mean()) / budgets[0].maximum
        assert 0.75 < mean < 1.05, text
        worth = found.edges / marginal_costs(budgets, net.graph).clamp_min(1e-9)
        free = ~(net.graph.fixed | needed_units(net.graph, found.edges))
        order = worth[free].argsort()
        assert bool((start.logits[free][order].diff() >= 0).all()), "the more important for its cost, the likelier"


def test_uniform_widths_keep_the_same_share_of_every_layer_and_random_widths_do_not() -> None:
    torch.manual_seed(0)
    net = from_model(small_resnet(), torch.zeros(2, 3, 16, 16), slices=4)
    budgets = parse_all(["macs<=50%"], net)
    weights = marginal_costs(budgets, net.graph).tolist()
    moves = Moves(net.graph, budgets, torch.zeros(len(net.graph.edges)), weights, torch.Generator().manual_seed(0))
    uniform = uniform_widths(moves)
    assert uniform is not None
    shares = [kept / of for kept, of in kept_units(net, uniform)]
    assert max(shares) - min(shares) <= 1 / 4, "up to one unit"
    several = [random_widths(moves) for _ in range(4)]
    for gates in (uniform, *several):
        assert gates is not None
        assert bool(within_all(budgets, gates[None])[0])
        for units in net.graph.bundles.values():
            kept = gates[list(units)].tolist()
            assert kept == sorted(kept, reverse=True), "widths are filled from the first unit on"
    widths = {tuple(kept for kept, _ in kept_units(net, gates)) for gates in several if gates is not None}
    assert len(widths) > 1


def test_a_search_goes_through_its_phases_and_keeps_its_budget() -> None:
    kept = Kept()
    made = runner(sink=kept)
    outcome = made.run()
    assert [r.phase for r in kept.records if r.kind == "phase"] == list(PHASES[:-1])
    assert made.state.budgets[0].meter(outcome.architecture) <= made.state.budgets[0].maximum
    assert made.state.inherited is not None
    assert made.state.inherited.losses.keys() == {"chosen", "uniform"}, "uniform widths always race"
    assert all(math.isfinite(loss) for loss in made.state.inherited.losses.values())
    _, full = evaluate(trained_mlp(), Task(), made.trainer.validation.evaluation())
    _, found = evaluate(outcome.model, Task(), made.trainer.validation.evaluation())
    assert found > full - 0.1, "half of the network keeps most of what it can"


def test_the_candidates_include_knapsacks_uniform_and_random_widths() -> None:
    made = runner()
    importance, chooser = made.phases[0], made.phases[1]
    state = importance.run(made.state, made.trainer)
    candidates = chooser.candidates(state, made.trainer)  # type: ignore[attr-defined]
    seen: list[bytes] = []

    def score(gates: torch.Tensor) -> float:
        seen.append(gates.numpy().tobytes())
        return float(len(seen))

    Worth().rank(candidates, state.fallback.gates(), score, CANDIDATES)
    moves = candidates.moves("widths")
    wanted = [knapsack(candidates), narrowed(candidates), uniform_widths(moves), random_widths(moves)]
    for gates in wanted:
        assert gates is not None
        assert state.net.graph.live(gates[None])[0].numpy().tobytes() in seen


def test_racers_inherit_their_weights() -> None:
    """With nothing to learn, the finished network is the trained one as far as it was kept."""
    made = runner("macs<=100%", quick(lr=1e-12, weight_decay=0.0, racers=1))
    outcome = made.run()
    assert len(outcome.architecture) == len(made.state.net.graph.edges)
    held = [parameter.detach() for parameter in made.state.net.parameters()]
    for value in outcome.model.parameters():
        assert any(other.shape == value.shape and torch.allclose(other, value) for other in held)
    for given, value in zip(trained_mlp().parameters(), outcome.model.parameters(), strict=True):
        assert torch.allclose(given.flatten().sort().values, value.flatten().sort().values), "only their order changed"


def test_resumed_at_any_phase_it_ends_with_the_same_bits() -> None:
    saved: list[dict[str, Any]] = []

    def taught() -> DistilledStep:
        return DistilledStep(Teacher(trained_mlp()))

    recipe = quick()
    expected = runner(recipe=recipe, alone=taught(), save=lambda state: saved.append(copied(state))).run()
    phases = [state["phase"] for state in saved]
    assert set(phases) == set(PHASES[1:])
    for state in saved:
        again = runner(recipe=recipe, alone=taught())
        again.load_state_dict(state)
        outcome = again.run()
        assert outcome.architecture == expected.architecture
        weights = outcome.model.state_dict()
        assert all(torch.equal(weights[name], value) for name, value in expected.model.state_dict().items())


def copied(value: Any) -> Any:
    """A state as a checkpoint would keep it."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return type(value)(copied(item) for item in value) if type(value) in (list, tuple) else value


def test_a_recipe_by_name_with_options_and_what_it_refuses() -> None:
    recipe = choose("trained:racers=4,importance_examples=64", 6, "classification")
    assert isinstance(recipe, TrainedRecipe)
    assert (recipe.racers, recipe.importance_examples, recipe.finish_epochs) == (4, 64, 6)
    assert not recipe.keeps_initial_weights
    for text in ("trained:importance_examples=0", "trained:search_epochs=1", "trained:policy_lr=1"):
        with pytest.raises(UserError):
            choose(text, 6, "classification")
    with pytest.raises(UserError, match="no epochs of warm-up or search"):
        recipe.changed({"search_epochs": 1.0})
    with pytest.raises(UserError, match="fast, trained or paper"):
        choose("best", 6, "classification")


def prepared(budget: str) -> tuple[Runner, SearchState, Any]:
    """A search after its importance pass, and the phase that chooses."""
    made = runner(budget)
    return made, made.phases[0].run(made.state, made.trainer), made.phases[1]


def test_a_narrowed_network_keeps_something_of_every_layer_and_comes_first_where_that_is_enough() -> None:
    made, state, chooser = prepared("macs<=60%")
    candidates = chooser.candidates(state, made.trainer)
    assert narrow_enough(candidates)
    gates = narrowed(candidates)
    assert gates is not None
    assert all(kept >= 1 for kept, _ in kept_units(state.net, gates))
    ranked = Worth().rank(candidates, state.fallback.gates(), lambda row: -float(row.sum()), 50)
    assert torch.equal(ranked[0], state.net.graph.live(gates[None])[0]), "whatever the scores say"
    racers = chooser.field(state, candidates, [state.net.graph.architecture(one) for one in ranked])
    assert state.inherited is not None
    wanted = [row.tolist() for row in (ranked[0], state.inherited.uniform) if row is not None]
    assert all(row.tolist() in wanted for row in racers)


def test_where_narrowing_is_not_enough_the_best_candidate_races_uniform_widths() -> None:
    """Steps do not depend on widths, so that narrowing saves none."""
    for budgets, enough in (("macs<=50%", True), ("steps(1)<=100%", False)):
        made, state, chooser = prepared(budgets)
        candidates = chooser.candidates(state, made.trainer)
        assert narrow_enough(candidates) is enough
        ranked = Worth().rank(candidates, state.fallback.gates(), lambda row: float(row.sum()), 12)
        assert bool(within_all(candidates.budgets, torch.stack(ranked)).all())
        racing = chooser.field(state, candidates, [state.net.graph.architecture(one) for one in ranked])
        assert state.inherited is not None
        assert state.inherited.uniform is not None
        wanted = (ranked[0], state.inherited.uniform)
        assert 1 <= len(racing) <= 2
        assert all(any(torch.equal(row, gates) for row in racing) for gates in wanted)


@pytest.mark.parametrize(("budget", "enough"), [("macs<=85%", True), ("macs<=70%", False), ("steps(1)<=90%", False)])
def test_narrowing_is_enough_where_it_leaves_a_choice(budget: str, enough: bool) -> None:
    """Half of every layer costs half of the multiply-adds, which two thirds of a budget may be, and every step."""
    candidates = proposing(budget, slices=2)
    (limit,) = candidates.budgets
    assert candidates.kept_last is not None
    smallest = float(limit.meter.evaluate(candidates.kept_last[None])[0])
    assert smallest > CHEAP_SHARE * limit.meter.full
    assert (smallest <= 2 / 3 * limit.maximum) is enough
    assert narrow_enough(candidates) is enough


def test_cheap_narrow_layers_are_kept_even_if_nothing_is_left_to_choose() -> None:
    """An eighth of every layer of a ResNet-20 costs about an eighth of its multiply-adds: no branch has to go."""
    candidates = proposing("macs<=15%")
    (budget,) = candidates.budgets
    assert candidates.kept_last is not None
    smallest = float(budget.meter.evaluate(candidates.kept_last[None])[0])
    assert 2 / 3 * budget.maximum < smallest <= CHEAP_SHARE * budget.meter.full
    assert narrow_enough(candidates)
    assert not narrow_enough(proposing(f"macs<={0.99 * smallest:.0f}")), "out of reach by narrowing"


def test_something_of_a_layer_is_two_channels_if_its_units_are_single_ones() -> None:
    """Two units of a layer that has one channel in each, one of a layer that has more."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    net = from_model(model, torch.zeros(2, 4), slices=3)
    sizes = [int(kept_last(net)[list(units)].sum()) for units in net.graph.bundles.values()]
    assert [len(units) for units in net.graph.bundles.values()] == [3, 3]
    assert sizes == [2, 1]
    assert kept_last(net)[: sizes[0]].all(), "the first ones, which are the most important"
    wide = from_model(HandResNet(16), torch.zeros(2, 3, 16, 16))
    assert int(kept_last(wide).sum()) == 9 + sum(edge.bundle is None for edge in wide.graph.edges)


def test_a_network_is_narrowed_to_no_single_channel() -> None:
    """Of the U-Net's eight narrow layers, whatever the importance says."""
    net = from_model(UNet(classes=3), torch.zeros(2, 3, 16, 16))
    budgets = parse_all(["macs<=50%"], net)
    for seed in range(3):
        source = torch.Generator().manual_seed(seed)
        importance = torch.rand(len(net.graph.edges), generator=source, dtype=torch.float64) ** 8
        told = (importance, stages_of(net), kept_last(net))
        distribution = importance_start(budgets, net.graph, importance, check(profile(budgets))).distribution(net.graph)
        candidates = Candidates(net.graph, budgets, distribution, lambda purpose, source=source: source, list, *told)
        gates = narrowed(candidates)
        assert gates is not None
        assert min(kept for kept, _ in kept_units(net, gates)) >= 2
        model = extract(net, net.graph.architecture(gates))
        widths = [module.out_channels for module in model.modules() if isinstance(module, nn.Conv2d)]
        assert min(widths) >= 2


def test_a_thinned_network_drops_branches_of_every_stage_the_least_important_of_each_first() -> None:
    """Importances of another stage do not count, however large they are; what is filled up is one branch in part."""
    candidates = proposing("macs<=35%")
    graph = candidates.graph
    assert candidates.importance is not None
    places = {edge.name: place for place, edge in enumerate(graph.edges)}
    branches = [places[f"blocks.{number}.branch"] for number in range(9)]
    importance = candidates.importance.clone()
    importance[branches] = torch.tensor([900.0, 700, 800, 0.9, 0.7, 0.8, 0.009, 0.008, 0.007], dtype=torch.float64)
    candidates = replace(candidates, importance=importance)
    gates = thinned(candidates)
    assert gates is not None
    assert bool(within_all(candidates.budgets, gates[None]).all())
    live = graph.live(gates[None])[0]
    widths = [int(live[list(graph.bundles[f"blocks.{number}.conv1"])].sum()) for number in range(9)]
    assert all(bool(live[branch]) == (width > 0) for branch, width in zip(branches, widths, strict=True))
    assert sum(0 < width < 8 for width in widths) <= 2, "narrowed is only what fills the budget up"
    for first, second, third in ((0, 2, 1), (3, 5, 4), (6, 7, 8)):
        assert widths[first] >= widths[second] >= widths[third] == 0
    assert all(widths[first] == 8 for first in (3, 6)), "the best of every stage"


def proposing(budget: str, slices: int = 8) -> Candidates:
    """The candidates of a ResNet-20, with the importance of noise."""
    torch.manual_seed(0)
    net = from_model(HandResNet(16), torch.zeros(2, 3, 16, 16), slices=slices)
    found = measure(net, Task(), [(torch.randn(4, 3, 16, 16), torch.randint(10, (4,)))])
    budgets = parse_all([budget], net)
    start = importance_start(budgets, net.graph, found.edges, check(profile(budgets)))
    distribution = start.distribution(net.graph)
    source = torch.Generator()
    told = (found.edges, stages_of(net), kept_last(net))
    return Candidates(net.graph, budgets, distribution, lambda purpose: source, list, *told)
