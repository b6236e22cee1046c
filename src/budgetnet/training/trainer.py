"""The trainer: the one place with a training step. Every phase, baseline and racer is fitted here."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from budgetnet.data.feeds import Batch, Feed
from budgetnet.data.nested import rows
from budgetnet.errors import Interrupted
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import Record, Sink
from budgetnet.records.stopwatch import OFF, Untimed, timed
from budgetnet.training.callbacks import Callback
from budgetnet.training.device import Device
from budgetnet.training.evaluation import evaluate
from budgetnet.training.ledger import Ledger, Seen, fault
from budgetnet.training.schedules import Rate
from budgetnet.training.tasks import Task

LOOK_EXAMPLES = 1000
"""Validation examples that are scored after each epoch; the result is judged on all of them."""
STEP_RECORDS = 20
"""Step records in an epoch: enough for a smooth curve, few enough to cost nothing."""
SAVE_SECONDS, EPOCH_SECONDS = 60.0, 5.0
"""Between checkpoints at most, and at least before one at the end of an epoch; the end of a phase is always saved."""

OptimizerFactory = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass
class Fit:
    """A module in training: a part of the state of a run.

    Args:
        module: What is trained.
        optimizer: The optimizer of its parameters, whose momentum may outlive a phase.
        step: Steps of the present course that are done.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    compiled: nn.Module | None = None
    """The module as it is run, if it is compiled."""


class Forward(NamedTuple):
    """What a forward pass gave: outputs, the mean loss of each group of the batch, and what was drawn for it."""

    outputs: Tensor
    losses: Tensor
    drawn: Any = None


class Step:
    """A training step of a network alone: forward pass and loss. Other kinds of steps override the two methods."""

    def forward(self, trainer: Trainer, module: nn.Module, batch: Batch, number: int) -> Forward:
        """The forward pass.

        Args:
            trainer: The trainer, which has the task and the stopwatch.
            module: The module in training.
            batch: Inputs and targets.
            number: The number of the step in its course.

        Returns:
            Outputs and losses; the mean of the losses is minimised.
        """
        inputs, targets = batch
        with trainer.watch.part("forward"):
            outputs = trainer.outputs(module, inputs)
            return Forward(outputs, trainer.task.group_losses(outputs, targets, 1))

    def update(self, trainer: Trainer, forward: Forward, batch: Batch, progress: float) -> Mapping[str, float]:
        """Learns what is not a weight, after the optimizer's step; returns what is worth recording."""
        return {}


class Stateful(Protocol):
    """What a checkpoint holds besides the trainer's own state."""

    @property
    def fit(self) -> Fit | None:
        """The training in progress."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Nested values with tensors."""
        ...


