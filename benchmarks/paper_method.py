"""Why is the paper's method where it is in a reduced setting? One setting changed at a time.

The setting is that of `budgetnet reproduce` at reduced scale: CIFAR-10 at 16×16, 10,000 images, 24 epochs; B-ResNet
under 60 % of the ResNet-20's multiply-adds, or B-CNF under 4.5 % of the whole fabric's, a quarter of CNF W=2. Searches
differ in Γ's rate, in λ, in the length of the warm-up, or in the length of the whole. Beside them: the networks that
they found and random ones of the same cost, each trained alone for as many epochs. `used` is the cost of what was found
over the budget; `entropy` is that of Γ at the end, in bits an edge, and `dead` the share of it in edges that begin or
end at a node which the found network does not have: hardly a sample passes them any more, so that neither the loss nor
the cost moves them.
Every row is kept in the file as it comes.

    python -m benchmarks.paper_method --data-root DATA [--model B-ResNet] [--seeds 0,1,2]
        [--variants "as in the tables,…"] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks._common import RESULTS, add_data_root, numbers, save_result, summarise
from benchmarks._opponents import Table, random_architectures, sweep
from budgetnet.naming.files import write_file
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import read
from budgetnet.reproduce.settings import REDUCED, adapted
from budgetnet.spaces import build
from budgetnet.strategies.paper import paper

SETTING = REDUCED["cifar10"]
EPOCHS = 24.0
RANDOM = 4
USUAL, ALONE, CHANCE = "as in the tables", "what it found, alone", "random networks, alone"


@dataclass(frozen=True)
class Case:
    """What is searched in, under how many multiply-adds, and the variant of the result file."""

    space: str
    maximum: int
    file: str


CASES = {
    "B-ResNet": Case(SETTING.resnets(3), 1_553_702, ""),
    "B-CNF": Case(SETTING.fabric(8), 580_745, "b-cnf"),
}


@dataclass(frozen=True)
class Variant:
    """A search: its recipe's options beside those of the tables, its λ and its length."""

    options: str = ""
    penalty: float = 1.0
    epochs: float = EPOCHS

    @property
    def recipe(self) -> str:
        """As a user would write it; Γ's rate follows from the length unless it is given."""
        usual = adapted(SETTING.images, self.epochs)
        return f"paper:{self.options}" if "policy_lr" in self.options else ",".join(filter(None, [usual, self.options]))


def _rate(times: float) -> str:
    usual = float(adapted(SETTING.images, EPOCHS).partition("=")[2])
    return f"policy_lr={usual * times:.3g}"


def _warmup(epochs: float) -> str:
    return f"warmup_epochs={epochs:g},search_epochs={EPOCHS - epochs:g}"


VARIANTS: Mapping[str, Variant] = {
    USUAL: Variant(),
    "a quarter of Γ's rate": Variant(_rate(0.25)),
    "four times Γ's rate": Variant(_rate(4)),
    "the paper's own rate": Variant(f"policy_lr={paper().policy_lr:g}"),
    "λ = 0.3": Variant(penalty=0.3),
    "λ = 3": Variant(penalty=3.0),
    "no warm-up": Variant(_warmup(0)),
    "half of the epochs warm-up": Variant(_warmup(EPOCHS / 2)),
    "three times the epochs": Variant(epochs=3 * EPOCHS),
}


