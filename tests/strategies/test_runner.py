"""A run through its phases: the budgets that its results keep, interruption, faults, and the paper's recipe."""

import copy
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.data.feeds import make_feed
from budgetnet.errors import Interrupted, UserError
from budgetnet.network.distribution import Draw
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import Kept
from budgetnet.strategies.paper import PaperRecipe, paper
from budgetnet.strategies.runner import Runner
from budgetnet.strategies.sampling import PER_EXAMPLE
from budgetnet.strategies.state import DONE
from budgetnet.training import trainer as trainer_module
from budgetnet.training.evaluation import evaluate, recalibrate
from budgetnet.training.metrics import cross_entropy
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer
from tests.random_graphs import small_space
from tests.small_runs import make_runner, mlp, short, vectors, weight_of

PHASES = ("warm-up", "search", "choose", "race", "finish", DONE)


def same_state(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Equal weights and architecture."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_search_goes_through_its_phases_and_records_them() -> None:
    kept = Kept()
    outcome = make_runner(sink=kept).run()
    assert [r.phase for r in kept.records if r.kind == "phase"] == list(PHASES[:-1])
    epochs = Counter(r.phase for r in kept.records if r.kind == "epoch")
    racers = sum(r.kind == "racer" for r in kept.records)
    assert epochs == {"warm-up": 1, "search": 2, "race": racers, "finish": 1}, "the race is an epoch of the finish"
    assert 2 <= racers <= 6
    assert not any(r.kind == "candidate" for r in kept.records), "shared weights choose nobody"
    epochs_of_search = [r for r in kept.records if r.kind == "epoch" and r.phase == "search"]
    for name in ("loss", "accuracy", "entropy", "cost/macs", "violation/macs", "lambda/macs", "lr", "policy_lr"):
        assert all(math.isfinite(r.values[name]) for r in epochs_of_search), name
    assert all(len(r.values["probabilities"]) == 6 for r in epochs_of_search)
    steps = [r for r in kept.records if r.kind == "step" and r.phase == "search"]
    assert len(steps) == 10
    assert {"cost/macs", "lambda/macs", "violation/macs"} <= steps[0].values.keys()
    assert set(outcome.seconds) == set(PHASES[:-1])
    assert {entry.phase for entry in outcome.archive} == {"search"}


@pytest.mark.parametrize(("seconds", "epochs"), [(1e9, 0), (-1.0, 2 + 3 + 4)])
def test_every_phase_is_kept_and_an_epoch_that_took_a_while(
    seconds: float, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint after every short epoch would cost more than it could save."""
    monkeypatch.setattr(trainer_module, "EPOCH_SECONDS", seconds)
    saved: list[tuple[str, int]] = []
    recipe = short(warmup_epochs=2, search_epochs=3, finish_epochs=4, racers=1)
    make_runner(recipe=recipe, save=lambda state: saved.append((state["phase"], state["step"]))).run()
    assert [phase for phase, step in saved if step == 0] == list(PHASES[1:])
    assert sum(step > 0 for _, step in saved) == epochs


def test_the_network_that_comes_back_learned_and_is_the_architecture() -> None:
    runner = make_runner(recipe=short(finish_epochs=6))
    outcome = runner.run()
    _, accuracy = evaluate(outcome.model, Task(), runner.trainer.validation.evaluation())
    assert accuracy > 0.8
    names = sum(parameter.numel() for parameter in outcome.model.parameters())
    assert names == make_runner(["params<=90%"]).state.budgets[0].meter(outcome.architecture)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    states = [dict(make_runner(seed=seed).run().model.state_dict()) for seed in (0, 0, 1)]
    assert same_state(states[0], states[1])
    assert not same_state(states[0], states[2])


COSTS: dict[str, list[Any]] = {
    "macs": ["macs<={}%"],
    "params": ["params<={}%"],
    "steps": ["steps(2)<={}%"],
    "callable": ["tests.small_runs:weigh<={}%"],
    "noisy": ["tests.small_runs:noisy<={}%"],
    "two": ["macs<={}%", "steps(2)<=80%"],
    "three": ["size<={}%", "tests.small_runs:joules<={}%", "steps(1)<=90%"],
}


@pytest.mark.parametrize("kind", COSTS)
def test_every_result_meets_its_budgets_or_was_refused_before_training(kind: str) -> None:
    outcomes = Counter[str]()
    for seed, share in enumerate((12, 27, 40, 58, 77)):
        torch.manual_seed(seed)
        net = mlp(seed=seed) if seed % 2 else mlp(4, seed=seed)
        recipe = short(warmup_epochs=0.4, search_epochs=0.8, finish_epochs=0.4)
        try:
            runner = make_runner([text.format(share) for text in COSTS[kind]], net, recipe, seed)
        except UserError as error:
            outcomes["refused" if "cannot be met" in str(error) or "not together" in str(error) else str(error)] += 1
            continue
        architecture = runner.run().architecture
        assert architecture.connected
        for budget in runner.state.budgets:
            value = weight_of(architecture.live()) if kind == "noisy" else budget.meter(architecture)
            assert value <= budget.maximum, (seed, share)
        outcomes["met"] += 1
    assert outcomes["met"] >= 2
    assert outcomes.keys() <= {"met", "refused"}


def test_the_budget_is_used() -> None:
    """Nothing that is not there already would fit into what is left."""
    runner = make_runner(["macs<=70%"])
    architecture = runner.run().architecture
    for edge in runner.state.net.graph.edges:
        if edge.name not in architecture.kept:
            more = Architecture(runner.state.net.graph, architecture.kept | {edge.name})
            assert (
                edge.name not in more.live().kept
                or runner.state.budgets[0].meter(more) > runner.state.budgets[0].maximum
            )


def test_a_cost_that_depends_on_the_batch_receives_it() -> None:
    def per_input(net: SuperNetwork) -> object:
        return lambda architecture, batch: len(architecture.live()) * float(batch.shape[1])

    runner = make_runner([(per_input, 4 * 6.0)])
    architecture = runner.run().architecture
    assert len(architecture.live()) <= 4


def at(state: dict[str, Any]) -> int:
    """The step of a saved state in its phase."""
    race = state["race"]
    behind = 0 if race is None else sum(len(t) * s for t, (s, _) in zip(race["losses"], race["rungs"], strict=False))
    return int(state["step"] + behind)


@pytest.mark.parametrize("stop", [3, 7, 14, 17, 20, 23, 26])
def test_a_run_interrupted_after_any_step_goes_on_as_if_nothing_had_been(stop: int) -> None:
    whole, parts = Kept(), Kept()
    expected = make_runner(sink=whole).run()
    saved: list[dict[str, Any]] = []
    calls = iter(range(1000))
    runner = make_runner(sink=parts, save=saved.append, should_stop=lambda: next(calls) >= stop)
    with pytest.raises(Interrupted):
        runner.run()
    again = make_runner(net=mlp(seed=5), sink=parts)
    torch.manual_seed(77)
    again.load_state_dict(saved[-1])
    phase, step = saved[-1]["phase"], at(saved[-1])
    outcome = again.run()
    assert same_state(dict(outcome.model.state_dict()), dict(expected.model.state_dict()))
    assert outcome.architecture == expected.architecture
    assert [entry.loss for entry in outcome.archive] == [entry.loss for entry in expected.archive]
    begun = next(
        i for i, r in enumerate(whole.records) if (PHASES.index(r.phase), r.step) > (PHASES.index(phase), step)
    )
    tail = [(r.kind, r.phase, r.step, r.values) for r in whole.records[begun:]]
    assert [(r.kind, r.phase, r.step, r.values) for r in parts.records[-len(tail) :]] == tail


class Failing:
    """A loss that is not a number from some call on."""

    def __init__(self, first: int, value: float = math.nan) -> None:
        self.calls, self.first, self.value = 0, first, value

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return cross_entropy(outputs, targets) * (self.value if self.calls > self.first else 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("first", [0, 7, 12])
def test_a_loss_that_is_no_number_stops_the_run_with_a_sentence(first: int, value: float) -> None:
    saved: list[dict[str, Any]] = []
    runner = make_runner(save=lambda state: saved.append(copy.deepcopy(state)))
    runner.trainer.task = Task(Failing(first, value))
    with pytest.raises(UserError, match=r"^the loss is (nan|inf) in step \d+ of the (warm-up|search) phase"):
        runner.run()
    again = make_runner(lr_scale=0.3)
    if saved:
        again.load_state_dict(saved[-1])
    assert again.run().architecture.connected


def test_momentum_may_be_zero() -> None:
    assert make_runner(recipe=short(momentum=0.0)).run().architecture.connected


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("phase", ["warm-up", "search", "race", "finish"])
def test_a_diverging_run_leaves_a_checkpoint_from_which_a_lower_rate_goes_on(phase: str, steps: int) -> None:
    """The step before the loss turns bad has already spoiled the weights: they must not be the last good checkpoint."""
    times = {"warmup_epochs": 2.0, "search_epochs": 2.0, "finish_epochs": 2.0}
    recipe = short(batch_size=160 // steps, **times)
    calm, saved = make_runner(recipe=recipe), []
    calm.trainer.save = lambda state: saved.append(copy.deepcopy(state))
    calm.run()
    start = next(state for state in saved if state["phase"] == phase) if phase != "warm-up" else None
    kept: list[dict[str, Any]] = [] if start is None else [start]
    wild = make_runner(recipe=recipe, save=lambda state: kept.append(copy.deepcopy(state)), lr_scale=1e30)
    if start is not None:
        wild.load_state_dict(copy.deepcopy(start))
    with pytest.raises(UserError):
        wild.run()
    again = make_runner(recipe=recipe, lr_scale=0.1)
    if kept:
        values = [*(kept[-1]["weights"] or {}).values(), *(kept[-1]["net"] or {}).values()]
        assert values
        assert all(bool(value.isfinite().all()) for value in values)
        again.load_state_dict(kept[-1])
    assert again.run().architecture.connected


def test_the_time_limit_ends_every_phase_and_the_network_is_finished() -> None:
    times = {"warmup_epochs": 400, "search_epochs": 4000, "race_epochs": 4000, "finish_epochs": 40_000}
    recipe = short(**times)
    runner = make_runner(recipe=recipe, max_time=3.0)
    outcome = runner.run()
    assert runner.trainer.elapsed() < 6
    assert outcome.architecture.connected
    assert all(outcome.seconds[phase] > 0 for phase in PHASES[:-1])
    assert runner.state.budgets[0].meter(outcome.architecture) <= runner.state.budgets[0].maximum


def tiny_paper(**changes: Any) -> PaperRecipe:
    return replace(paper(6), batch_size=20, **changes)


def test_the_paper_recipe_draws_per_example_and_takes_the_mode_without_finish() -> None:
    kept = Kept()
    runner = make_runner(["macs<=90%"], recipe=tiny_paper(), sink=kept)
    drawn: list[tuple[int, dict[str, bool]]] = []
    sample = runner.state.searching.distribution.sample

    def observed(n: int, source: torch.Generator, **how: bool) -> Draw:
        drawn.append((n, how))
        return sample(n, source, **how)

    runner.state.searching.distribution.sample = observed  # type: ignore[method-assign]
    outcome = runner.run()
    assert all(one == (20, {"stratified": False, "connected": False}) for one in drawn)
    assert tiny_paper().groups == PER_EXAMPLE
    assert {r.phase for r in kept.records if r.kind == "epoch"} == {"warm-up", "search"}
    assert outcome.architecture == runner.state.searching.distribution.mode().live()
    lambdas = {r.values["lambda/macs"] for r in kept.records if "lambda/macs" in r.values}
    assert lambdas == {tiny_paper().penalty}
    rates = [r.values["lr"] for r in kept.records if r.kind == "step"]
    assert [round(rate, 6) for rate in rates[:8]] == [0.1] * 8
    assert rates[-1] == pytest.approx(0.001)


def test_the_papers_warm_up_trains_the_whole_network_and_leaves_gamma() -> None:
    runner = make_runner(["macs<=50%"], recipe=tiny_paper(search_epochs=0))
    before = runner.state.searching.distribution.logits.detach().clone()
    outcome = runner.run()
    assert torch.equal(runner.state.searching.distribution.logits, before)
    assert outcome.architecture == runner.state.net.graph.full, "Γ is at 3 everywhere"
    assert runner.state.budgets[0].meter(outcome.architecture) > runner.state.budgets[0].maximum, "a soft constraint"


def test_a_fixed_architecture_is_trained_by_the_same_trainer() -> None:
    net = mlp()
    architecture = Architecture(net.graph, frozenset({"0-1", "1-3", "0-2"}))
    kept = Kept()
    recipe = short(finish_epochs=5).alone()
    train, validation = make_feed(vectors(160), 32, 0), make_feed(vectors(64, 1), 64, 0)
    trainer = Trainer(Task(), train, validation, recipe.make_optimizer, sink=kept)
    runner = Runner.of_fixed(recipe, net, [], architecture.live(), trainer, 0)
    outcome = runner.run()
    assert outcome.architecture == architecture.live()
    assert {r.phase for r in kept.records} == {"finish"}
    assert evaluate(outcome.model, Task(), runner.trainer.validation.evaluation())[1] > 0.8


def test_a_batch_of_one_example_does_not_stop_a_run() -> None:
    """A user's loader keeps its last, incomplete batch."""
    runner = make_runner()
    runner.trainer.train = make_feed(DataLoader(TensorDataset(*vectors(65)), batch_size=32), 32, 0)
    assert runner.run().architecture.connected


def test_recalibration_gives_the_statistics_of_the_batches_and_leaves_the_weights() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6)
    runner = make_runner()
    weights = norm.weight.detach().clone()
    recalibrate(norm, Task(), runner.trainer.train, batches=2)
    batches = [inputs for inputs, _ in runner.trainer.train.training(0)][:2]
    assert torch.allclose(norm.running_mean, torch.stack([b.mean(0) for b in batches]).mean(0), atol=1e-6)
    assert torch.equal(norm.weight, weights)
    assert norm.momentum == 0.1


def test_evaluation_is_the_mean_over_examples() -> None:
    runner = make_runner()
    model = nn.Linear(6, 3)
    loss, metric = evaluate(model, Task(), runner.trainer.train.evaluation())
    inputs, targets = vectors(160)
    outputs = model(inputs).detach()
    assert loss == pytest.approx(float(nn.functional.cross_entropy(outputs, targets)), rel=1e-5)
    assert metric == pytest.approx(float((outputs.argmax(1) == targets).float().mean()))


def test_images_go_through_the_phases_too() -> None:
    net = small_space("resnet-fabric", width=1, channels=2, classes=3)
    images = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = (images.float().mean((1, 2, 3)) > 127).long()
    recipe = short(warmup_epochs=1, search_epochs=1, finish_epochs=1)
    feed = make_feed((images, labels), 32, 0)
    budgets = parse_all(["macs<=50%", "steps(2)<=12"], net)
    fallback, trainer = check(profile(budgets)), Trainer(Task(), feed, feed, recipe.make_optimizer)
    start = recipe.start(budgets, net.graph, fallback)
    runner = Runner.of_search(recipe, net, budgets, fallback, start, trainer, 0)
    architecture = runner.run().architecture
    assert all(budget.meter(architecture) <= budget.maximum for budget in budgets)
