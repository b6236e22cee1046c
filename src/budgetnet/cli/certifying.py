"""`budgetnet certify`, `export` and `predict`: what a run made, measured again, as a file, and put to use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from budgetnet import data
from budgetnet.budgets.budget import depends_on_batch, parse_all
from budgetnet.budgets.certificate import Int8Score
from budgetnet.budgets.certificate import certify as measure
from budgetnet.cli.options import plain_table, print_json, print_table
from budgetnet.data.feeds import SplitFeed
from budgetnet.data.images import image_files, read_image
from budgetnet.data.label_maps import label_map_png
from budgetnet.data.resize import area
from budgetnet.errors import UserError
from budgetnet.export import FORMATS, Description, Model, export_network, open_model
from budgetnet.export.files import sha256
from budgetnet.export.formats import Given, format_of, need, pack_onnx, source_runner
from budgetnet.export.rebuilding import INPUTS
from budgetnet.naming import own_names
from budgetnet.naming.files import write_file
from budgetnet.naming.values import typed
from budgetnet.network.inputs import InputSpec
from budgetnet.records.environment import environment
from budgetnet.records.results import MetricDescription
from budgetnet.runs import quantised
from budgetnet.runs.config import Config
from budgetnet.runs.stored import OWN, Stored, check_whole, open_stored, without_own_checksum
from budgetnet.training.evaluation import EVIDENCE_BATCHES, judge
from budgetnet.training.tasks import Task

COMPARED_IMAGES = 256
COMPARED_VALUES = 2**23
"""Of large images fewer are compared: all of them pass the network at once."""


def certify(
    run_or_model: Path,
    budgets: tuple[str, ...],
    space: str | None,
    costs: tuple[str, ...],
    trust: bool,
    data_root: str | None,
    as_json: bool,
) -> int:
    """`budgetnet certify`: returns 0 if every budget holds, 1 if one does not."""
    stored = open_stored(run_or_model, space=space, trust=trust)
    own, named = own_names(*costs, *budgets), (*(stored.config.costs if stored.config else ()), *costs)
    short = {name.rpartition(":")[2]: name for name in named}
    wanted = budgets or stored.limits
    if not wanted:
        raise UserError(f'{run_or_model} was made for no budget; give one, such as --budget "latency<=12ms"')
    if stored.whole:
        check_whole(wanted, run_or_model)
    depends = any(depends_on_batch(budget, stored.net, short, own=own) for budget in wanted)
    batches = _batches(stored, data_root) if depends else ()
    limits = parse_all(wanted, stored.net, short, batches[0] if batches else None, own=own)
    certificate = measure(
        stored.net,
        stored.architecture,
        limits,
        network=stored.network,
        description=stored.description,
        onnx=stored.onnx,
        batches=batches,
        environment=environment(),
        checksums=stored.checksums,
        int8=stored.int8,
        int8_score=_int8_score(stored),
    )
    if as_json:
        print_json(certificate.to_json())
    else:
        click.echo(certificate.show())
    return 0 if certificate.holds else 1


def _int8_score(stored: Stored) -> Int8Score | None:
    """What the certificate of the run says about its int8 file, which is still the same file."""
    known = stored.description.certificate.get("int8")
    return None if known is None or stored.int8 is None else typed(known, Int8Score, "the certificate", "certify again")


def export(
    run: Path,
    kind: str | None,
    output: Path | None,
    space: str | None,
    precision: str,
    int8_drop: float,
    force: bool,
    data_root: str | None,
    as_json: bool,
) -> None:
    """`budgetnet export`: writes the network of a finished run to a file."""
    if kind is None:
        chosen = format_of(output.name) if output is not None else FORMATS["onnx"]
        kind = next(name for name, known in FORMATS.items() if known is chosen)
    need(kind)
    if precision == "int8" and kind != "onnx":
        raise UserError(f"int8 files are ONNX files; use --format onnx, or leave out --precision int8 for {kind}")
    if run.is_file():
        raise UserError(f"{run} is a model file already; give the folder of the run that it came from")
    stored = open_stored(run, space=space)
    path = output or run / f"model{'.int8' if precision == 'int8' else ''}{FORMATS[kind].suffix}"
    description = without_own_checksum(stored.description, path.name)
    if precision == "int8":
        _export_int8(stored, path, description, int8_drop, force, data_root, as_json)
        return
    inputs = _real_inputs(stored, data_root)
    done = export_network(stored.network, path, kind, description, inputs, force=force)
    if as_json:
        found = {"file": str(done.path), "format": kind, "sha256": done.checksum, "bytes": path.stat().st_size}
        print_json({**found, "largest_difference": done.difference, "images_compared": done.compared})
    else:
        size = f"{path.stat().st_size / 1e3:.1f} kB"
        what = "images" if description.scaled else "inputs"
        click.echo(f"{path}: {size}, within {done.difference:.1g} of the source on {done.compared} {what}")


def _export_int8(
    stored: Stored, path: Path, description: Description, drop: float, force: bool, root: str | None, as_json: bool
) -> None:
    """Calibrates on the run's training data, and keeps the file only if it is nearly as good on validation data."""
    if stored.config is None or stored.config.data == OWN:
        raise UserError(
            "an int8 file needs the training data of its run, which are your own and not in its folder; search with a "
            "budget such as file_size(precision=int8)<=80%, which leaves the file in the folder"
        )
    if path.exists() and not force:
        raise UserError(f"{path} exists already; choose another name, or replace it with --force")
    where = root or stored.config.data_root
    parts = data.load(stored.config.data, Path(where) if where else None)
    train, validation = SplitFeed(parts.train, 1, 0), SplitFeed(parts.validation, 1, 0)
    made = pack_onnx(stored.network, description, quantised.samples(train, description.scaled))
    networks = (stored.network, quantised.FileNetwork(made, description.scaled))
    fp32, int8 = (judge(network, Task(), validation.evaluation()).metric for network in networks)
    found = quantised.scored(fp32, int8, drop, MetricDescription())
    if not found.holds:
        raise UserError(
            f"the int8 file has a validation accuracy of {int8:.2%} and the network {fp32:.2%}, which is "
            f"{found.drop:.2f} points less and more than the {drop:g} allowed; nothing was written: allow more with "
            "--int8-drop, or use fp32"
        )
    write_file(path, made, replace=force)
    if as_json:
        about = {"file": str(path), "format": "onnx", "precision": "int8", "sha256": sha256(made), "bytes": len(made)}
        print_json({**about, "validation_accuracy": int8, "validation_accuracy_fp32": fp32})
    else:
        click.echo(f"{path}: {len(made) / 1e3:.1f} kB, validation accuracy {int8:.2%} (the network: {fp32:.2%})")


