"""The race as its records tell it: each candidate, who proposed it, what it costs, and its loss after each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from budgetnet.costs.units import show
from budgetnet.pictures.report.limits import Limit
from budgetnet.pictures.report.numbers import number
from budgetnet.records.records import Record

UNJUDGED = 1e299
"""A loss above this was never measured: a time limit left the turn without a step."""
PROPOSED = {
    "mode": "Γ's mode",
    "sample": "a sample of Γ",
    "search": "the search",
    "random": "chance",
    "uniform": "uniform widths",
}
"""What the records call who proposed a racer, for people; `random` is of runs of earlier versions."""


@dataclass(frozen=True)
class Racer:
    """A candidate: its number, who proposed it, its costs, its losses by round, and its place at the end."""

    number: int
    origin: str
    edges: int | None
    costs: Mapping[str, float]
    losses: Mapping[int, float]
    diverged: bool = False

    @property
    def last(self) -> tuple[int, float]:
        """What racers are ranked by: the last round that it reached, later ones first, and its loss there."""
        rounds = [key for key in self.losses if self.losses[key] < UNJUDGED]
        return (-max(rounds), self.losses[max(rounds)]) if rounds else (1, 0.0)

    @property
    def proposed(self) -> str:
        """Who proposed it, for people."""
        return PROPOSED.get(self.origin, "–")


@dataclass(frozen=True)
class Outcome:
    """A race: the candidates, the best first, and the epochs that a candidate has been trained for after each round."""

    racers: tuple[Racer, ...] = ()
    epochs: Mapping[int, float] = field(default_factory=dict)

    @property
    def winner(self) -> Racer | None:
        """The best one."""
        return self.racers[0] if self.racers and not self.racers[0].diverged else None


@dataclass(frozen=True)
class Row:
    """A racer as a line of a table."""

    number: int
    proposed: str
    edges: str
    costs: list[str]
    losses: list[str]
    place: str
    won: bool


@dataclass(frozen=True)
class Table:
    """The race for people."""

    costs: list[str]
    rounds: list[str]
    rows: list[Row]


def outcome(records: Sequence[Record]) -> Outcome:
    """The race of a run; empty if there was none, or if its records do not say who raced."""
    found: dict[int, dict[str, object]] = {}
    losses: dict[int, dict[int, float]] = {}
    gone: set[int] = set()
    epochs: dict[int, float] = {}
    for record in records:
        racer, turn = (number(record.values.get(name)) for name in ("racer", "round"))
        if record.kind != "racer" or racer is None or turn is None:
            continue
        place, rung, loss = int(racer), int(turn), number(record.values.get("loss"))
        found[place] = dict(record.values)
        epochs[rung] = number(record.values.get("epochs")) or 0.0
        if loss is None:
            gone.add(place)
        else:
            losses.setdefault(place, {})[rung] = loss
    racers = [_racer(place, values, losses.get(place, {}), place in gone) for place, values in found.items()]
    return Outcome(tuple(sorted(racers, key=lambda racer: (racer.diverged, racer.last))), epochs)


def _racer(place: int, values: Mapping[str, object], losses: Mapping[int, float], diverged: bool) -> Racer:
    costs = {
        name.removeprefix("cost/"): cost
        for name, value in values.items()
        if name.startswith("cost/") and (cost := number(value)) is not None
    }
    edges = number(values.get("edges"))
    return Racer(place, str(values.get("origin", "")), None if edges is None else int(edges), costs, losses, diverged)


def table(race: Outcome, limits: Sequence[Limit]) -> Table | None:
    """A line for each candidate, the best first."""
    if not race.racers:
        return None
    units = {limit.cost: limit.unit for limit in limits}
    costs = [cost for cost in units if any(cost in racer.costs for racer in race.racers)]
    rounds = sorted(race.epochs)
    rows = [
        Row(
            racer.number,
            racer.proposed,
            "–" if racer.edges is None else str(racer.edges),
            [show(racer.costs[cost], units[cost]) if cost in racer.costs else "–" for cost in costs],
            [_loss(racer, rung) for rung in rounds],
            "diverged" if racer.diverged else f"{place}",
            racer is race.winner,
        )
        for place, racer in enumerate(race.racers, 1)
    ]
    return Table(costs, [f"loss after {race.epochs[rung]:.2g} epochs" for rung in rounds], rows)


def _loss(racer: Racer, rung: int) -> str:
    loss = racer.losses.get(rung)
    return "–" if loss is None or loss > UNJUDGED else f"{loss:.4g}"


def decided(race: Outcome) -> str:
    """Which phase decided, and by how much."""
    winner = race.winner
    if winner is None or len(race.racers) < 2:
        return ""
    second = race.racers[1]
    rung = min(winner.losses.keys() & second.losses.keys(), key=lambda rung: -rung, default=None)
    by = ""
    if rung is not None and second.losses[rung] < UNJUDGED:
        by = f": its loss was {winner.losses[rung]:.4g}, that of the next best {second.losses[rung]:.4g}"
    words = {"search": "proposed by ", "random": "proposed by ", "uniform": "with "}.get(winner.origin, "")
    proposal = f", {words}{winner.proposed}," if winner.origin in PROPOSED else ""
    return (
        f"The race decided. {len(race.racers)} candidates within the budget were trained, each by itself, on the same "
        f"batches; candidate {winner.number}{proposal} won{by}. It was then trained to the end."
    )