def _nothing(*_: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Course:
    """What one call of `Trainer.fit` does.

    Args:
        phase: The name of the phase, for records and time limits.
        stream: The number of the first epoch of the batches that this phase trains on.
        steps: Steps to take.
        rate: The learning rate at a progress of these steps.
        step: What one step computes.
        look: Gives end-of-epoch metrics; by default the module is scored on validation data.
        snapshot: Gives further values for the step record at a step, written every so many steps.
        observe: Takes the values of every step and the progress after it, in order, when they are read.
        about: Further values for the record at the beginning of the phase.
        offset: Steps of the phase that other modules took before.
        total: Steps of the whole phase, if it fits several modules.
        seen: Batches of the stream that this module was trained on before.
    """

    phase: str
    stream: int
    steps: int
    rate: Rate
    step: Step = field(default_factory=Step)
    look: Callable[[], Mapping[str, Any]] | None = None
    snapshot: Callable[[int, int], Mapping[str, Any]] = _nothing
    observe: Callable[[Mapping[str, float], float], object] = _nothing
    about: Mapping[str, Any] = field(default_factory=dict)
    offset: int = 0
    total: int | None = None
    seen: int = 0


@dataclass
class Trainer:
    """Fits modules for so many steps, with records, checkpoints, time limit and the check for non-finite values.

    Args:
        task: The loss and the metric.
        train: Training batches.
        validation: Validation batches.
        optimizer: Makes the optimizer of a module.
        device: Where modules and inputs are.
        sink: Takes the records.
        save: Takes the state for a checkpoint.
        should_stop: Says whether the user wants to stop; the state is then saved and `Interrupted` raised.
        max_time: Seconds of the whole run.
        time_shares: The share of `max_time` by which each phase ends.
        lr_scale: Multiplies every learning rate.
        clip: The largest norm of a gradient; 0 for no limit.
        watch: The stopwatch.
        callbacks: Called at the end of steps, epochs and phases.
        alone: The step of a network that is trained alone, in a race or a finish.
    """

    task: Task
    train: Feed
    validation: Feed
    optimizer: OptimizerFactory
    device: Device = field(default_factory=Device)
    sink: Sink | None = None
    save: Callable[[dict[str, Any]], None] = lambda state: None
    should_stop: Callable[[], bool] = lambda: False
    max_time: float = math.inf
    time_shares: Mapping[str, float] = field(default_factory=dict)
    lr_scale: float = 1.0
    clip: float = 0.0
    watch: Untimed = OFF
    callbacks: Sequence[Callback] = ()
    alone: Step = field(default_factory=Step)

    def __post_init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._ledger = Ledger(self.device, self.task.metric)
        self._start = self._saved = time.monotonic()

    def begin(self, module: nn.Module) -> Fit:
        """A training of this module from its first step, with an optimizer of its own."""
        return Fit(module, self.optimizer(module))

    def fit(self, course: Course, fit: Fit, state: Stateful) -> None:
        """Trains a module from the step where it is to the end of a course.

        Args:
            course: What to do.
            fit: The module, its optimizer and the steps that are done; a part of `state`.
            state: What a checkpoint holds.

        Raises:
            Diverged: If the loss or the weights are no longer finite.
            Interrupted: If the user asked to stop; the state was saved.
        """
        steps = course.steps if course.total is None else course.total
        if course.offset + fit.step == 0:
            about = {"epochs": steps / self.train.steps, "steps": steps, **course.about}
            self.record("phase", course.phase, 0, about)
        while (progress := self._progress(course, fit)) < 1:
            clock = time.monotonic()
            for batch in self.watch.each("data", self._batches(course, fit)):
                seen = self._step(course, fit, batch, progress)
                fit.step += 1
                progress = self._progress(course, fit)
                self._ledger.add(seen._replace(take=functools.partial(self._take, course, fit.step, progress)))
                self._after_step(course, fit, progress >= 1)
                self.spend(course.phase, time.monotonic() - clock)
                self._maybe_save(state, SAVE_SECONDS if fit.step % self.train.steps else EPOCH_SECONDS)
                clock = time.monotonic()
                if progress >= 1:
                    break

    def time_step(self, course: Course, fit: Fit, batch: Batch) -> float:
        """Seconds of one step in the middle of a course, without records: for estimates."""
        self.device.wait()
        clock = time.monotonic()
        self._step(course, fit, batch, 0.5)
        self.device.wait()
        return time.monotonic() - clock

    def _progress(self, course: Course, fit: Fit) -> float:
        """The share of a course that is done: by steps or, under a time limit, by the clock if that is further."""
        by_steps = fit.step / course.steps
        deadline = self.deadline(course.phase)
        if math.isinf(deadline) or by_steps == 0:
            return by_steps
        spent = self.seconds.get(course.phase, 0.0)
        by_clock = spent / max(deadline - (self.elapsed() - spent), 1e-3)
        if course.total is not None:
            by_clock = (by_clock * course.total - course.offset) / course.steps
        return max(by_steps, by_clock)

    def _batches(self, course: Course, fit: Fit) -> Iterator[Batch]:
        epoch, start = divmod(course.seen + fit.step, self.train.steps)
        return self.train.training(course.stream + epoch, start)

    def outputs(self, module: nn.Module, inputs: Any, gates: Tensor | None = None) -> Tensor:
        """The outputs of a forward pass in the device's precision; themselves in fp32, as the loss wants them."""
        with self.device.autocast():
            outputs = self.task.outputs(module, inputs, gates)
        return outputs.float() if outputs.dtype is torch.bfloat16 else outputs

    def _step(self, course: Course, fit: Fit, batch: Batch, progress: float) -> Seen:
        """One training step, which reads nothing that the device has computed; returns what is worth recording."""
        fit.module.train()
        rate = course.rate(progress) * self.lr_scale
        forward = course.step.forward(self, self._runnable(fit), batch, fit.step)
        loss = forward.losses.mean()
        self._descend(fit.optimizer, loss, rate)
        metric = self.task.batch_metric(forward.outputs.detach(), batch[1])
        values = {"lr": rate, **course.step.update(self, forward, batch, progress)}
        number, weight = course.offset + fit.step, rows(batch[0])
        return Seen(course.phase, number, loss.detach(), metric.detach(), values, weight, _nothing)

    def _runnable(self, fit: Fit) -> nn.Module:
        """The module as it is run: a fixed network may be compiled; a super network changes in every step."""
        if isinstance(fit.module, SuperNetwork):
            return fit.module
        fit.compiled = fit.compiled or self.device.runnable(fit.module)
        return fit.compiled

    @timed("optimizer")
    def _descend(self, optimizer: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
        """One step of the optimizer; none if no sampled architecture reached the output."""
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        if loss.requires_grad:
            with self.watch.part("backward"):
                loss.backward()  # type: ignore[no-untyped-call]
            if self.clip:
                weights = [weight for group in optimizer.param_groups for weight in group["params"]]
                torch.nn.utils.clip_grad_norm_(weights, self.clip)
            optimizer.step()

    def _after_step(self, course: Course, fit: Fit, last: bool) -> None:
        """Records of the step and, where it ends one, of the epoch."""
        step = course.offset + fit.step
        every = max(1, self.train.steps // STEP_RECORDS)
        ends = fit.step % self.train.steps == 0 or last
        if step % every == 0 or ends:
            self._ledger.read(fit.module if ends else None, self._place(course, fit), _rate(fit))
        if step % every == 0:
            self.record(
                "step", course.phase, step, {**self._ledger.interval.take(), **course.snapshot(fit.step, every)}
            )
        if ends:
            seen = {**self._ledger.epoch.take(), **self._look(course, fit)}
            self.record("epoch", course.phase, step, seen)
            for callback in self.callbacks:
                callback.epoch_ended(course.phase, step, seen)

    def _take(self, course: Course, step: int, progress: float, values: Mapping[str, float]) -> None:
        """The values of one step, as numbers."""
        course.observe(values, progress)
        for callback in self.callbacks:
            callback.step_ended(course.phase, course.offset + step, values)

    @timed("evaluation")
    def _look(self, course: Course, fit: Fit) -> Mapping[str, Any]:
        """End-of-epoch metrics; validation metrics of the module unless the course has others."""
        if course.look is not None:
            return course.look()
        loss, metric = evaluate(fit.module, self.task, self.validation.evaluation(LOOK_EXAMPLES), self.device)
        if math.isinf(loss):
            raise fault("the validation loss is not finite", self._place(course, fit), _rate(fit))
        return {f"validation_{self.task.metric.name}": metric, "validation_loss": loss}

    def elapsed(self) -> float:
        """Seconds of work since the beginning of the run, those before a resume included."""
        return time.monotonic() - self._start

    def deadline(self, phase: str) -> float:
        """Seconds after the beginning of the run at which a phase ends; infinite without a time limit."""
        return self.max_time * self.time_shares.get(phase, 1.0)

    def ends(self, phase: str) -> float:
        """The same by `time.monotonic`."""
        return self._start + self.deadline(phase)

    def spend(self, phase: str, seconds: float) -> None:
        """Adds to the time that a phase has taken."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @timed("records")
    def record(self, kind: str, phase: str, step: int, values: Mapping[str, Any], epoch: int | None = None) -> None:
        """Writes a record; its epoch follows from the step if it is not given."""
        if self.sink is not None:
            epoch = math.ceil(step / self.train.steps) if epoch is None else epoch
            self.sink.write(Record(kind, phase, epoch, step, round(self.elapsed(), 3), values))

    def forget(self) -> None:
        """Drops the means of a training that was given up."""
        self._ledger.forget()

    def end_phase(self, phase: str, state: Stateful) -> None:
        """Saves the state at the end of a phase."""
        self._ledger.interval.take()
        for callback in self.callbacks:
            callback.phase_ended(phase)
        self.checkpoint(state)

    def _maybe_save(self, state: Stateful, after: float) -> None:
        """Saves if the user asks to stop, or if the last checkpoint is so many seconds old."""
        if self.should_stop():
            self.checkpoint(state)
            raise Interrupted
        if time.monotonic() - self._saved > after:
            self.checkpoint(state)

    @timed("checkpoint")
    def checkpoint(self, state: Stateful) -> None:
        """Saves the state; one that has diverged is not worth going on from, and is refused."""
        fit = state.fit
        self._ledger.read(*(() if fit is None else (fit.module, f"step {fit.step}", _rate(fit))))
        self.save({**state.state_dict(), "trainer": self.state_dict()})
        self._saved = time.monotonic()

    @staticmethod
    def _place(course: Course, fit: Fit) -> str:
        return f"step {course.offset + fit.step} of the {course.phase} phase"

    def state_dict(self) -> dict[str, Any]:
        """The clock, the means of steps that are not recorded yet, and torch's random state."""
        return {
            "seconds": dict(self.seconds),
            "elapsed": self.elapsed(),
            "tallies": self._ledger.state_dict(),
            "random": self.device.random_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state."""
        self.seconds = dict(state["seconds"])
        self._start = time.monotonic() - state["elapsed"]
        self._ledger.load_state_dict(state["tallies"])
        self.device.set_random_state(state["random"])


def _rate(fit: Fit) -> float:
    return float(fit.optimizer.param_groups[0]["lr"])
