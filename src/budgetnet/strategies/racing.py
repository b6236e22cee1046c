"""The phase of the race: racers are trained in turns, or one in each process where that is faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from budgetnet.errors import Diverged
from budgetnet.strategies.phases import STREAMS, set_aside
from budgetnet.strategies.race import RISE, Race
from budgetnet.strategies.state import SearchState
from budgetnet.training.fits import Course, Fit
from budgetnet.training.schedules import rise_and_hold
from budgetnet.training.trainer import EPOCH_SECONDS, Trainer


@dataclass(frozen=True)
class Turn:
    """What came of a contestant's turn: the losses that it is judged by, its weights, and why it diverged if it did."""

    seen: Sequence[float]
    weights: Mapping[str, Tensor]
    fault: str = ""


@dataclass(frozen=True)
class RunRace:
    """Trains the racers on the same batches, by successive halving; the winner goes on.

    Args:
        lr: The largest learning rate, at which racers stay.
        rungs: Epochs and survivors of each rung.
    """

    lr: float
    rungs: Sequence[tuple[float, int]]
    name: ClassVar[str] = "race"

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`."""
        race = state.race
        if race is None:
            return state
        while not race.over:
            begun = state.fit is not None and state.fit.step > 0
            if not begun and trainer.processes.better_apart(len(race.contestants(race.rung))):
                self._round(race, state, trainer)
                continue
            turn = self._turn(race, state, trainer)
            if turn.fault:
                trainer.forget()
            self._judge(turn, race, state, trainer)
        self.crown(race, state, trainer)
        return state

    def _turn(self, race: Race, state: SearchState, trainer: Trainer) -> Turn:
        """Trains the contestant whose turn it is."""
        fit = state.fit if state.fit is not None and state.fit.step else self._begin(race, state, trainer)
        try:
            trainer.fit(self.course(race, trainer), fit, state)
        except Diverged as fault:
            return Turn(race.seen, {}, str(fault))
        return Turn(race.seen, fit.module.state_dict())

    def _judge(self, turn: Turn, race: Race, state: SearchState, trainer: Trainer) -> None:
        """Ends a turn by what came of it."""
        state.fit, race.seen = None, list(turn.seen)
        about, epochs = _about(race, state), (race.trained + race.steps) / trainer.train.steps
        if not turn.fault:
            result: dict[str, Any] = {"loss": race.finish(turn.weights)}
        elif race.withdraw():
            result = {"diverged": turn.fault}
        else:
            raise Diverged(turn.fault)
        trainer.record("racer", self.name, race.behind, {**about, "epochs": epochs, **result})

    def _round(self, race: Race, state: SearchState, trainer: Trainer) -> None:
        """Trains one contestant in each process, as a process alone would; all then know what came of each."""
        processes, left = trainer.processes, race.left
        with trainer.apart() as records:
            turn = None
            if processes.rank < left:
                turn = self._turn(race.ahead(processes.rank), state, trainer)
                turn = replace(turn, weights={name: value.cpu() for name, value in turn.weights.items()})
            else:
                trainer.keep_pace(self.course(race, trainer), state)
        for number, (found, written) in enumerate(processes.gather_values((turn, records))):
            if found is None:
                continue
            state.architecture = state.net.graph.architecture(race.racers[race.place])
            if number and trainer.sink is not None:
                for record in written:
                    trainer.sink.write(replace(record, time=round(trainer.elapsed(), 3)))
            self._judge(found, race, state, trainer)
        trainer.seconds[self.name] = max(processes.agree(trainer.seconds.get(self.name, 0.0)))
        trainer.save_if_due(state, EPOCH_SECONDS)

    def _begin(self, race: Race, state: SearchState, trainer: Trainer) -> Fit:
        """The training of the contestant whose turn it is."""
        fit = state.single_out(state.net.graph.architecture(race.racers[race.place]), trainer)
        if race.rung:
            fit.module.load_state_dict(race.weights[race.place])
        return fit

    def course(self, race: Race, trainer: Trainer) -> Course:
        """What the trainer does in this turn."""
        first, lr = race.rung == 0, self.lr
        return Course(
            self.name,
            STREAMS[self.name],
            race.steps,
            lambda progress: rise_and_hold(lr, progress if first else RISE, RISE),
            trainer.alone,
            observe=lambda values, progress: race.observe(values["loss"], progress),
            offset=race.behind,
            total=race.total,
            seen=race.trained,
            marks=_whose(race),
            about={"racers": len(race.racers)},
        )

    def crown(self, race: Race, state: SearchState, trainer: Trainer) -> None:
        """The winner is finished with the weights that it has come to."""
        places = race.ranked()
        winner, *others = (state.net.graph.architecture(race.racers[place]) for place in places)
        state.single_out(winner, trainer).module.load_state_dict(race.weights[places[0]])
        state.raced = sum(epochs for (epochs, _), turns in zip(self.rungs, race.losses, strict=False) if turns)
        set_aside(state, trainer, list(dict.fromkeys([*others, *state.runners_up])), race.behind)
        state.race = None


def _whose(race: Race) -> dict[str, int]:
    """Whose turn it is, for the records: its number among the racers, and that of the round."""
    return {"racer": race.place + 1, "racers": len(race.racers), "round": race.rung + 1}


def _about(race: Race, state: SearchState) -> dict[str, Any]:
    """The contestant whose turn it is, for the record of its turn: who proposed it, and its costs."""
    gates = race.racers[race.place]
    costs = {f"cost/{budget.name}": float(budget.meter.evaluate(gates[None])[0]) for budget in state.budgets}
    origin = {"origin": race.origins[race.place]} if race.origins else {}
    return {**_whose(race), **origin, "edges": int(gates.sum()), **costs}
