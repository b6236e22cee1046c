"""What each unit and each branch of a trained network is worth, by the gradient of the loss in a gate on it.

A gate g = 1 multiplies what a unit or a branch hands on; to drop it is to set g = 0. With ∂ℓ_n/∂g for every example n,
the importance is I = E_n[(∂ℓ_n/∂g)²]: the first-order Taylor expansion of the change of the loss, squared (Molchanov et
al., arXiv 1906.10771), by example. The mean gradient vanishes where training has ended; that of the squares does not.

Where the targets are the network's own outputs f, as in distillation from itself, every gradient of the loss vanishes.
The importance is then E_n[‖∂f_n/∂g‖²], by random signs v: E_v[(v · ∂f/∂g)²] = ‖∂f/∂g‖².
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from budgetnet.data.feeds import Batch
from budgetnet.data.nested import rows
from budgetnet.errors import UserError
from budgetnet.network.axes import Axis
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork
from budgetnet.training.tasks import Task

OWN = 1e-3
"""Relative and absolute difference up to which targets are a network's own outputs, computed elsewhere."""
Place = tuple[int, int]
"""An axis of a super network: the number of its operation, and its own number there. A plain edge has axis 0."""


def taylor(gradients: Tensor) -> Tensor:
    """I = E_n[(∂ℓ_n/∂g)²], from gate gradients by example (examples × gates)."""
    return gradients.double().square().mean(0)


def unit_gradients(gradients: Tensor, order: Tensor, axis: Axis) -> Tensor:
    """Gate gradients of units from those of blocks: a unit's gate is one gate on all of its blocks, so they add up.

    Args:
        gradients: Of the blocks (examples × blocks).
        order: The blocks in the order in which units are filled.
        axis: Where units begin.

    Returns:
        Of the units (examples × units).
    """
    parts = torch.split(gradients.index_select(1, order), axis.sizes, 1)
    return torch.stack([part.sum(1) for part in parts], 1)


@dataclass(frozen=True, eq=False)
class Importance:
    """What the edges of a super network are worth.

    Args:
        edges: The importance of every edge; 0 for fixed ones, which nobody asks about.
        orders: For every axis that can be ordered, its blocks, the most important first.
    """

    edges: Tensor
    orders: Mapping[Place, Tensor]

    def __repr__(self) -> str:
        return f"Importance({len(self.edges)} edges)"

    def to_bytes(self) -> bytes:
        """As a safetensors file."""
        named = {f"order.{operation}.{axis}": order for (operation, axis), order in self.orders.items()}
        return save({"edges": self.edges, **named})

    @staticmethod
    def from_bytes(content: bytes, net: SuperNetwork, where: str) -> Importance:
        """From such a file; one of another network is refused."""
        try:
            found = load(content)
            edges = found.pop("edges")
            orders = {(int(a), int(b)): order for name, order in found.items() for _, a, b in [name.split(".")]}
        except (SafetensorError, KeyError, ValueError):
            raise UserError(f"{where} does not hold the importance of a network's units; delete it") from None
        for (operation, axis), order in orders.items():
            region = net.edge_modules[operation] if operation < len(net.edge_modules) else None
            blocks = region.axes[axis].blocks if isinstance(region, Region) and axis < len(region.axes) else 0
            if not torch.equal(order.sort().values, torch.arange(blocks)):
                raise UserError(f"{where} was measured on another network; delete it")
        if edges.shape != (len(net.graph.edges),):
            raise UserError(f"{where} was measured on another network; delete it")
        return Importance(edges, orders)

    def arrange(self, net: SuperNetwork) -> None:
        """Fills units in the order of importance: unit 0 holds the best blocks. What the network computes stays."""
        for (operation, axis), order in self.orders.items():
            region = net.edge_modules[operation]
            assert isinstance(region, Region)
            region.order(axis, order)


def measure(net: SuperNetwork, task: Task, batches: Iterable[Batch]) -> Importance:
    """The importance of every unit and branch, by one pass with all edges on, in evaluation mode.

    Args:
        net: The super network; its weights stay as they are.
        task: The loss.
        batches: Inputs and targets.

    Returns:
        The importance, and the order in which units are to be filled.
    """
    mode = net.training
    net.eval()
    try:
        found = [gate_gradients(net, task, batch) for batch in batches]
    finally:
        net.train(mode)
    edges, orders = torch.zeros(len(net.graph.edges), dtype=torch.float64), dict[Place, Tensor]()
    for place in found[0]:
        gradients = torch.cat([batch[place] for batch in found])
        operation, module = net.graph.operations[place[0]], net.edge_modules[place[0]]
        if not operation.bundle:
            edges[operation.edges[0]] = taylor(gradients)[0]
            continue
        assert isinstance(module, Region)
        order = torch.arange(gradients.shape[1])
        if module.movable(place[1]):
            order = orders[place] = taylor(gradients).argsort(descending=True, stable=True)
        units = unit_gradients(gradients, order, module.axes[place[1]])
        edges[list(operation.axes[place[1]])] = taylor(units)
    return Importance(edges, orders)