@dataclass(frozen=True)
class Study:
    """The runs of a case, in a folder."""

    case: Case
    out: Path
    data_root: str

    def searched(self, name: str, seed: int) -> dict[str, Any]:
        """One search."""
        variant = VARIANTS[name]
        run = {"recipes": [variant.recipe], "budgets": [f"macs<={self.case.maximum}"], "penalties": [variant.penalty]}
        row, folder = self._run(f"{list(VARIANTS).index(name)}-{seed}", {**run, "seeds": [seed]}, variant.epochs)
        return {
            **self._kept(row, name),
            **_certainty(self._net(), folder),
            "folder": folder.relative_to(self.out).as_posix(),
        }

    def alone(self, name: str, architecture: Path, seed: int) -> dict[str, Any]:
        """An architecture from fresh weights, with the schedule of the paper."""
        run = {"architectures": [str(architecture)], "seeds": [seed], "recipes": ["paper"]}
        row, _ = self._run(f"alone-{architecture.parent.name}-{architecture.stem}-{seed}", run, EPOCHS)
        return self._kept(row, name)

    def random(self) -> list[Path]:
        """Files of random architectures of this cost."""
        files = []
        for number, found in enumerate(random_architectures(self._net(), self.case.maximum, RANDOM, seed=0)):
            files.append(self.out / f"random-{number}.json")
            write_file(files[-1], (found.to_json() + "\n").encode())
        return files

    def _run(self, name: str, run: Mapping[str, Any], epochs: float) -> tuple[dict[str, Any], Path]:
        shared = {"space": self.case.space, "data": SETTING.data, "data_root": self.data_root, "epochs": epochs}
        shared |= {"batch_size": SETTING.batch_size, "groups": SETTING.groups, "threads": 1}
        (row,) = sweep(self.out / name, shared, [run], test_all=True)
        return row, self.out / name / row["run"]

    def _kept(self, row: Mapping[str, Any], name: str) -> dict[str, Any]:
        scores = {part: 100 * row[part] for part in ("validation", "test")}
        used = row["macs"] / self.case.maximum
        return {"variant": name, "seed": row["seed"], **scores, "used": used, "seconds": row["seconds"]}

    def _net(self) -> SuperNetwork:
        return build(self.case.space, SETTING.shape, SETTING.classes)


def _certainty(net: SuperNetwork, folder: Path) -> dict[str, float]:
    """The entropy of Γ at the end, and the share of it in edges whose two nodes are not both in the found network."""
    records, _ = read(folder / "records.jsonl")
    last = next(r.values for r in reversed(records) if "probabilities" in r.values)
    p = torch.tensor(last["probabilities"], dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    bits = -(p * p.log2() + (1 - p) * (1 - p).log2())
    graph = net.graph
    found = Architecture.from_json(graph, (folder / "architecture.json").read_text(encoding="utf-8"))
    used = {node for edge in found.live() for node in (edge.source, edge.target)}
    dead = torch.tensor([edge.source not in used or edge.target not in used for edge in graph.edges])
    return {"entropy": float(bits.mean()), "dead": float(bits[dead].sum() / bits.sum())}


def summary(rows: Table) -> dict[str, Any]:
    """Every variant over its seeds."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == name]
        keys = [key for key in ("validation", "test", "used", "entropy", "dead", "seconds") if key in mine[0]]
        about = vars(VARIANTS[name]) | {"recipe": VARIANTS[name].recipe} if name in VARIANTS else {}
        found[name] = {**about, **{key: summarise(row[key] for row in mine) for key in keys}}
    return found


def main() -> None:
    """Runs what the file does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--model", choices=sorted(CASES), default="B-ResNet")
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    parser.add_argument("--variants", help="all if not given")
    parser.add_argument("--out", type=Path, default=Path("sweeps/paper-method"))
    given = parser.parse_args()
    case = CASES[given.model]
    path = RESULTS / f"{'_'.join(filter(None, ('paper_method', case.file)))}.json"
    study = Study(case, given.out / case.file, given.data_root)
    rows: Table = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []

    def missing(name: str, seed: int) -> bool:
        return not any((row["variant"], row["seed"]) == (name, seed) for row in rows)

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        about = f"reduced: {SETTING.data}, {case.space}, macs<={case.maximum}; accuracies in percent"
        save_result("paper_method", {"protocol": about, "variants": summary(rows), "rows": rows}, variant=case.file)
        print(f"{row['variant']}, seed {row['seed']}: {row['test']:.2f} % test, {row['used']:.3f} used", flush=True)

    asked = given.variants.split(",") if given.variants else list(VARIANTS)
    for seed in given.seeds:
        for name in asked:
            if missing(name, seed):
                keep(study.searched(name, seed))
        found = [row["folder"] for row in rows if (row["variant"], row["seed"]) == (USUAL, seed)]
        if found and missing(ALONE, seed):
            keep(study.alone(ALONE, study.out / found[0] / "architecture.json", seed))
    for seed, architecture in enumerate(study.random()):
        if missing(CHANCE, seed):
            keep(study.alone(CHANCE, architecture, seed))


if __name__ == "__main__":
    main()