def predict(file: Path, images: tuple[Path, ...], output: Path | None, force: bool, trust: bool, as_json: bool) -> None:
    """`budgetnet predict`: runs an exported model, or the network of a run, on image files or folders of them."""
    model = _of_run(file) if file.is_dir() else open_model(file, trust=trust)
    images = tuple(_image_paths(images))
    segments = model.description.task == "segmentation"
    if output is not None and not segments:
        raise UserError(f"{file} gives a label for a whole image, no label maps; leave out -o {output}")
    maps = _map_files(images, output, force) if output is not None else [None] * len(images)
    if segments:
        rows = [_segmentation(path, model, target) for path, target in zip(images, maps, strict=True)]
    else:
        rows = [_classification(path, model) for path in images]
    if as_json:
        print_json(rows)
    elif segments:
        _print_shares(rows)
    else:
        _print_labels(rows)


def _of_run(run: Path) -> Model:
    """The network of a finished run, which is run as an exported file would be."""
    stored = open_stored(run)
    return Model(run, stored.description, source_runner(stored.network, stored.description))


def _image_paths(paths: Sequence[Path]) -> Iterator[Path]:
    """Images, and those of a folder or, if there are none in it, of its folders: those of the classes."""
    for path in paths:
        found = image_files(path) if path.is_dir() else [path]
        if not found:
            found = [image for folder in sorted(path.iterdir()) if folder.is_dir() for image in image_files(folder)]
        if not found:
            raise UserError(f"the folder {path} holds no image; give images, or a folder of them")
        yield from found


def _classification(path: Path, model: Model) -> dict[str, Any]:
    probabilities = model(_image(path, model.description)[None]).softmax(1)[0]
    best = int(probabilities.argmax())
    return {"image": str(path), "label": model.description.label(best), "probability": float(probabilities[best])}


