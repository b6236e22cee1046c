"""Fixed networks that were trained once, kept with the results: another machine need not train them again.

A network is known by everything that its training follows from: its edges, the data, the seed and the recipe. So a
change of the recipe's training makes new entries; a change of the training code does not: an entry has its commit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._common import commit, machine
from budgetnet.naming.files import write_file
from budgetnet.records.records import read
from budgetnet.strategies.recipes import RISE, fast

COLUMNS = ("space", "seed", "macs", "params", "validation", "test", "seconds")
"""Of a sweep's row."""


@dataclass(frozen=True)
class Network:
    """A fixed network to train, as a sweep takes it: a file or SPACE@NAME; of a file also the edges that it keeps."""

    name: str
    architecture: str
    seed: int
    kept: tuple[str, ...] = ()

    def key(self, space: str, data: str, epochs: float) -> str:
        """Of its entry."""
        recipe = fast(float(epochs))
        # Nesterov's momentum and one cycle: written out since the keys of the entries have them
        weights = recipe.weights
        steps = [recipe.finish_epochs, recipe.batch_size, weights.lr, weights.momentum, True, weights.weight_decay]
        training = [*steps, "one-cycle", RISE]
        known = (space, data, self.kept or self.architecture, self.seed, training)
        return hashlib.blake2b(repr(known).encode(), digest_size=8).hexdigest()


class Ledger(Mapping[str, dict[str, Any]]):
    """The entries of a file, by their keys."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def add(self, key: str, network: Network, epochs: float, row: Mapping[str, Any], run: Path) -> None:
        """An entry for a run that has finished, from its row in the sweep's table and its records."""
        entry = {
            "name": network.name,
            "kept": list(network.kept),
            "epochs": epochs,
            **{column: row[column] for column in COLUMNS},
            "losses": _losses(run),
            "commit": commit(),
            "processor": machine()["processor"],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self._read() | {key: entry}, indent=1, ensure_ascii=False)
        write_file(self.path, (text + "\n").encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            found = json.loads(self.path.read_text(encoding="utf-8"))
        return found


def _losses(run: Path) -> Sequence[float]:
    """The training loss of every epoch."""
    records, _ = read(run / "records.jsonl")
    return [round(record.values["loss"], 5) for record in records if record.kind == "epoch"]
