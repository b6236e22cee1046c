"""Does the search keep what a segmentation needs? A reduced protocol: Part Labels at 64×64, a neural fabric.

The fabric has 4 columns, 7 scales and 16 filters. Opponent: all of it (the full CNF), trained by `budgetnet train` with
the same final epochs, data and augmentation. The search (B-CNF) may use 60 % of its multiply-adds. Asked: test pixel
accuracy within half a point, or better. Finished runs are not run again, interrupted ones go on.

    python -m benchmarks.segmentation --data-root DATA [--runs runs/segmentation] [--seeds 0] [--epochs 30]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from benchmarks._common import RESULTS, add_data_root, numbers, summarise, write_result
from budgetnet.data.label_maps import colour
from budgetnet.pictures.examples import EXAMPLES, picture_file

SPACE = "neural-fabric:width=4,scales=7,filters=16,task=segmentation"
DATA = "lfw-parts:size=64"
BUDGET = "macs<=60%"
POINTS = 0.5
"""Points of pixel accuracy that the smaller network may lose."""
BATCH = 32
CELL, GAP, LINE = 128, 6, 26
"""Pixels of the picture: the side of a cell, the space between cells, the height of a line of text."""


def main() -> None:
    """Runs what is missing, then writes the result and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/segmentation"))
    parser.add_argument("--seeds", type=numbers, default="0")
    parser.add_argument("--epochs", type=float, default=30)
    arguments = parser.parse_args()
    seeds = arguments.seeds
    common = ["--data", DATA, "--data-root", arguments.data_root, "--epochs", f"{arguments.epochs:g}"]
    common += ["--batch-size", str(BATCH)]
    full, found = [], []
    for seed in seeds:
        chosen = [*common, "--seed", str(seed)]
        full.append(_run(["train", SPACE, "--architecture", "full", *chosen], arguments.runs / f"full-{seed}"))
        search = ["search", "--space", SPACE, "--budget", BUDGET]
        found.append(_run([*search, *chosen], arguments.runs / f"search-{seed}"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    folders = {"full CNF": arguments.runs / f"full-{seeds[0]}", "B-CNF": arguments.runs / f"search-{seeds[0]}"}
    sheet(folders).save(RESULTS / "segmentation.png", optimize=True)
    write_result("segmentation", _result(arguments.epochs, seeds, full, found))


def _run(command: list[str], out: Path) -> dict[str, Any]:
    options = ["--out", str(out), "--resume", "--threads", "1", "--json"]
    done = subprocess.run([sys.executable, "-m", "budgetnet", *command, *options], check=True, stdout=subprocess.PIPE)
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def _result(epochs: float, seeds: list[int], full: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, Any]:
    def points(runs: list[dict[str, Any]], name: str) -> list[float]:
        return [100 * run[name] for run in runs]

    pairs = zip(points(found, "test_accuracy"), points(full, "test_accuracy"), strict=True)
    difference = summarise(searched - whole for searched, whole in pairs)
    return {
        "protocol": f"reduced: {DATA}, {SPACE}, {BUDGET}, {epochs:g} final epochs, batch {BATCH}, one thread",
        "seeds": seeds,
        "within_half_a_point": difference["mean"] >= -POINTS,
        "difference_in_points": difference,
        "search": {name: summarise(points(found, name)) for name in ("test_accuracy", "test_mean_iou")},
        "full": {name: summarise(points(full, name)) for name in ("test_accuracy", "test_mean_iou")},
        "macs": [run["macs"] for run in found],
        "full_macs": full[0]["macs"],
        "budgets_met": [run["budgets"][0]["met"] for run in found],
        "params": [run["params"] for run in found],
        "full_params": full[0]["params"],
        "seconds": [run["seconds"] for run in found],
        "phases": [run["phases"] for run in found],
        "full_seconds": [run["seconds"] for run in full],
        "pictures": "segmentation.png",
    }


def sheet(runs: dict[str, Path]) -> Image.Image:
    """Validation examples in rows: truth and the prediction of every run, under their names; then the legend.

    The photographs belong to the data set and stay in the reports of the runs.
    """
    first = next(iter(runs.values()))
    columns = [("truth", first, "truth")]
    columns += [(name, folder, "prediction") for name, folder in runs.items()]
    step = CELL + GAP
    page = Image.new("RGB", (len(columns) * step - GAP, 2 * LINE + EXAMPLES * step), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(15)
    for x, (name, folder, kind) in enumerate(columns):
        pen.text((x * step, 3), name, "black", font)
        for y in range(EXAMPLES):
            with Image.open(folder / picture_file(y + 1, kind)) as picture:
                cell = picture.convert("RGB").resize((CELL, CELL), Image.Resampling.NEAREST)
            page.paste(cell, (x * step, LINE + y * step))
    left, top = 0, LINE + EXAMPLES * step
    for label, name in enumerate(json.loads((first / "data.json").read_text(encoding="utf-8"))["classes"]):
        pen.rectangle((left, top + 5, left + 14, top + 19), colour(label))
        pen.text((left + 20, top + 3), name, "black", font)
        left += 40 + round(pen.textlength(name, font))
    return page


if __name__ == "__main__":
    main()
