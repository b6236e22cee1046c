"""`budgetnet certify`, `export` and `predict`: what a run made, measured again, as a file, and put to use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from budgetnet import data
from budgetnet.budget import parse_all
from budgetnet.certify import certify as measure
from budgetnet.certify import show
from budgetnet.cli.options import plain_table, print_json, print_table
from budgetnet.data.images import read_image
from budgetnet.data.resize import area
from budgetnet.errors import UserError
from budgetnet.export import FORMATS, Description, Model, export_network, open_model
from budgetnet.export.formats import need
from budgetnet.export.stored import Stored, open_stored, without_own_checksum

COMPARED_IMAGES = 256
BATCHES, BATCH = 8, 64
"""Batches of validation data for a cost that depends on them."""


@click.command()
@click.argument("run_or_model", type=click.Path(path_type=Path))
@click.option("--budget", "budgets", multiple=True, help="Hold against this instead of the budgets it was made for.")
@click.option("--data-root", envvar="BUDGETNET_DATA", help="Folder of the data sets (or BUDGETNET_DATA).")
@click.option("--json", "as_json", is_flag=True, help="The certificate as JSON.")
def certify(run_or_model: Path, budgets: tuple[str, ...], data_root: str | None, as_json: bool) -> int:
    """Measure a finished run or an exported model again, here: exit 0 if every budget holds, 1 if one does not.

    \b
    budgetnet certify runs/run-1
    budgetnet certify model.onnx --budget "latency(threads=1)<=12ms" --budget "file_size<=500kB"
    """
    stored = open_stored(run_or_model)
    costs = {name.rpartition(":")[2]: name for name in (stored.config or {}).get("costs", ())}
    limits = parse_all(budgets or stored.limits, stored.net, costs)
    if not limits:
        raise UserError(f'{run_or_model} was made for no budget; give one, such as --budget "latency<=12ms"')
    depends = any(limit.meter.takes_batch for limit in limits)
    certificate = measure(
        stored.net,
        stored.architecture,
        limits,
        network=stored.network,
        description=stored.description,
        onnx=stored.onnx,
        batches=_batches(stored, data_root) if depends else (),
        checksums=stored.checksums,
    )
    if as_json:
        print_json(certificate)
    else:
        click.echo(show(certificate))
    return 0 if certificate["holds"] else 1


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "kind", type=click.Choice(list(FORMATS)), default="onnx", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; RUN/model.SUFFIX if not given.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--data-root", envvar="BUDGETNET_DATA", help="Folder of the data sets (or BUDGETNET_DATA).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def export(run: Path, kind: str, output: Path | None, force: bool, data_root: str | None, as_json: bool) -> None:
    """Write the network of a finished run as a file that needs no budgetnet: float32 images in [0, 1] to logits.

    The file is run in its own runtime and compared with the source, on random and on real images, before it is kept.

    \b
    budgetnet export runs/run-1 --format onnx -o model.onnx
    budgetnet predict model.onnx photo.png
    """
    need(kind)
    stored = open_stored(run)
    if not run.is_dir():
        raise UserError(f"{run} is a model file already; give the folder of the run that it came from")
    path = output or run / f"model{FORMATS[kind].suffix}"
    description = without_own_checksum(stored.description, path.name)
    images = _real_images(stored, data_root)
    done = export_network(stored.network, path, kind, description, images, force=force)
    if as_json:
        found = {"file": str(done.path), "format": kind, "sha256": done.checksum, "bytes": path.stat().st_size}
        print_json({**found, "largest_difference": done.difference, "images_compared": done.compared})
    else:
        size = f"{path.stat().st_size / 1e3:.1f} kB"
        click.echo(f"{path}: {size}, within {done.difference:.1g} of the source on {done.compared} images")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="A JSON list.")
def predict(file: Path, images: tuple[Path, ...], as_json: bool) -> None:
    """Run an exported model on image files: the most probable label of each, and its probability.

    \b
    budgetnet predict model.onnx cat.png dog.jpg
    budgetnet predict model.safetensors cat.png --json
    """
    model = open_model(file)
    batch = torch.stack([_image(path, model.description) for path in images])
    probabilities = model(batch).softmax(1)
    # a label map has a probability per pixel: the share of the picture that a label takes is what can be said in a line
    if probabilities.dim() > 2:
        chosen = probabilities.argmax(1).flatten(1)
        shares = [torch.bincount(row, minlength=probabilities.shape[1]) / row.numel() for row in chosen]
        probabilities = torch.stack(shares)
    rows = [_prediction(path, row, model) for path, row in zip(images, probabilities, strict=True)]
    if as_json:
        print_json(rows)
        return
    table = plain_table("image", "label", "probability", right=("probability",))
    for row in rows:
        table.add_row(row["image"], row["label"], f"{row['probability']:.4f}")
    print_table(table)


def _prediction(path: Path, probabilities: Tensor, model: Model) -> dict[str, Any]:
    best = int(probabilities.argmax())
    labels = model.description.labels
    return {
        "image": str(path),
        "label": labels[best] if best < len(labels) else str(best),
        "probability": float(probabilities[best]),
    }


def _image(path: Path, description: Description) -> Tensor:
    """An image file as the model takes it, resized to its input."""
    shape = description.input_shape
    if len(shape) != 3 or shape[0] not in (1, 3) or not description.scaled:
        raise UserError(
            f"the model takes inputs {'×'.join(map(str, shape))}, which are no images; run it from a program"
        )
    return _fit(read_image(path, grey=shape[0] == 1), shape)


def _fit(pixels: Tensor, shape: tuple[int, ...]) -> Tensor:
    """uint8 C×H×W as float32 in [0, 1], resized by area."""
    if pixels.shape[-2:] != shape[1:]:
        if shape[1] == shape[2]:
            pixels = area(pixels, shape[1])
        else:
            resized = torch.nn.functional.interpolate(pixels[None].float(), shape[1:], mode="area")[0]
            pixels = resized.round().to(torch.uint8)
    return pixels.float() / 255


def _split(config: Mapping[str, Any], data_root: str | None) -> data.Split:
    return data.load(config["data"], data_root or config.get("data_root")).validation


def _real_images(stored: Stored, data_root: str | None) -> Tensor:
    """Inputs of the run's own data as an exported file takes them; those inside the package where it is not at hand."""
    shape = stored.description.input_shape
    try:
        inputs = _split(stored.config or {"data": "embedded"}, data_root).inputs[:COMPARED_IMAGES]
    except UserError:
        inputs = data.load("embedded").validation.inputs[:COMPARED_IMAGES]
    if inputs.dtype != torch.uint8:
        return inputs.float()
    if tuple(inputs.shape[1:]) == shape:
        return inputs.float() / 255
    return torch.stack([_fit(image.expand(shape[0], -1, -1), shape) for image in inputs])


def _batches(stored: Stored, data_root: str | None) -> list[Tensor]:
    split = _split(stored.config or {"data": "embedded"}, data_root)
    return [data.prepare(split.inputs[i : i + BATCH]) for i in range(0, min(len(split), BATCHES * BATCH), BATCH)]
