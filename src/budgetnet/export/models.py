"""Exports a network, verified before it is kept, and opens what was exported."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, fx, nn

from budgetnet.errors import UserError, reason
from budgetnet.export.description import Description
from budgetnet.export.files import check_seal, sha256
from budgetnet.export.formats import FORMATS, Given, Runner, format_of, need, program_bytes, source_runner, tensors_of
from budgetnet.naming.files import read_bytes, write_file

M = TypeVar("M", bound=nn.Module)

TOLERANCE = 1e-4
"""How far an exported network's logits may be from the source's, relative to the largest of them if that is above 1."""


@dataclass(frozen=True)
class Exported:
    """A file that was written, its checksum, and the largest difference from the source that was seen."""

    path: Path
    checksum: str
    difference: float
    compared: int


@dataclass(frozen=True)
class Model:
    """An opened model file."""

    path: Path
    description: Description
    runner: Runner

    def __call__(self, images: Tensor) -> Tensor:
        """Outputs for inputs as the data of the run have them: pixels from 0 to 255 if the file scales them."""
        shape, dtype = self.description.input_shape, self.description.dtype
        images = images.to(dtype) if self.description.scaled and images.dtype == torch.uint8 else images
        if images.dim() != len(shape) + 1 or tuple(images.shape[1:]) != shape or images.dtype != dtype:
            expected = "×".join(map(str, shape))
            raise UserError(
                f"{self.path} takes {self.description.input_dtype} inputs N×{expected}, not {images.dtype} "
                f"{tuple(images.shape)}; convert them"
            )
        try:
            with torch.inference_mode():
                return self.runner(images.contiguous())
        except Exception as error:  # every runtime has classes of its own, and a file may hold anything
            raise UserError(f"{self.path} cannot be run ({reason(error)}); export it again") from None


def export_network(
    network: fx.GraphModule, path: Path, kind: str, description: Description, images: Given, *, force: bool = False
) -> Exported:
    """Writes an extracted network in a format of `FORMATS`, after running it there on random and on real inputs.

    `images` are real inputs, pixels from 0 to 255 as float32 if the description says scaled; a tuple of tensors for a
    network with several inputs. Its certificate must not
    hold the checksum of the file that is being made.
    """
    need(kind)
    if path.exists() and not force:
        raise UserError(f"{path} exists already; choose another name, or replace it with --force")
    if not path.name.endswith(FORMATS[kind].suffix):
        raise UserError(f"a file in the format {kind} ends in {FORMATS[kind].suffix}, {path.name} does not; rename it")
    network = _evaluating(network)
    data = FORMATS[kind].pack(network, description)
    _, runner = FORMATS[kind].load(data, path.name)
    difference = verify(source_runner(network, description), runner, description, images)
    write_file(path, data, replace=force)
    return Exported(path, sha256(data), difference, len(tensors_of(images)[0]))


def verify(source: Runner, exported: Runner, description: Description, images: Given) -> float:
    """The largest difference between two runners on random and real inputs; beyond the tolerance it is refused."""
    largest = 0.0
    real = zip(*(torch.split(tensor, 100) for tensor in tensors_of(images)), strict=True)
    for batch in (*_random(description, len(tensors_of(images))), *real):
        given = batch if len(batch) > 1 else batch[0]
        with torch.inference_mode():
            expected, got = source(given), exported(given)
        difference = float((expected - got).abs().max()) / max(1.0, float(expected.abs().max()))
        # written so that a NaN does not pass
        if not difference <= TOLERANCE:
            raise UserError(
                f"the exported network differs from its source by {difference:.2g}, more than {TOLERANCE:g}; "
                "nothing was written: use layers that the format supports"
            )
        largest = max(largest, difference)
    return largest


def _random(description: Description, inputs: int) -> list[tuple[Tensor, ...]]:
    """Random inputs; whole numbers may be indices that only the data know the range of, so there are none of them."""
    if not description.dtype.is_floating_point or inputs > 1:
        return []
    values = torch.rand(3, *description.input_shape, generator=torch.Generator().manual_seed(0))
    return [((values * description.white if description.scaled else values).to(description.dtype),)]


def open_model(path: Path, *, trust: bool = False) -> Model:
    """A model file that `export_network` wrote, ready to run.

    Args:
        path: A file in a format of `FORMATS`.
        trust: Whether to open a torch program (`.pt2`) at all. Torch unpickles and evaluates what is in such a file,
            and its checksum says nothing about who wrote it: whoever opens one runs it.

    Returns:
        The model, which nobody changed after its export by accident; a checksum is no signature.
    """
    chosen = format_of(path.name)
    if chosen is FORMATS["torch"] and not trust:
        raise UserError(
            f"{path} is a torch program, and opening one runs code that is in it; use the ONNX or safetensors file, "
            "or say --trust (trust=True in Python) if you made the file yourself"
        )
    data = read_bytes(path)
    if chosen is not FORMATS["torch"]:
        check_seal(data, path)
    description, runner = chosen.load(data, str(path))
    return Model(path, description, runner)


def predict(path: Path, images: Tensor, *, trust: bool = False) -> Tensor:
    """The logits that a model file gives for inputs as the data of its run have them; `trust` is for torch programs."""
    return open_model(path, trust=trust)(images)


def save_program(network: nn.Module, path: Path, description: Description) -> str:
    """Saves a network as a torch program with a free batch dimension, replacing the file; returns its checksum.

    It takes what the data of the run have: pixels are scaled inside, if the description says so.
    """
    data = program_bytes(_evaluating(network), description)
    write_file(path, data)
    return sha256(data)


def _evaluating(network: M) -> M:
    return copy.deepcopy(network).cpu().eval()
