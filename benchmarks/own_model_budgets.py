"""Does a converted model meet a budget of every kind? A ResNet and a transformer, tiny and trained for a moment.

For each model and each kind of budget alone, and for all at once: a search from the model's weights, its certificate,
and an ONNX file whose predictions are compared with those of the network on data that nobody trained on. The
transformer reads words and a padding mask.

    python -m benchmarks.own_model_budgets [--seeds 1]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import budgetnet
from benchmarks._common import arguments, pin_threads, write_result
from budgetnet import SuperNetwork, from_model
from budgetnet.strategies.trained import TrainedRecipe, trained

BUDGETS = (
    *("macs<=60%", "params<=70%", "size<=70%", "latency<=90%"),
    *("peak_memory<=90%", "file_size<=80%", "steps(2)<=90%"),
)
TOLERANCE = 1e-4
EXAMPLES = 256
Data = tuple[Any, Tensor]


def images(count: int, seed: int) -> Data:
    """Stripes of five directions with noise."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(5, (count,), generator=draw)
    rows, columns = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    angles = y[:, None, None] * torch.pi / 5
    stripes = torch.sin(rows * angles.cos() + columns * angles.sin())[:, None]
    return stripes + 0.3 * torch.randn(count, 3, 12, 12, generator=draw), y


def sentences(count: int, seed: int) -> Data:
    """Words of unequal number, and how many of them are from the first half of the vocabulary, up to four."""
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 20, (count, 7), generator=draw)
    padding = torch.arange(7) >= torch.randint(2, 8, (count, 1), generator=draw)
    return {"tokens": words, "padding": padding}, ((words < 10) & ~padding).sum(1).clamp(max=4)


def cases() -> dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], Data]]]:
    """The models and their data."""
    from tests.models import BasicBlock, Encoder, ResNet

    return {
        "ResNet": (lambda: ResNet([BasicBlock(8, 8), BasicBlock(8, 12, 2), BasicBlock(12, 12)], 8, 12), images),
        "transformer": (Encoder, sentences),
    }


def made(name: str, seed: int = 0) -> SuperNetwork:
    """A model, trained for a moment and converted."""
    make, data = cases()[name]
    torch.manual_seed(seed)
    model, (inputs, targets) = make(), data(EXAMPLES, seed)
    call = model if isinstance(inputs, Tensor) else lambda x: model(**x)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(call(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    few = inputs[:2] if isinstance(inputs, Tensor) else {key: value[:2] for key, value in inputs.items()}
    return from_model(model, few, slices=4, name=name)


def recipe() -> TrainedRecipe:
    """The recipe for trained weights, over in a moment."""
    sizes = {"batch_size": 64, "groups": 4, "choose_examples": 64, "importance_examples": 96}
    return trained(1).changed({**sizes, "race_epochs": 0.5})


def searched(name: str, budgets: Sequence[str], folder: Path, seed: int = 0) -> dict[str, Any]:
    """A search under these budgets: its certificate, and by how much the exported file differs."""
    net, data = made(name, seed), cases()[name][1]
    start = time.perf_counter()
    train, validation = data(EXAMPLES, seed), data(64, seed + 100)
    result = budgetnet.search(
        net, train, validation, budgets=list(budgets), recipe=recipe(), seed=seed, out=folder / "run", quiet=True
    )
    assert result.certificate is not None
    unseen = data(64, seed + 200)[0]
    file = result.export(folder / "model.onnx")
    return {
        "model": name,
        "budgets": list(budgets),
        "met": result.met,
        "certified": result.certificate.holds,
        "costs": [{"cost": b.cost, "measured": b.measured, "maximum": b.maximum} for b in result.certificate.budgets],
        "largest_difference": largest_difference(result, file.path, unseen),
        "seconds": round(time.perf_counter() - start, 1),
    }


def largest_difference(result: budgetnet.Result, path: str | Path, inputs: Any) -> float:
    """Between what the network and the file give for inputs that were in no data set."""
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = list(inputs.values()) if isinstance(inputs, dict) else [inputs]
    names = [value.name for value in session.get_inputs()]
    outputs = session.run(None, dict(zip(names, (value.numpy() for value in given), strict=True)))
    with torch.no_grad():
        expected = result.model.eval()(**inputs) if isinstance(inputs, dict) else result.model.eval()(inputs)
    return float((torch.from_numpy(outputs[0]) - expected).abs().max())


def main() -> None:
    """Every kind of budget alone, and all at once, for both models."""
    options = arguments(__doc__, seeds=1)
    pin_threads(1)
    rows = []
    for name in cases():
        for budgets in (*((budget,) for budget in BUDGETS), BUDGETS):
            for seed in range(options.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(searched(name, budgets, Path(folder), seed))
                print(rows[-1], flush=True)
    held = [row["met"] and row["certified"] and row["largest_difference"] < TOLERANCE for row in rows]
    payload = {"bar": TOLERANCE, "met": all(held), "seeds": list(range(options.seeds)), "n": len(rows), "results": rows}
    write_result("own_model_budgets", payload)


if __name__ == "__main__":
    main()