def gate_gradients(net: SuperNetwork, task: Task, batch: Batch) -> dict[Place, Tensor]:
    """∂ℓ_n/∂g of every block and of every branch that may be dropped, by example (examples × gates, on the CPU).

    A block's gate stands where layers read it: dropped is what they no longer add. Blocks that no layer reads by
    itself have it where they are made.
    """
    inputs, targets = batch
    count = rows(inputs)
    with gated(net, count) as gates, torch.enable_grad():
        outputs = task.outputs(net, inputs)
        if are_targets(outputs, targets):
            total = (outputs * _signs(outputs)).sum()
        else:
            total = task.group_losses(outputs, targets, 1).mean() * count
        known = list(gates)
        found = torch.autograd.grad(total, [gates[place] for place in known], allow_unused=True)
    zeros = {place: torch.zeros_like(gates[place]) for place in known}
    return {
        place: (zeros[place] if gradient is None else gradient).detach().cpu()
        for place, gradient in zip(known, found, strict=True)
    }


def are_targets(outputs: Tensor, targets: Any) -> bool:
    """Whether a network is asked for what it computes already, so that no loss can tell what its parts are worth."""
    if not isinstance(targets, Tensor) or targets.shape != outputs.shape or not targets.is_floating_point():
        return False
    return torch.allclose(outputs.detach(), targets.to(outputs.dtype), rtol=OWN, atol=OWN)


def _signs(outputs: Tensor) -> Tensor:
    """1 or −1 for every output, always the same ones."""
    drawn = torch.randint(2, outputs.shape, generator=torch.Generator().manual_seed(0))
    return (2 * drawn - 1).to(outputs)


@contextmanager
def gated(
    net: SuperNetwork, examples: int, values: Callable[[Place], Tensor] | None = None
) -> Iterator[dict[Place, Tensor]]:
    """A gate for every example on each block and branch, as long as the context lasts.

    Args:
        net: The super network.
        examples: How many examples will pass.
        values: Of the gates of a place (examples × blocks); 1 if not given.

    Yields:
        The gates, which take gradients.
    """
    gates: dict[Place, Tensor] = {}
    hooks: list[Any] = []
    device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))
    for number, operation in enumerate(net.graph.operations):
        module = net.edge_modules[number]
        if operation.bundle:
            assert isinstance(module, Region)
            for axis in range(len(module.axes)):
                made = torch.ones(examples, module.axes[axis].blocks) if values is None else values((number, axis))
                gate = gates[number, axis] = made.to(device).requires_grad_()
                hooks += [hook(gate) for hook in _places(module, axis)]
        elif not bool(net.graph.fixed[operation.edges[0]]):
            made = torch.ones(examples, 1) if values is None else values((number, 0))
            gate = gates[number, 0] = made.to(device).requires_grad_()
            hooks.append(module.register_forward_hook(partial(_gate_branch, gate)))
    try:
        yield gates
    finally:
        for hook in hooks:
            hook.remove()


def _places(region: Region, axis: int) -> list[Callable[[Tensor], Any]]:
    """What puts a gate on the blocks of an axis: in front of the layers that read them, or else behind the makers."""
    readers: list[Callable[[Tensor], Any]] = []
    makers: list[Callable[[Tensor], Any]] = []
    for name, cuts in region.cuts.items():
        layer = region.body.get_submodule(name)
        read = _read_dimension(layer)
        for dim, cut in cuts.tensors.get("weight", {}).items():
            for positions in (positions for where, positions in cut.parts if where == axis):
                times = partial(_times, positions, cut.size, -1 if isinstance(layer, nn.Linear) else 1)
                if dim == read:
                    readers.append(partial(_before, layer, times))
                elif read is not None:
                    makers.append(partial(_behind, layer, times))
    return readers or makers[-1:]


def _before(layer: nn.Module, times: Callable[[Tensor, Tensor], Tensor], gate: Tensor) -> Any:
    return layer.register_forward_pre_hook(lambda module, inputs: (times(gate, inputs[0]), *inputs[1:]))


def _behind(layer: nn.Module, times: Callable[[Tensor, Tensor], Tensor], gate: Tensor) -> Any:
    return layer.register_forward_hook(lambda module, inputs, output: times(gate, output))


def _read_dimension(layer: nn.Module) -> int | None:
    """The dimension of the weight that goes with the channels that a layer reads, if it mixes them."""
    if isinstance(layer, nn.Linear):
        return 1
    if isinstance(layer, nn.modules.conv._ConvNd) and layer.groups == 1:
        return 0 if layer.transposed else 1
    return None


def _gate_branch(gate: Tensor, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output * gate.view(-1, *[1] * (output.dim() - 1)).to(output.dtype)


def _times(positions: Tensor, size: int, dim: int, gate: Tensor, value: Tensor) -> Tensor:
    """A value times the gates of its channels; rows of one example (windows, patches) share its gates."""
    per_block = positions.shape[1]
    factors = torch.ones(len(gate), size, device=gate.device)
    factors = factors.index_copy(1, positions.flatten().to(gate.device), gate.repeat_interleave(per_block, 1))
    factors = factors.repeat_interleave(len(value) // len(gate), 0)
    shape = [len(value), *[1] * (value.dim() - 1)]
    shape[dim] = size
    return value * factors.view(shape).to(value.dtype)
