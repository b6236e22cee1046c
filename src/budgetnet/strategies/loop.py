"""The one training loop: warm-up → search → settle → race → finish. A fixed architecture is trained by finish alone."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from budgetnet.budgets.budget import Budget
from budgetnet.data.feeds import Batch, Feed
from budgetnet.errors import Diverged, Interrupted
from budgetnet.network.distribution import Draw, EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork, call
from budgetnet.records.records import Record, Sink, Tally
from budgetnet.records.stopwatch import OFF, Untimed, timed
from budgetnet.strategies.archive import Archive, Evaluated
from budgetnet.strategies.candidates import Chooser
from budgetnet.strategies.capacity import capacity_of
from budgetnet.strategies.local_search import affordable, settle
from budgetnet.strategies.policy import Policy, equal_start, initial_logits
from budgetnet.strategies.race import RISE, Race
from budgetnet.strategies.recipes import PER_EXAMPLE, Recipe, learning_rate, phase_rate
from budgetnet.training.evaluation import evaluate
from budgetnet.training.tasks import Task

PHASES = ("warm-up", "search", "settle", "race", "finish")
LOOK = 1000
"""Validation examples of the look after each epoch; the result is judged on all of them."""
STEP_RECORDS = 20
"""Step records in an epoch."""
SNAPSHOTS = 60
"""Step records of a search that carry Γ."""
SAVE_SECONDS, EPOCH_SECONDS = 60.0, 5.0
"""Between checkpoints at most, and at least before one at the end of an epoch; the end of a phase is always kept."""
STEPS_BACK = 3
"""Finished networks that may fail their certificate before the smallest one is finished."""
EVIDENCE_BATCHES = 4
"""Batches that stand for the data where a cost depends on its input."""
DIVERGED = 1e8
"""A weight of this size is beyond saving."""

TIME_SHARES = {"warm-up": 0.02, "search": 0.12, "settle": 0.15, "race": 0.38, "finish": 0.92}
"""With a time limit: the share of it by which each phase ends. The rest is for the final evaluation and export."""


@dataclass(frozen=True)
class Outcome:
    """What the loop hands over. `runners_up` are the next best architectures, should the first fail its measurement."""

    architecture: Architecture
    model: fx.GraphModule
    seconds: Mapping[str, float]
    archive: Sequence[Evaluated]
    runners_up: Sequence[Architecture]


@dataclass
class Loop:
    """The loop and its state. Everything random follows from (seed, phase, step): a resumed run is the same run."""

    net: SuperNetwork
    task: Task
    train: Feed
    validation: Feed
    budgets: Sequence[Budget]
    recipe: Recipe
    fallback: Architecture
    """Meets every budget (checked before); or the architecture to train, if it is fixed."""
    seed: int = 0
    fixed: bool = False
    sink: Sink | None = None
    save: Callable[[dict[str, Any]], None] = lambda state: None
    should_stop: Callable[[], bool] = lambda: False
    max_time: float = math.inf
    lr_scale: float = 1.0
    watch: Untimed = OFF

    def __post_init__(self) -> None:
        self.race, self.raced = Race([]), 0.0
        self.policy = self._make_policy()
        self.phase, self.step = (len(PHASES) - 1, 0) if self.fixed else (0, 0)
        self.module: nn.Module = self.net
        self.architecture: Architecture | None = None
        self.fresh = {name: value.clone() for name, value in self.net.state_dict().items()} if self.recipe.races else {}
        self.runners_up: list[Architecture] = []
        self.steps_back = 0
        data = (self.net, self.task, self.train, self.validation)
        self.archive = Archive(*data, self.budgets, self.recipe.settle_examples or LOOK)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.interval, self.epoch_tally = Tally(), Tally()
        self._start, self._saved = time.monotonic(), time.monotonic()
        self.optimizer = self._make_optimizer()
        if self.fixed:
            self.single_out(self.fallback)

    def run(self) -> Outcome:
        """From where the state is to the end."""
        while self.phase < len(PHASES):
            name = PHASES[self.phase]
            self.watch.phase(name)
            if name == "settle":
                if self.recipe.settles:
                    self._settle()
                elif self.architecture is None:
                    self.single_out(self.policy.distribution.mode().live())
            elif name == "race":
                self._race()
            elif self.total_steps(name):
                self._train(name, self.total_steps(name))
            self._next_phase()
        assert self.architecture is not None
        assert isinstance(self.module, fx.GraphModule)
        return Outcome(self.architecture, self.module, self.seconds, self.archive.entries, self.runners_up)

    def _make_policy(self) -> Policy:
        distribution = EdgeDistribution(self.net.graph)
        with torch.no_grad():
            if not self.fixed:
                distribution.logits.copy_(initial_logits(self.recipe, self.budgets, self.net.graph, self.fallback))
        return Policy(distribution, self.budgets, self.recipe, max(1, self.total_steps("search")))

    def _make_optimizer(self) -> torch.optim.Optimizer:
        recipe = self.recipe
        return torch.optim.SGD(
            self.module.parameters(),
            recipe.lr,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov and recipe.momentum > 0,
            weight_decay=recipe.weight_decay,
            foreach=True,
        )

    def single_out(self, architecture: Architecture) -> None:
        """From here on, this architecture alone is trained, with the weights that it has in the super network."""
        self.architecture = architecture
        self.module = extract(self.net, architecture)
        self.optimizer = self._make_optimizer()

    def _next_phase(self) -> None:
        self.phase, self.step = self.phase + 1, 0
        self.interval.take()
        self.checkpoint()

    def total_steps(self, phase: str) -> int:
        """Steps of a training phase, or of a turn in the race or in its final; 0 if the recipe leaves it out."""
        recipe = self.recipe
        epochs = {
            "warm-up": recipe.warmup_epochs,
            "search": recipe.search_epochs,
            "race": recipe.race_epochs if recipe.races else 0.0,
            "final": recipe.final_epochs if recipe.final else 0.0,
            "finish": recipe.finish_epochs - self.raced,
        }[phase]
        return max(1, round(epochs * self.train.steps)) if epochs > 0 else 0

    @property
    def _done(self) -> int:
        """Steps of this phase so far; in the race, of the racer whose turn it is."""
        return self.step - self.race.behind if PHASES[self.phase] == "race" else self.step

    def _train(self, phase: str, total: int) -> None:
        """The steps of a phase, or those of one racer."""
        if self.step == 0:
            steps = self.race.total if phase == "race" else total
            self._record("phase", {"epochs": steps / self.train.steps, "steps": steps})
        while self._progress(phase, total) < 1:
            for batch in self.watch.each("data", self._batches(phase)):
                clock = time.monotonic()
                values = self.train_step(phase, batch, self._progress(phase, total))
                self.step += 1
                progress = self._progress(phase, total)
                done = progress >= 1
                if phase == "race":
                    self.race.observe(values["loss"], progress)
                self._after_step(values, len(batch[0]), done)
                self.seconds[phase] += time.monotonic() - clock
                self._maybe_save(SAVE_SECONDS if self._done % self.train.steps else EPOCH_SECONDS)
                if done:
                    break

    def _race(self) -> None:
        """Trains the racers on the same batches, from fresh weights; the one that learns best goes on to finish."""
        race = self.race
        while not race.over:
            if self._done == 0:
                self.single_out(self.net.graph.architecture(race.racers[race.place]))
                if race.final:
                    self.module.load_state_dict(race.weights[race.place])
            try:
                self._train("race", race.steps)
                result: dict[str, Any] = {"loss": race.finish(self.module.state_dict())}
            except Diverged as fault:
                if not race.withdraw():
                    raise
                result = {"diverged": str(fault)}
                self.interval.take()
                self.epoch_tally.take()
            self.step = race.behind
            self._record("racer", result)
        if race.racers:
            winner, *others = (self.net.graph.architecture(race.racers[place]) for place in race.ranked())
            self.single_out(winner)
            self.module.load_state_dict(race.weights[race.ranked()[0]])
            self.raced = self.recipe.race_epochs + (self.recipe.final_epochs if race.had_final else 0.0)
            self._set_aside(list(dict.fromkeys([*others, *self.runners_up])))
            self.race = Race([])

    def _progress(self, phase: str, total: int) -> float:
        """The share of a phase that is done: by steps or, under a time limit, by the clock if that is further."""
        by_steps = self._done / total
        deadline = self.max_time * TIME_SHARES[phase]
        if math.isinf(deadline) or by_steps == 0:
            return by_steps
        begun = self.elapsed() - self.seconds[phase]
        by_clock = self.seconds[phase] / max(deadline - begun, 1e-3)
        if phase == "race":
            by_clock = (by_clock * self.race.total - self.race.behind) / total
        return max(by_steps, by_clock)

    def _batches(self, phase: str) -> Iterator[Batch]:
        before = self.race.lengths[0] if phase == "race" and self.race.final else 0
        epoch, start = divmod(before + self._done, self.train.steps)
        return self.train.training(PHASES.index(phase) * 100_000 + epoch, start)

    def train_step(self, phase: str, batch: Batch, progress: float) -> dict[str, float]:
        """One step of θ and, in the search phase, of Γ and the multipliers; returns what is worth recording."""
        inputs, targets = batch
        draw = self._draw(phase, len(inputs))
        self.module.train()
        rate = self._learning_rate(phase, progress) * self.lr_scale
        groups = 1 if draw is None else len(draw.gates)
        with self.watch.part("forward"):
            outputs = call(self.module, inputs) if draw is None else self.module(inputs, draw.gates)
            losses = self.task.group_losses(outputs, targets, groups)
            loss = losses.mean()
            value = float(loss.detach())
        if not math.isfinite(value):
            raise self._fault(f"the loss is {value}")
        self._descend(loss, rate)
        values = {"loss": value, "accuracy": self.task.mean_metric(outputs.detach(), targets), "lr": rate}
        if phase == "search" and draw is not None and groups > 1:
            values["policy_lr"] = self.policy.rate
            with self.watch.part("policy and costs"):
                values |= self.policy.update(draw, losses, progress, inputs)
        return values

    @timed("optimizer")
    def _descend(self, loss: Tensor, rate: float) -> None:
        """One step of θ; none if no sampled architecture reached the output."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        if loss.requires_grad:
            with self.watch.part("backward"):
                loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

    def _learning_rate(self, phase: str, progress: float) -> float:
        """θ's rate; a racer stays at the top of its cycle."""
        if phase == "race":
            return learning_rate(self.recipe, RISE if self.race.final else min(progress, RISE), RISE)
        return phase_rate(self.recipe, phase, progress)

    @timed("sampling and plan")
    def _draw(self, phase: str, batch: int) -> Draw | None:
        """The gates of a step: none for a network alone, all of them in the paper's warm-up, else a sample of Γ."""
        if phase in ("race", "finish"):
            return None
        if phase == "warm-up" and self.recipe.warmup == "full":
            return Draw(torch.ones(1, len(self.net.graph.edges), dtype=torch.bool), torch.zeros(1))
        groups = batch if self.recipe.groups == PER_EXAMPLE else min(self.recipe.groups, batch)
        generator = self._generator(phase, self.step)
        draw = self.policy.distribution.sample(
            groups, generator, stratified=self.recipe.stratified, connected=self.recipe.connected
        )
        if self.watch.running:
            self.net.plan(draw.gates, batch)  # remembered: the forward pass will not have to make it
        return draw

    def _generator(self, purpose: str, number: int) -> torch.Generator:
        digest = hashlib.blake2b(repr((self.seed, purpose, number)).encode(), digest_size=7).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big"))

    def _after_step(self, values: dict[str, float], weight: int, last: bool) -> None:
        self.interval.add(values, weight)
        self.epoch_tally.add(values, weight)
        every = max(1, self.train.steps // STEP_RECORDS)
        if self.step % every == 0:
            self._record("step", {**self.interval.take(), **self._snapshot(every)})
        if self._done % self.train.steps == 0 or last:
            self._check_weights()
            self._record("epoch", {**self.epoch_tally.take(), **self._look()})

    def _snapshot(self, every: int) -> dict[str, Any]:
        """Γ as it is, a few dozen times in the whole search: enough to watch it settle."""
        if PHASES[self.phase] != "search":
            return {}
        total = self.total_steps("search")
        due = self.step * SNAPSHOTS // total > (self.step - every) * SNAPSHOTS // total
        return self._distribution() if due else {}

    def _distribution(self) -> dict[str, Any]:
        distribution = self.policy.distribution
        probabilities = [round(p, 4) for p in distribution.probabilities.tolist()]
        return {"entropy": float(distribution.entropy().mean()), "probabilities": probabilities}

    @timed("evaluation")
    def _look(self) -> dict[str, Any]:
        """What is worth knowing after an epoch, on validation data where an architecture stands for the phase."""
        phase = PHASES[self.phase]
        if phase in ("race", "finish"):
            loss, metric = evaluate(self.module, self.task, self.validation.evaluation(LOOK))
            if math.isinf(loss):
                raise self._fault("the validation loss is not finite")
            return {"validation_loss": loss, "validation_accuracy": metric}
        seen = self._distribution()
        if phase != "search":
            return {"entropy": seen["entropy"]}
        return {**seen, **self._look_at_mode()}

    def _look_at_mode(self) -> dict[str, Any]:
        distribution = self.policy.distribution
        gates = self.net.graph.live(distribution.mode().gates()[None])[0]
        entry = self._evaluate(gates)
        seen: dict[str, Any] = {"validation_loss": entry.loss, "validation_accuracy": entry.metric}
        seen |= {f"mode_cost/{name}": value for name, value in entry.costs.items()}
        for budget in self.budgets:
            if budget.meter.cost.measured:
                samples = distribution.sample(8, self._generator("refresh", self.step)).gates
                errors = budget.meter.cost.refresh(self.net.graph.live(samples))
                seen |= {f"predictor_{name}/{budget.name}": value for name, value in errors.items()}
        return seen

    @timed("evaluation")
    def _evaluate(self, gates: Tensor) -> Evaluated:
        """Scores an architecture on shared weights; it goes into the archive."""
        return self.archive.score(gates, PHASES[self.phase], self.step // self.train.steps)

    def _settle(self) -> None:
        clock = time.monotonic()
        evaluations = affordable(self.recipe, self.total_steps("finish"))
        self._record("phase", {"steps": evaluations})
        chooser = self._chooser()
        starts = chooser.starts(evaluations, self.archive.best(2))
        begun, deadline = self.elapsed(), self.max_time * TIME_SHARES["settle"]

        def score(gates: Tensor) -> float:
            if self.step and self.elapsed() > max(deadline, begun):
                return math.inf
            entry = self._evaluate(gates)
            self.step += 1
            self._record("candidate", {"validation_loss": entry.loss, "validation_accuracy": entry.metric})
            if self.should_stop():
                self.step = 0
                raise Interrupted
            return entry.loss

        found = settle(chooser.settler(), starts, self.fallback.gates(), score, evaluations, self.recipe.settle)
        ranked = [self.net.graph.architecture(candidate.gates) for candidate in found]
        racers = chooser.racers(ranked) if self.recipe.races else []
        if len(racers) > 1:
            lengths = self.total_steps("race"), self.total_steps("final")
            self.race = Race(racers, lengths, self.recipe.finalists if self.recipe.final else 1)
            self.runners_up = ranked
            self.net.load_state_dict(self.fresh)
        else:
            self._choose(ranked)
        self.fresh = {}
        self.seconds["settle"] += time.monotonic() - clock

    def _chooser(self) -> Chooser:
        def evidence() -> list[Any]:
            return [inputs for inputs, _ in itertools.islice(self.validation.evaluation(), EVIDENCE_BATCHES)]

        return Chooser(
            self.net.graph,
            self.budgets,
            self.recipe,
            self.policy.distribution,
            self._make_policy().distribution,
            equal_start(self.budgets, self.net.graph),
            lambda purpose: self._generator(purpose, 1),
            lambda: capacity_of(self.net),
            evidence,
        )

    def _choose(self, ranked: Sequence[Architecture]) -> None:
        """Singles out the best one that holds every budget by evidence.

        The last resort is the architecture of the check, which has been measured: the certificate will say.
        """
        chosen, others = self._chooser().first_that_holds(ranked)
        self.single_out(chosen or self.fallback.live())
        self._set_aside(others)

    def _set_aside(self, others: Sequence[Architecture]) -> None:
        """The choice is made; the others come next, should its measurement fail."""
        assert self.architecture is not None
        self.runners_up = [other for other in others if other != self.architecture]
        gates = self.architecture.gates()[None]
        self._record("chosen", {f"cost/{b.name}": float(b.meter.evaluate(gates)[0]) for b in self.budgets})

    def _can_step_back(self) -> bool:
        return self.architecture not in (None, self.fallback.live())

    def step_back(self) -> bool:
        """Starts the finish of the next best architecture, after a few of the fallback; False if that was it."""
        if not self._can_step_back():
            return False
        self.steps_back, self.raced = self.steps_back + 1, 0.0
        self.phase, self.step = PHASES.index("finish"), 0
        self._choose(self.runners_up if self.steps_back < STEPS_BACK else [])
        return True

    def elapsed(self) -> float:
        """Seconds of work since the beginning, what came before a resume included."""
        return time.monotonic() - self._start

    @timed("records")
    def _record(self, kind: str, values: Mapping[str, Any]) -> None:
        if self.sink is not None:
            epoch = 0 if PHASES[self.phase] == "settle" else math.ceil(self.step / self.train.steps)
            self.sink.write(Record(kind, PHASES[self.phase], epoch, self.step, round(self.elapsed(), 3), values))

    def _maybe_save(self, after: float) -> None:
        """Saves if the user asks to stop, or if the last checkpoint is so many seconds old."""
        if self.should_stop():
            self.checkpoint()
            raise Interrupted
        if time.monotonic() - self._saved > after:
            self.checkpoint()

    def _fault(self, what: str) -> Diverged:
        rate = self.optimizer.param_groups[0]["lr"]
        return Diverged(
            f"{what} in step {self.step} of the {PHASES[self.phase]} phase at learning rate {rate:.3g}; the last good "
            "checkpoint is kept: go on with --resume --lr-scale 0.3, or look at the data"
        )

    def _check_weights(self) -> None:
        if any(not bool((parameter.detach().abs() < DIVERGED).all()) for parameter in self.module.parameters()):
            raise self._fault("the weights have diverged")

    @timed("checkpoint")
    def checkpoint(self) -> None:
        """Saves the state; one that has diverged is not worth going on from, and is refused."""
        self._check_weights()
        self.save(self.state())
        self._saved = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs to be the same run."""
        return {
            "phase": self.phase,
            "step": self.step,
            "seconds": dict(self.seconds),
            "elapsed": self.elapsed(),
            "weights": dict(self.module.state_dict()),
            "supernet": dict(self.net.state_dict()) if self._can_step_back() or not self.race.over else None,
            "fresh": dict(self.fresh),
            "optimizer": self.optimizer.state_dict(),
            "policy": self.policy.state(),
            "architecture": None if self.architecture is None else self.architecture.gates(),
            "race": self.race.state(),
            "raced": self.raced,
            "runners_up": [architecture.gates() for architecture in self.runners_up],
            "steps_back": self.steps_back,
            "archive": [vars(entry) for entry in self.archive.entries],
            "tallies": [[dict(tally.sums), tally.weight] for tally in (self.interval, self.epoch_tally)],
            "random": torch.get_rng_state(),
            "measured": {b.name: b.meter.cost.state_dict() for b in self.budgets if b.meter.cost.measured},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`."""
        self.phase, self.step, self.seconds = state["phase"], state["step"], state["seconds"]
        self._start = time.monotonic() - state["elapsed"]
        graph = self.net.graph
        if state["supernet"] is not None:
            self.net.load_state_dict(state["supernet"])
        if state["architecture"] is not None:
            self.single_out(graph.architecture(state["architecture"]))
        self.module.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.policy.load_state(state["policy"])
        self.race, self.raced, self.fresh = Race(**state["race"]), state["raced"], state["fresh"]
        self.runners_up = [graph.architecture(gates) for gates in state["runners_up"]]
        self.steps_back = state["steps_back"]
        self.archive.entries = [Evaluated(**entry) for entry in state["archive"]]
        self.interval, self.epoch_tally = (Tally(sums, weight) for sums, weight in state["tallies"])
        torch.set_rng_state(state["random"])
        for budget in self.budgets:
            if budget.name in state["measured"]:
                budget.meter.cost.load_state_dict(state["measured"][budget.name])
