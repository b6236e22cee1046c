"""Which parts of a super network do the same work, so that what one of them costs is found once for all of them."""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor, fx, nn

from budgetnet.export.pieces import signature
from budgetnet.network.axes import Keeps
from budgetnet.network.slices import Region, attribute


def kind_of(module: nn.Module, name: str) -> Hashable:
    """Equal for modules that compute the same function of their input, side values and state.

    Args:
        module: An edge's module, a node's activation, or a `Region`.
        name: What stands for the kind of a module that cannot be described.

    Returns:
        A description of the module without its numbers.
    """
    if not isinstance(module, Region):
        return signature(module) or name
    if module.picks:
        return name
    layers = [str(node.target) for node in module.body.graph.nodes if node.op in ("call_module", "get_attr")]
    described = tuple((_layer(module, target, name), _cuts(module, target)) for target in layers)
    return (_calls(module.body), described, tuple(axis.bounds for axis in module.axes), _sizes(module), module.sides)


def narrowed_kind(region: Region, keeps: Keeps) -> Hashable:
    """Equal for sets of units that leave equal shapes: the widths, unless the graph depends on which units they are."""
    return keeps if region.picks else tuple(region.widths(keeps))


def _calls(body: fx.GraphModule) -> str:
    """The calls of a graph, with values and layers by their number."""
    number = {node: i for i, node in enumerate(body.graph.nodes)}
    lines = []
    for node in body.graph.nodes:
        arguments = fx.map_arg((node.args, node.kwargs), lambda value: f"%{number[value]}")
        target = str(node.target) if node.op == "call_function" else ""
        lines.append(f"{node.op} {target} {arguments}")
    return "\n".join(lines)


def _layer(region: Region, target: str, name: str) -> Hashable:
    found = attribute(region.body, target)
    if isinstance(found, Tensor):
        return (tuple(found.shape), found.dtype)
    return signature(found) or (name, target)


def _cuts(region: Region, target: str) -> Hashable:
    if target not in region.cuts:
        return ()
    cuts = region.cuts[target]
    tensors = [(name, tuple((d, cut.count) for d, cut in dims.items())) for name, dims in cuts.tensors.items()]
    return (tuple(tensors), cuts.groups)


def _sizes(region: Region) -> Hashable:
    """The sizes that depend on what is kept, by the number of the call instead of its name."""
    number = {node.name: i for i, node in enumerate(region.body.graph.nodes)}
    return tuple(sorted((number[call], str(sorted(where.items(), key=str))) for call, where in region.sizes.items()))
