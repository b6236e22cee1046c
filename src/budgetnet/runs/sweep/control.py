"""A sweep from its plan to its table: what is missing is run, models are selected, the selected ones are tested."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.values import typed
from budgetnet.records.folder import RunFolder
from budgetnet.runs.config import Config
from budgetnet.runs.execute import write_test_score
from budgetnet.runs.sweep.engine import FINISHED, INTERRUPTED, TEST, TRAIN, Asked, Ending, Engine, Order
from budgetnet.runs.sweep.plan import Plan
from budgetnet.runs.sweep.table import FAILURE, Row, rows, selected, write_table

PLAN = "sweep.json"
WHERE = ("data_root", "threads", "device")
"""Fields that may differ when a sweep goes on, perhaps on another machine."""


@dataclass(frozen=True)
class Swept:
    """A sweep as it ended: its table, and the orders that did not end well."""

    table: list[Row]
    unwell: list[Ending]

    @property
    def interrupted(self) -> bool:
        """Whether there is more to do because somebody asked to stop."""
        return any(ending.state == INTERRUPTED for ending in self.unwell)


def run_sweep(
    plan: Plan,
    out: Path,
    engine: Engine,
    *,
    should_stop: Asked = lambda: False,
    tell: Callable[[Ending], None] = lambda ending: None,
    command: str = "",
    test_all: bool = False,
    own: Collection[str] = (),
) -> Swept:
    """Runs or resumes a sweep. When every run has ended, the selected runs are evaluated on the test data.

    With `test_all`, for every run: where recipes are compared over seeds, nothing is selected. `own` are the names of
    code that the user gave to this process.
    """
    check_folder(plan, out)
    with RunFolder(out).locked():
        _write_plan(plan, out)
        missing = [name for name in plan if not RunFolder(out / name).finished]
        orders = [Order(name, TRAIN, _work(plan, out, [name]), command, tuple(own)) for name in missing]
        unwell = _carry_out(orders, out, engine, should_stop, tell)
        if not any(ending.state == INTERRUPTED for ending in unwell):
            tests = _tests(plan, out, engine.slots, test_all, own)
            unwell += _carry_out(tests, out, engine, should_stop, tell)
            write_table(rows(plan, out), out)
    return Swept(rows(plan, out), unwell)


def check_folder(plan: Plan, out: Path) -> None:
    """The plan in a folder may grow: one that lacks a run of before, or changes it, is refused."""
    if not (out / PLAN).exists():
        if out.is_dir() and any(path.name != ".lock" for path in out.iterdir()):
            raise UserError(f"{out} holds something else than a sweep; choose another --out")
        return
    for name, settings in _planned(out).items():
        if name not in plan or _what(settings) != _what(plan[name].to_dict()):
            raise UserError(
                f"{out} holds another sweep: its run {name} is missing or different here; "
                "give the settings that it was started with (more runs are welcome), or choose another --out"
            )


def adopt(plan: Plan, out: Path, others: Iterable[Path]) -> list[str]:
    """Copies fixed architectures that other sweeps have trained with the same name and settings.

    Args:
        plan: What is wanted.
        out: The folder of its sweep.
        others: Folders of sweeps.

    Returns:
        The names of the runs that were copied.
    """
    check_folder(plan, out)
    copied: list[str] = []
    with RunFolder(out).locked():
        _write_plan(plan, out)
        wanted = {name: config for name, config in plan.items() if not _is_search(config)}
        for other in others:
            known = _planned(other) if (other / PLAN).is_file() else {}
            for name in [name for name in wanted if name in known and not (out / name).exists()]:
                same = _what(known[name]) == _what(wanted[name].to_dict())
                if same and RunFolder(other / name).finished and not (other / name).is_symlink():
                    shutil.copytree(other / name, out / name, symlinks=True)
                    copied.append(name)
    return copied


def _write_plan(plan: Plan, out: Path) -> None:
    RunFolder(out).write_json(PLAN, {"runs": {name: config.to_dict() for name, config in plan.items()}})


def _planned(out: Path) -> Mapping[str, Mapping[str, Any]]:
    return typed(RunFolder(out).read_json(PLAN), _Planned, str(out / PLAN)).runs


@dataclass(frozen=True)
class _Planned:
    """A plan as sweep.json holds it: the settings of each run."""

    runs: Mapping[str, Mapping[str, Any]]


def _what(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is, wherever it is run. Texts that came through JSON are lists, not tuples."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items() if k not in WHERE}


def _work(plan: Plan, out: Path, names: Sequence[str]) -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple((str(out / name), dataclasses.asdict(plan[name])) for name in names)


def _tests(plan: Plan, out: Path, slots: int, test_all: bool, own: Collection[str]) -> list[Order]:
    """Orders to judge what was selected and the fixed architectures; others lose the score of an earlier selection."""
    table = rows(plan, out)
    chosen = selected(plan, table)
    wanted: list[str] = []
    for row in table:
        if row["state"] != FINISHED:
            continue
        if not test_all and row["run"] not in chosen and _is_search(plan[row["run"]]):
            if row["test"] is not None:
                write_test_score(RunFolder(out / row["run"]), None)
        elif row["test"] is None:
            wanted.append(row["run"])
    parts = [part for i in range(slots) if (part := wanted[i::slots])]
    return [Order(f"test-{i}", TEST, _work(plan, out, part), own=tuple(own)) for i, part in enumerate(parts, 1)]


def _is_search(config: Config) -> bool:
    return config.architecture is None


def _carry_out(
    orders: Sequence[Order], out: Path, engine: Engine, should_stop: Asked, tell: Callable[[Ending], None]
) -> list[Ending]:
    """The endings that were not well. Those of runs are kept in their folders until the run is finished."""
    unwell: list[Ending] = []
    kinds = {order.name: order.kind for order in orders}
    for found in engine.carry_out(orders, should_stop):
        ending = _believed(found, out) if kinds[found.name] == TRAIN else found
        if kinds[ending.name] == TRAIN:
            _keep(ending, RunFolder(out / ending.name))
        if ending.state != FINISHED:
            unwell.append(ending)
        tell(ending)
    return sorted(unwell, key=lambda ending: list(kinds).index(ending.name))


def _believed(ending: Ending, out: Path) -> Ending:
    """A run that is finished elsewhere, in a folder that is not shared, is not finished here."""
    if ending.state == FINISHED and not RunFolder(out / ending.name).finished:
        reason = f"it ended, but {out / ending.name} has no result; use a folder that all workers share"
        return Ending(ending.name, "failed", reason)
    return ending


def _keep(ending: Ending, folder: RunFolder) -> None:
    (folder.path / FAILURE).unlink(missing_ok=True)
    if ending.state not in (FINISHED, INTERRUPTED):
        folder.write_json(FAILURE, {"state": ending.state, "message": ending.message})
