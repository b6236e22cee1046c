"""Run folders in the documented format, from real parts: a real distribution that learns, real costs, real records.

Only the learning is made up (losses and accuracies follow a formula), so that a folder takes no time to make.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from budgetnet.budgets.budget import Budget, parse_all
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import JsonLines, Record
from budgetnet.records.results import BudgetResult, Summary
from budgetnet.spaces import build

SPACE = "resnet-fabric:width=2,channels=4"
SHAPE, CLASSES = (3, 16, 16), 4
PHASES = {"warm-up": 0.15, "search": 0.45, "choose": 0.1, "finish": 0.3}


def make_run(
    folder: Path,
    space: str = SPACE,
    budgets: tuple[str, ...] = ("macs<=50%",),
    epochs: int = 20,
    steps: int = 5,
    seed: int = 0,
    stop_after: int | None = None,
    shape: tuple[int, ...] = SHAPE,
    labels: tuple[str, ...] = ("cat", "dog", "owl", "yak"),
) -> Path:
    """A finished run, or one that stops after some epochs."""
    folder.mkdir(parents=True, exist_ok=True)
    net = build(space, shape, len(labels))
    limits = parse_all(budgets, net)
    _write(folder / "config.json", _config(space, budgets, epochs, seed))
    _write(folder / "data.json", {"name": "made-up", "task": "classification", "classes": labels, "input_shape": shape})
    sink = JsonLines(folder / "records.jsonl")
    for record in records(net, limits, epochs, steps, seed, folder / "archive.jsonl"):
        if stop_after is not None and record.time > stop_after:
            break
        sink.write(record)
    sink.close()
    if stop_after is None:
        _finish(folder, net, limits, seed)
    return folder


def records(
    net: SuperNetwork, budgets: list[Budget], epochs: int, steps: int, seed: int, archive: Path
) -> Iterator[Record]:
    """The records of a run, one by one; archived architectures are written on the way."""
    generator = torch.Generator().manual_seed(seed)
    distribution = EdgeDistribution(net.graph)
    aim = _aim(net, budgets, generator)
    done = 0
    with archive.open("w") as file:
        for phase, share in PHASES.items():
            length = max(1, round(share * epochs))
            step = 0
            yield Record("phase", phase, 0, 0, float(done), {"epochs": length, "steps": length * steps})
            for i in range(length):
                done += 1
                epoch = i + 1
                loss = 2.3 * math.exp(-2.5 * done / epochs) + 0.3
                for _ in range(steps):
                    step += 1
                    noise = float(torch.randn((), generator=generator)) * 0.08
                    yield Record("step", phase, epoch, step, float(done), {"loss": loss + noise, "lr": 0.1})
                values = {
                    "loss": loss,
                    "accuracy": 1 - loss / 3,
                    "validation_loss": loss + 0.1,
                    "lr": 0.1,
                    "seconds": 1.5,
                }
                values["validation_accuracy"] = 0.95 - loss / 3
                if phase == "search":
                    with torch.no_grad():
                        distribution.logits.lerp_(aim, 2.5 / length)
                    values |= _search_values(distribution, budgets, (i + 1) / length, generator)
                    _archive(file, distribution, budgets, epoch, loss, generator)
                yield Record("epoch", phase, epoch, step, float(done), values)
            if phase == "choose":
                yield from _race(budgets, float(done))


def _race(budgets: list[Budget], time: float) -> Iterator[Record]:
    """Three candidates after an epoch each, and the better two of them after another one; the second one wins."""
    turns = ((1, 1, 0.9), (2, 1, 0.7), (3, 1, 0.8), (2, 2, 0.5), (3, 2, 0.6))
    for step, (racer, turn, loss) in enumerate(turns, 1):
        costs = {f"cost/{budget.name}": budget.maximum * (0.7 + 0.1 * racer) for budget in budgets}
        about = {"racer": racer, "racers": 3, "round": turn, "origin": ("mode", "sample", "search")[racer - 1]}
        values = {**about, "edges": 9 + racer, "epochs": float(turn), "loss": loss, **costs}
        yield Record("racer", "race", 1, 5 * step, time, values)


def result(net: SuperNetwork, budgets: list[Budget], seed: int) -> Architecture:
    """The architecture that the run of this seed ends with: within every budget."""
    return net.graph.architecture(_aim(net, budgets, torch.Generator().manual_seed(seed)) > 0).live()


def _aim(net: SuperNetwork, budgets: list[Budget], generator: torch.Generator) -> torch.Tensor:
    """Logits whose mode is a random architecture within the budgets."""
    for attempt in range(4000):
        keep = torch.rand(len(net.graph.edges), generator=generator) < 0.75 - attempt / 8000
        inside = all(budget.meter.evaluate(keep[None])[0] <= budget.maximum for budget in budgets)
        if inside and net.graph.live(keep[None]).any():
            return torch.where(keep, 4.0, -4.0)
    raise AssertionError("the budgets of this test are too tight to be met by chance")


def _search_values(
    distribution: EdgeDistribution, budgets: list[Budget], progress: float, generator: torch.Generator
) -> dict[str, object]:
    gates = distribution.sample(32, generator).gates
    values: dict[str, object] = {
        "policy_lr": 0.05,
        "entropy": float(distribution.entropy().mean()),
        "probabilities": [round(p, 4) for p in distribution.probabilities.tolist()],
    }
    for budget in budgets:
        costs = budget.meter.evaluate(gates)
        target = budget.meter.full + (budget.maximum - budget.meter.full) * min(progress / 0.8, 1)
        values |= {
            f"cost/{budget.name}": float(costs.mean()),
            f"violation/{budget.name}": float((costs > target).double().mean()),
            f"lambda/{budget.name}": 3 * progress * (1.2 - progress),
            f"target/{budget.name}": target,
            f"mode_cost/{budget.name}": budget.meter(distribution.mode()),
        }
    return values


def _archive(
    file: object,
    distribution: EdgeDistribution,
    budgets: list[Budget],
    epoch: int,
    loss: float,
    generator: torch.Generator,
) -> None:
    for gates in distribution.sample(8, generator).gates:
        costs = {budget.name: float(budget.meter.evaluate(gates[None])[0]) for budget in budgets}
        use = np.mean([costs[b.name] / b.meter.full for b in budgets])
        score = 0.9 - loss / 3 + 0.1 * float(use) ** 0.5 + 0.02 * float(torch.randn((), generator=generator))
        line = {
            "kept": np.packbits(gates.numpy()).tobytes().hex(),
            "phase": "search",
            "epoch": epoch,
            "validation_accuracy": score,
            "validation_loss": loss,
            "costs": costs,
            "feasible": all(costs[b.name] <= b.maximum for b in budgets),
        }
        print(json.dumps(line), file=file)  # type: ignore[call-overload]


def _config(space: str, budgets: tuple[str, ...], epochs: int, seed: int) -> dict[str, object]:
    return {
        "version": "0.1.0",
        "versions": {"python": "3.11.7", "torch": torch.__version__, "budgetnet": "0.1.0"},
        "machine": {"system": "Linux", "processor": "x86_64", "cores": 2},
        "command": "budgetnet search " + " ".join(f"--budget '{budget}'" for budget in budgets),
        "config": {
            "space": space,
            "data": "made-up",
            "budgets": list(budgets),
            "recipe": "fast",
            "epochs": epochs,
            "groups": 8,
            "batch_size": 128,
            "seed": seed,
        },
    }


def _finish(folder: Path, net: SuperNetwork, budgets: list[Budget], seed: int) -> None:
    architecture = result(net, budgets, seed)
    (folder / "architecture.json").write_text(architecture.to_json())
    costs = {budget.name: budget.meter(architecture) for budget in budgets}
    entries = tuple(
        BudgetResult(b.name, b.meter.unit, b.maximum, costs[b.name], costs[b.name] <= b.maximum, b.text)
        for b in budgets
    )
    macs, params = (parse_all([f"{name}<=100%"], net)[0].meter(architecture) for name in ("macs", "params"))
    summary = Summary(
        run=folder.name,
        space=net.name,
        recipe="fast",
        seed=seed,
        architecture=tuple(edge.name for edge in architecture),
        budgets=entries,
        validation_score=0.861 + seed / 100,
        test_score=0.853 + seed / 100,
        macs=round(macs),
        params=round(params),
        seconds=754.0,
        phases={"warm-up": 90.0, "search": 330.0, "choose": 64.0, "finish": 270.0},
    )
    _write(folder / "summary.json", summary.to_json())
    proofs = [
        {"cost": e.cost, "text": e.text, "unit": e.unit, "maximum": e.maximum, "measured": e.value}
        | {"upper_bound": e.value, "how": {"method": "exact"}, "holds": e.met}
        for e in entries
    ]
    _write(folder / "certificate.json", {"holds": summary.met, "budgets": proofs})


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))
