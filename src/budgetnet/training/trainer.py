"""The trainer: the one place with a training step. Every phase, baseline and racer is fitted here."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from budgetnet.data.feeds import Batch, Feed
from budgetnet.data.nested import rows
from budgetnet.data.seeds import seed_of
from budgetnet.errors import Diverged, Interrupted
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import Kept, Record, Sink
from budgetnet.records.stopwatch import OFF, Untimed, timed
from budgetnet.training.callbacks import Callback
from budgetnet.training.device import Device
from budgetnet.training.evaluation import evaluate
from budgetnet.training.fits import Course, Fit, Forward, Stateful, Step, nothing, whole
from budgetnet.training.ledger import Ledger, Seen, fault
from budgetnet.training.norms import synchronised
from budgetnet.training.processes import ALONE, Processes
from budgetnet.training.tasks import Task

LOOK_EXAMPLES = 1000
"""Validation examples that are scored after each epoch; the result is judged on all of them."""
STEP_RECORDS = 20
"""Step records in an epoch: enough for a smooth curve, few enough to cost nothing."""
SAVE_SECONDS, EPOCH_SECONDS = 60.0, 5.0
"""Between checkpoints at most, and at least before one at the end of an epoch; the end of a phase is always saved."""

OptimizerFactory = Callable[[nn.Module], torch.optim.Optimizer]


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

    @property
    def processes(self) -> Processes:
        """This process among those of the run."""
        return self.device.processes

    @contextmanager
    def apart(self) -> Iterator[list[Record]]:
        """Within the block each process trains a network of its own.

        Nothing is saved meanwhile, and a wish to stop in one process stops all of them.

        Yields:
            The records of this process, which somebody else has to write; the first process writes its own.
        """
        kept, sink, device = Kept(), self.sink, self.device
        self.device = replace(device, processes=device.processes.split_up())
        self.sink = sink if device.processes.first else kept
        self.forget()
        try:
            yield kept.records
        finally:
            self.device, self.sink = device, sink
            self.forget()

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
        progress = self._progress(course, fit.step)
        with synchronised(fit.module, self._normed_by(fit)):
            while progress < 1:
                clock = time.monotonic()
                for batch in self.watch.each("data", self._batches(course, fit)):
                    seen = self._step(course, fit, batch, progress)
                    fit.step += 1
                    progress = self._progress(course, fit.step)
                    self._ledger.add(seen._replace(take=functools.partial(self._take, course, fit.step, progress)))
                    try:
                        self._after_step(course, fit, progress >= 1)
                    except Diverged:
                        self.keep_pace(course, state, fit.step, progress)
                        raise
                    self.spend(course.phase, time.monotonic() - clock)
                    self.save_if_due(state, SAVE_SECONDS if fit.step % self.train.steps else EPOCH_SECONDS)
                    clock = time.monotonic()
                    if progress >= 1:
                        break

    def keep_pace(self, course: Course, state: Stateful, step: int = 0, progress: float = 0.0) -> None:
        """Goes through the steps of a course without training while other processes train networks of their own.

        Args:
            course: What the others do, or something of as many steps.
            state: The state.
            step: Steps that are done; if there are any, the last of them has not been followed by `save_if_due`.
            progress: The share of the course that is done.
        """
        if not self.processes.apart:
            return
        if step:
            self.save_if_due(state, math.inf)
        while progress < 1:
            step += 1
            progress = self._progress(course, step)
            self.save_if_due(state, math.inf)

    def _normed_by(self, fit: Fit) -> Processes:
        """The processes over which batch norm is synchronised: this one alone for a super network, or by default."""
        fixed = self.device.synchronised and not isinstance(fit.module, SuperNetwork)
        return self.processes if fixed else ALONE

    def time_step(self, course: Course, fit: Fit, batch: Batch) -> float:
        """Seconds of one step in the middle of a course, without records: for estimates."""
        self.device.wait()
        clock = time.monotonic()
        self._step(course, fit, batch, 0.5)
        self.device.wait()
        return time.monotonic() - clock

    def _progress(self, course: Course, step: int) -> float:
        """The share of a course that is done: by steps or, under a time limit, by the clock if that is further."""
        by_steps = step / course.steps
        deadline = self.deadline(course.phase)
        if math.isinf(deadline) or by_steps == 0:
            return by_steps
        spent = self.seconds.get(course.phase, 0.0)
        by_clock = spent / max(deadline - (self.elapsed() - spent), 1e-3)
        if course.total is not None:
            by_clock = (by_clock * course.total - course.offset) / course.steps
        return max(by_steps, *self.processes.agree(by_clock))

    def _batches(self, course: Course, fit: Fit) -> Iterator[Batch]:
        epoch, start = divmod(course.seen + fit.step, self.train.steps)
        return map(self.processes.share, self.train.training(course.stream + epoch, start))

    def outputs(self, module: nn.Module, inputs: Any, gates: Tensor | None = None) -> Tensor:
        """The outputs of a forward pass in the device's precision; themselves in fp32, as the loss wants them."""
        with self.device.autocast():
            outputs = self.task.outputs(module, inputs, gates)
        return outputs.float() if outputs.dtype is torch.bfloat16 else outputs

    def _step(self, course: Course, fit: Fit, batch: Batch, progress: float) -> Seen:
        """One training step, which reads nothing that the device has computed; returns what is worth recording."""
        fit.module.train()
        self._seed(course, fit)
        rate = course.rate(progress) * self.lr_scale
        fit.optimizer.zero_grad(set_to_none=True)
        parts = list(map(self._backward, course.step.forwards(self, self._runnable(fit), batch, fit.step)))
        forward = whole([part for part, _ in parts])
        loss, metric = forward.losses.mean(), self._batch_metric(forward.outputs, batch[1])
        self._descend(fit, any(learns for _, learns in parts), [loss, metric], rate)
        values = {"lr": rate, **course.step.update(self, forward, batch, progress)}
        return Seen(course.phase, course.offset + fit.step, loss, metric, values, rows(batch[0]), nothing)

    def _backward(self, forward: Forward) -> tuple[Forward, bool]:
        """Adds the gradients of one micro-batch; says whether there are any. Its graph is given up."""
        learns = forward.losses.requires_grad
        if learns:
            with self.watch.part("backward"):
                (forward.losses.mean() * forward.share).backward()  # type: ignore[no-untyped-call]
        return forward._replace(outputs=forward.outputs.detach(), losses=forward.losses.detach()), learns

    def _seed(self, course: Course, fit: Fit) -> None:
        """Random numbers of a step follow from (seed, phase, step, rank) where processes have their own."""
        if not self.processes.alone:
            own = self.processes.rank if self.processes.together else 0
            seed = getattr(self.train, "seed", 0)
            torch.manual_seed(seed_of(f"{course.phase} step", seed, course.offset + fit.step, own))

    def _batch_metric(self, outputs: Tensor, targets: Any) -> Tensor:
        """The metric of this process's share, so that the mean over processes is that of the batch."""
        metric = self.task.batch_metric(outputs, targets).detach()
        if self.processes.together and self.task.metric.finish is not None:  # statistics, which add up
            return metric.to(torch.float32 if metric.device.type == "mps" else torch.float64) * self.processes.count
        return metric

    def _runnable(self, fit: Fit) -> nn.Module:
        """The module as it is run: a fixed network may be compiled; a super network changes in every step."""
        if not isinstance(fit.module, SuperNetwork):
            fit.compiled = fit.compiled or self.device.runnable(fit.module)
        return fit.compiled or fit.module

    @timed("optimizer")
    def _descend(self, fit: Fit, learns: bool, observed: Sequence[Tensor], rate: float) -> None:
        """One step of the optimizer; none if no sampled architecture reached the output, in any process."""
        for group in fit.optimizer.param_groups:
            group["lr"] = rate
        if self.processes.together:
            learns = self.processes.average_step(fit.module, observed)
        if learns:
            if self.clip:
                weights = [weight for group in fit.optimizer.param_groups for weight in group["params"]]
                torch.nn.utils.clip_grad_norm_(weights, self.clip)
            fit.optimizer.step()

    def _after_step(self, course: Course, fit: Fit, last: bool) -> None:
        """Records of the step and, where it ends one, of the epoch."""
        step = course.offset + fit.step
        every = max(1, self.train.steps // STEP_RECORDS)
        ends = fit.step % self.train.steps == 0 or last
        if step % every == 0 or ends:
            self._ledger.read(fit.module if ends else None, self._place(course, fit), _rate(fit))
        epoch = math.ceil((course.seen + fit.step) / self.train.steps)
        if step % every == 0:
            means = self._ledger.interval.take()
            self.record(
                "step", course.phase, step, {**means, **course.snapshot(fit.step, every), **course.marks}, epoch
            )
        if ends:
            seen = {**self._ledger.epoch.take(), **self._look(course, fit)}
            self.record("epoch", course.phase, step, {**seen, **course.marks}, epoch)
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

    def save_if_due(self, state: Stateful, after: float) -> None:
        """Saves if the user asks to stop, or if the last checkpoint is so many seconds old.

        Processes that work apart save nothing: what they do is done again from the checkpoint before.
        """
        apart = self.processes.apart
        due = self.processes.first and not apart and time.monotonic() - self._saved > after
        stop, save = self.processes.agree(self.should_stop(), due)
        if save or (stop and not apart):
            self.checkpoint(state)
        if stop:
            raise Interrupted

    @timed("checkpoint")
    def checkpoint(self, state: Stateful) -> None:
        """Saves the state; one that has diverged is not worth going on from, and is refused."""
        fit = state.fit
        self._ledger.read(*(() if fit is None else (fit.module, f"step {fit.step}", _rate(fit))))
        if fit is not None:
            self.processes.check_same(fit.module)
        if self.processes.first:
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
