"""`from_model`: a user's own model as a super network, with its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from budgetnet.errors import UserError
from budgetnet.network.inputs import Inputs
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces.from_model.assemble import assemble, main_input
from budgetnet.spaces.from_model.concatenation import split_concatenations
from budgetnet.spaces.from_model.lift import lift
from budgetnet.spaces.from_model.trace import trace

TOLERANCE = 1e-4
"""By how much the converted model's output may differ from the model's, relative to its largest number."""


def from_model(
    model: nn.Module,
    example_inputs: Inputs,
    slices: int = 8,
    round_to: int | None = None,
    ignore: Sequence[str] = (),
    name: str | None = None,
    trained: bool = True,
) -> SuperNetwork:
    """A model as a super network: its residual branches can be dropped, its hidden channels and heads narrowed.

    The full architecture computes what the model computes, with the model's own parameters: training the super network
    trains the model. The width of the stream that residual branches are added to is not touched.

    Args:
        model: The model, trained or not, in training or evaluation mode.
        example_inputs: A tensor, or a tuple or dict of tensors, batch first, as the model is called.
        slices: Into how many units the hidden channels of a layer are cut; heads are units by themselves.
        round_to: Keep the number of channels of every unit at a multiple of this.
        ignore: Names of modules that stay as they are.
        name: The name of the super network; that of the model's class by default.
        trained: Whether the model's weights are trained, so that a search starts from them; otherwise it trains anew.

    Returns:
        The super network. `net(inputs, gates)` takes the inputs as one argument, as `example_inputs`.

    Raises:
        UserError: If the model cannot be exported, or nothing in it can be chosen.
    """
    _check(model, slices, round_to, ignore)
    traced = trace(model, example_inputs)
    lifted = lift(traced)
    split_concatenations(lifted)
    lifted.spec = replace(traced.spec, main=main_input(lifted))
    found = assemble(lifted, slices, round_to, tuple(ignore))
    main = lifted.spec.main
    net = SuperNetwork(
        found.graph,
        found.modules,
        input_shape=lifted.spec.shapes[main],
        input_dtype=lifted.spec.dtypes[main],
        name=name or type(model).__name__,
        activation=found.activations,
        prelude=found.builder.prelude(),
        trained=trained,
    )
    net.reasons = found.reasons
    _compare(model, net, traced.examples)
    net.memory_format = _memory_format(net, traced.examples)
    return net.train(model.training)


def _memory_format(net: SuperNetwork, examples: tuple[Tensor, ...]) -> torch.memory_format:
    """Channels last for networks of convolutions, which are faster so, unless a layer cannot take it."""
    convolutions = sum(isinstance(module, nn.Conv2d) for module in net.modules())
    images = [i for i, tensor in enumerate(examples) if tensor.dim() == 4 and tensor.is_floating_point()]
    if convolutions < 2 or not images:
        return torch.contiguous_format
    laid = [x.contiguous(memory_format=torch.channels_last) if i in images else x for i, x in enumerate(examples)]
    try:
        with torch.no_grad():
            net.eval()(net.inputs.pack(laid))
    except RuntimeError:  # a view of what does not lie so in memory
        return torch.contiguous_format
    return torch.channels_last


def _check(model: nn.Module, slices: int, round_to: int | None, ignore: Sequence[str]) -> None:
    if slices < 2:
        raise UserError(f"slices={slices} leaves nothing to narrow; use 2 or more")
    if round_to is not None and round_to < 1:
        raise UserError(f"round_to={round_to} is no number of channels; use 1 or more")
    if isinstance(ignore, str):
        raise UserError(f"ignore={ignore!r} is a list of names; give [{ignore!r}]")
    known = {name for name, _ in model.named_modules()} if isinstance(model, nn.Module) else set(ignore)
    for wanted in ignore:
        if wanted not in known:
            close = [name for name in sorted(known) if name and (wanted in name or name in wanted)][:3]
            hint = f"; did you mean {' or '.join(close)}?" if close else "; see model.named_modules()"
            raise UserError(f"ignore names {wanted!r}, which is no module of {type(model).__name__}{hint}")


def _compare(model: nn.Module, net: SuperNetwork, examples: tuple[Tensor, ...]) -> None:
    """The converted model must compute what the model computes in evaluation mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval(), net.eval()
    try:
        with torch.no_grad():
            given = model(**net.inputs.pack(examples)) if net.inputs.kind == "dict" else model(*examples)  # type: ignore[arg-type]
            found = net(net.inputs.pack(examples))
    finally:
        for module, training in modes:
            module.training = training
    if not isinstance(given, Tensor):
        given = given["logits"] if isinstance(given, dict) else getattr(given, "logits", None) or given[0]
    difference = float((given - found).abs().max()) if found.numel() else 0.0
    if not difference <= TOLERANCE * max(1.0, float(given.abs().max())):
        raise UserError(
            f"in evaluation mode {type(model).__name__} computes something else than in training (difference "
            f"{difference:.2g}), by other means than dropout and batch norm; take out what depends on self.training"
        )
