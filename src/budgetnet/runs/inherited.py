"""Runs that start from trained weights: the weights and the teacher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from budgetnet.errors import UserError
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.runs.stored import open_stored
from budgetnet.spaces.weights import load_weights
from budgetnet.training.distillation import Teacher

SELF, NONE = "self", "none"
"""The full network as its own teacher; no teacher."""


@contextmanager
def lent_weights(net: SuperNetwork) -> Iterator[None]:
    """Gives a super network its trained weights back in the end: they are a user's model, which stays as it was."""
    kept = {name: value.clone() for name, value in net.state_dict().items()} if net.trained else {}
    try:
        yield
    finally:
        if kept:
            net.load_state_dict(kept)


def original_of(net: SuperNetwork) -> nn.Module | None:
    """A copy of the trained network as a module of its own; None if the weights are fresh."""
    return extract(net, net.graph.full).eval() if net.trained else None


def make_teacher(
    chosen: str | Path | nn.Module | Teacher | None, net: SuperNetwork, original: nn.Module | None, by_itself: bool
) -> Teacher | None:
    """The teacher of a run.

    Args:
        chosen: `self`, `none`, a safetensors file of the full network's weights, a run, a module; None if not said.
        net: The super network.
        original: The trained network.
        by_itself: Whether the trained network is the teacher where nothing was said.

    Returns:
        The teacher, or None.
    """
    if chosen is None:
        chosen = SELF if by_itself and original is not None else NONE
    if isinstance(chosen, Teacher):
        return chosen
    if isinstance(chosen, nn.Module):
        return Teacher(chosen)
    if chosen == NONE:
        return None
    if chosen == SELF:
        if original is None:
            raise UserError(
                f"{net.name} has no trained weights to be its own teacher; give --weights, a file or a run as the "
                "teacher, or none"
            )
        return Teacher(original, SELF)
    return Teacher(_stored_teacher(Path(chosen), net), Path(chosen).name)


def _stored_teacher(path: Path, net: SuperNetwork) -> nn.Module:
    """The network of a finished run, or the full network with the weights of a file."""
    if path.is_dir():
        return open_stored(path).network.eval()
    if not path.exists():
        raise UserError(f"there is no teacher {path}; give self, none, a safetensors file or the folder of a run")
    if path.suffix != ".safetensors":
        raise UserError(f"the teacher {path} is not a safetensors file; write the model's state_dict() with save_file")
    module = extract(net, net.graph.full).eval()
    load_weights(module, path)
    return module
