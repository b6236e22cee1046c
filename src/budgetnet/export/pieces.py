"""Modules as pieces of ONNX: each kind of module is exported once, as a function of its input and of its state.

Exporting takes seconds, and the networks of one super network are made of the same few kinds of modules. So a network
is put together from pieces, in milliseconds, and what is measured during a search is what is exported after it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from budgetnet.errors import UserError, reason

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

OPSET = 18
"""The newest that torch's exporter writes without a conversion afterwards."""

_LOGGERS = ("torch", "torch.onnx", "torch.export", "onnxscript")
"""What torch's exporters log to; onnxscript says of every constant that it could not fold."""
_PLAIN = (bool, int, float, str, type(None), torch.Size)


@dataclass(frozen=True)
class Piece:
    """ONNX nodes from `input` to `output`; `state` names the values that stand for the module's tensors, in order."""

    nodes: tuple[NodeProto, ...]
    constants: tuple[TensorProto, ...]
    input: str
    state: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Part:
    """A module of a network with the name that it has there and an example of its input on the meta device."""

    name: str
    module: nn.Module
    example: Tensor


class Pieces:
    """The pieces of one super network, by kind of module; those not yet known are exported when asked for."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Piece] = {}

    def of(self, parts: Sequence[Part]) -> list[Piece]:
        """A piece for each part."""
        keys = [_kind(part) for part in parts]
        new = {key: part for key, part in zip(keys, parts, strict=True) if key not in self._known}
        if new:
            self._known.update(zip(new, _export(list(new.values())), strict=True))
        return [self._known[key] for key in keys]


def need_onnx() -> None:
    """Refuses in one sentence where the optional packages are missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped]  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"ONNX needs the package {error.name}, which is not installed: pip install 'budgetnet[export]'"
        ) from None


def signature(module: nn.Module) -> Hashable | None:
    """Equal for modules that compute the same function of their input and state; None where that cannot be told."""
    described: list[Hashable] = []
    for name, child in module.named_modules():
        options = {key: value for key, value in vars(child).items() if not key.startswith("_") and key != "training"}
        if not all(_is_plain(value) for value in options.values()) or child._forward_hooks or child._forward_pre_hooks:
            return None
        tensors = [*child.named_parameters(recurse=False), *child.named_buffers(recurse=False)]
        shapes = tuple((key, tuple(tensor.shape), tensor.dtype) for key, tensor in tensors)
        described.append((name, type(child), tuple(sorted(options.items(), key=lambda item: item[0])), shapes))
    return tuple(described)


def _is_plain(value: object) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(_is_plain(item) for item in value))


def _kind(part: Part) -> Hashable:
    return (signature(part.module) or part.name, tuple(part.example.shape[1:]), part.example.dtype)


class _SideBySide(nn.Module):
    """Several modules in one graph, with their tensors as inputs, so that none is folded into a constant."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = tuple(modules)

    def forward(self, inputs: list[Tensor], states: list[list[Tensor]]) -> tuple[Tensor, ...]:
        return tuple(
            functional_call(part, dict(zip(tensor_names(part), state, strict=True)), (x,))
            for part, x, state in zip(self.parts, inputs, states, strict=True)
        )


def tensor_names(module: nn.Module) -> list[str]:
    """The names of a module's parameters and buffers, in the order in which a piece takes them."""
    return [name for name, _ in [*module.named_parameters(), *module.named_buffers()]]


def tensors(module: nn.Module) -> list[Tensor]:
    """A module's parameters and buffers, in the same order."""
    return [tensor.detach() for tensor in [*module.parameters(), *module.buffers()]]


def _export(parts: Sequence[Part]) -> list[Piece]:
    need_onnx()
    inputs = [torch.zeros((2, *part.example.shape[1:]), dtype=part.example.dtype) for part in parts]
    states = [tensors(part.module) for part in parts]
    batch = torch.export.Dim("batch")
    shapes: Any = ([{0: batch} for _ in inputs], [[None] * len(state) for state in states])
    try:
        with quiet(), torch.no_grad():
            whole = _SideBySide([part.module.eval() for part in parts])
            program = torch.export.export(whole, (inputs, states), dynamic_shapes=shapes)
            exported = torch.onnx.export(program, dynamo=True, verbose=False, opset_version=OPSET)
    except Exception as error:  # a user's module may contain anything
        names = ", ".join(part.name for part in parts[:3]) + (", …" if len(parts) > 3 else "")
        raise UserError(f"the modules {names} cannot become ONNX ({reason(error)}); use other layers there") from error
    assert exported is not None
    return _take_apart(exported.model_proto, [len(state) for state in states])


def _take_apart(model: ModelProto, state_sizes: Sequence[int]) -> list[Piece]:
    """The graph's components: from each output back to what it is made of."""
    graph = model.graph
    maker = {value: node for node in graph.node for value in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    names = [value.name for value in graph.input]
    begin = len(state_sizes)
    pieces = []
    for entry, size, output in zip(names[:begin], state_sizes, graph.output, strict=True):
        needed = set(_ancestors(output.name, maker))
        nodes = tuple(node for node in graph.node if node.output[0] in needed)
        used = {value for node in nodes for value in _inputs(node)}
        kept = tuple(tensor for name, tensor in constants.items() if name in used)
        pieces.append(Piece(nodes, kept, entry, tuple(names[begin : begin + size]), output.name))
        begin += size
    return pieces


def _ancestors(value: str, maker: dict[str, NodeProto]) -> Iterator[str]:
    stack, seen = [value], {value}
    while stack:
        node = maker.get(stack.pop())
        if node is not None:
            yield node.output[0]
            new = [name for name in _inputs(node) if name not in seen]
            seen.update(new)
            stack.extend(new)


def _inputs(node: NodeProto) -> Iterator[str]:
    """What a node reads, inside its sub-graphs too."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _inputs(inner)


_EXPORTING = threading.RLock()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Torch's exporters log lines and warn about parts of themselves, which tell a user nothing.

    One thread at a time: they keep what they are about in globals, as do loggers and warnings.
    """
    with _EXPORTING:
        yield from _quiet()


def _quiet() -> Iterator[None]:
    levels = [(logger, logger.level) for logger in map(logging.getLogger, _LOGGERS)]
    try:
        for logger, _ in levels:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)
