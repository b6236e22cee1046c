"""Built-in super networks, and the text that names one or a user's model: `resnet-fabric:width=3,channels=16`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import torch
from torch import nn

from budgetnet.errors import UserError, user_code
from budgetnet.naming import keyword_arguments, load_object, parameters, split_name
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces.from_model import from_model
from budgetnet.spaces.neural_fabric import neural_fabric
from budgetnet.spaces.resnet_fabric import resnet_fabric
from budgetnet.spaces.weights import load_weights

__all__ = ["SPACES", "build", "from_model", "neural_fabric", "resnet_fabric"]

Builder = Callable[..., SuperNetwork]

SPACES: dict[str, Builder] = {"resnet-fabric": resnet_fabric, "neural-fabric": neural_fabric}


def build(
    text: str,
    input_shape: Sequence[int] | None = None,
    classes: int | None = None,
    *,
    own: Collection[str] = (),
    dtype: torch.dtype = torch.float32,
    weights: str | Path | None = None,
) -> SuperNetwork:
    """The super network that a text names: a built-in space or `package.module:builder`, then `:name=value,…`.

    Args:
        text: As the user wrote it. A builder of the user's gives a `SuperNetwork`, a model, which is converted, or a
            pair of a model and example inputs.
        input_shape: The shape of one input of the data; passed on where the builder takes it.
        classes: The number of classes of the data; passed on where the builder takes it.
        own: A builder of the user's is loaded only if it is among these (`naming.own_names` of what the user wrote).
        dtype: The type of the inputs of the data, for a model without example inputs.
        weights: A checkpoint that is loaded into the model before it is converted.

    Returns:
        The super network.
    """
    name, options = split_name(text, SPACES)
    builder = SPACES.get(name) or load_object(name, "a space", SPACES, own)
    arguments = keyword_arguments(builder, options, f"the space {name}", reserved=("input_shape", "classes"))
    accepted = parameters(builder, f"the space {name}")
    if input_shape is not None and "input_shape" in accepted:
        arguments["input_shape"] = tuple(input_shape)
    if classes is not None and "classes" in accepted:
        arguments["classes"] = classes
    if name in SPACES:
        if weights is not None:
            raise UserError(f"weights are loaded into a model of yours, and {name} is none; leave out {weights}")
        return builder(**arguments)
    with user_code(f"the space {name}", "; correct the builder"):
        made: object = builder(**arguments)
    return _converted(made, name, None if input_shape is None else torch.zeros(2, *input_shape, dtype=dtype), weights)


def _converted(made: object, name: str, example: torch.Tensor | None, weights: str | Path | None) -> SuperNetwork:
    """What a user's builder gave, as a super network."""
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, example)
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise UserError(f"{name} gave a {kind}, not a SuperNetwork or a model; return one from the builder")
    if weights is not None:
        load_weights(model, Path(weights))
    if isinstance(model, SuperNetwork):
        return model
    if inputs is None:
        raise UserError(f"{name} gave a model without example inputs; return (model, example_inputs) from the builder")
    return from_model(model, inputs, name=name.rpartition(":")[2], trained=weights is not None)