def _segmentation(path: Path, model: Model, target: Path | None) -> dict[str, Any]:
    scores = model(_image(path, model.description)[None])
    labels = scores.argmax(1)[0]
    shares = (torch.bincount(labels.flatten(), minlength=scores.shape[1]) / labels.numel()).tolist()
    if target is not None:
        size = read_image(path).shape[-2:]
        enlarged = torch.nn.functional.interpolate(labels[None, None].to(torch.uint8), size, mode="nearest-exact")
        write_file(target, label_map_png(enlarged[0, 0]))
    named = {model.description.label(label): share for label, share in enumerate(shares)}
    return {"image": str(path), "shares": named, "label_map": None if target is None else str(target)}


def _map_files(images: Sequence[Path], folder: Path, force: bool) -> list[Path | None]:
    """A file for the map of each image, refused before any work if it would replace another."""
    files = [folder / f"{image.stem}.png" for image in images]
    for place, file in enumerate(files):
        if file in files[:place]:
            raise UserError(f"two images would have the label map {file}; give them to separate calls")
        if file.exists() and (not force or any(file.samefile(image) for image in images if image.exists())):
            raise UserError(f"{file} exists already; choose another folder, or --force to replace a label map")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder {folder} cannot be made ({error.strerror}); choose another one with -o") from None
    return [*files]


def _print_labels(rows: Sequence[Mapping[str, Any]]) -> None:
    table = plain_table("image", "label", "probability", right=("probability",))
    for row in rows:
        table.add_row(row["image"], row["label"], f"{row['probability']:.4f}")
    print_table(table)


def _print_shares(rows: Sequence[Mapping[str, Any]]) -> None:
    classes = list(rows[0]["shares"])
    table = plain_table("image", *classes, "label map", right=tuple(classes))
    for row in rows:
        table.add_row(row["image"], *(f"{share:.2%}" for share in row["shares"].values()), row["label_map"] or "")
    print_table(table)


def _image(path: Path, description: Description) -> Tensor:
    """An image file as the model takes it, resized to its input."""
    shape = description.input_shape
    if len(shape) != 3 or shape[0] not in (1, 3) or not description.scaled:
        raise UserError(
            f"the model takes inputs {'×'.join(map(str, shape))}, which are no images; run it from a program"
        )
    return _fit(read_image(path, grey=shape[0] == 1), shape) * (description.white / 255)


def _fit(pixels: Tensor, shape: tuple[int, ...]) -> Tensor:
    """uint8 C×H×W as float32, resized by area."""
    if pixels.shape[-2:] != shape[1:]:
        if shape[1] == shape[2]:
            pixels = area(pixels, shape[1])
        else:
            resized = torch.nn.functional.interpolate(pixels[None].float(), shape[1:], mode="area")[0]
            pixels = resized.round().to(torch.uint8)
    return pixels.float()


def _split(config: Config, data_root: str | None) -> data.Split:
    root = data_root or config.data_root
    return data.load(config.data, Path(root) if root else None).validation


def _real_inputs(stored: Stored, data_root: str | None) -> Given:
    """Inputs of the run's own data as an exported file takes them; zeros where they are no images and not numbers."""
    spec: InputSpec | None = stored.network.meta.get(INPUTS)
    shape, dtype = stored.description.input_shape, stored.description.dtype
    if spec is not None and len(spec.names) > 1:
        return spec.tensors(spec.example(2, "cpu"))
    return _real_images(stored, data_root) if dtype.is_floating_point else torch.zeros((2, *shape), dtype=dtype)


def _real_images(stored: Stored, data_root: str | None) -> Tensor:
    """Images of the run's own data, or those inside the package where they are not at hand."""
    shape = stored.description.input_shape
    count = min(COMPARED_IMAGES, max(4, COMPARED_VALUES // math.prod(shape)))
    if len(shape) != 3:
        return torch.rand(count, *shape)  # no images; a user's own data are not at hand
    try:
        inputs: Tensor = _split(stored.config or Config(data="embedded"), data_root).inputs[:count]
    except UserError:
        inputs = data.load("embedded").validation.inputs[:count]
    if inputs.dtype != torch.uint8:
        return inputs.to(stored.description.dtype)
    if tuple(inputs.shape[1:]) == shape:
        return inputs.float()
    return torch.stack([_fit(image.expand(shape[0], -1, -1), shape) for image in inputs])


def _batches(stored: Stored, data_root: str | None) -> list[Tensor]:
    """The batches that the run itself was certified on."""
    if stored.config is None:
        raise UserError("a model file does not say on which data its cost depends; certify the folder of its run")
    feed = SplitFeed(_split(stored.config, data_root), 1, 0)
    return [inputs for inputs, _ in itertools.islice(feed.evaluation(), EVIDENCE_BATCHES)]
