"""Networks from their structure: `torch.nn` layers with their arguments, and graphs of functions, from an allow-list.

Reading a structure runs nothing that the file says: a layer or a function is looked up in that list, every name is an
identifier, and the network is built without memory for its numbers, which come from a safetensors file.
"""

from __future__ import annotations

import inspect
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from budgetnet.errors import UserError, reason
from budgetnet.export.allowed import FUNCTIONS, LAYERS, METHODS, OPERATIONS, OPERATORS, TORCH
from budgetnet.export.description import Description, checked_dtype, checked_shape
from budgetnet.naming.values import typed
from budgetnet.network.inputs import InputSpec

VERSION = 1
LARGESTTEXT = 2**26
LARGEST_VALUE = 2**28
"""Numbers in one tensor: weights, or what a node computes for an example."""
DEEPEST = 32
MOST_PARTS = 2**17
INPUTS = "inputs"
"""Under which a network with several inputs keeps what they look like, and a structure as well."""
GRAPH, CONTAINER, SEQUENCE, OWN = "graph", "Module", "Sequential", "own"

_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}|[0-9]{1,9}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
TEXT = re.compile(r"[A-Za-z0-9_ .,>-]{0,100}")
CONSTANTS = ("dtype", "memory_format", "layout", "device")


class OwnModule(UserError):  # noqa: N818
    """The network holds a module of the user's, which no file can bring."""


def rebuild(structure: Any, state: Mapping[str, Tensor], where: str) -> nn.Module:
    """The network of a structure with these numbers; whatever does not fit is refused in a sentence."""
    network = empty(structure, where)
    try:
        network.load_state_dict(dict(state), assign=True)
    except RuntimeError:
        raise UserError(f"the numbers of {where} do not fit the structure of its network; export it again") from None
    spec = inputs_of(structure, where)
    if spec is not None:
        network.meta = {**getattr(network, "meta", {}), INPUTS: spec}  # type: ignore[assignment]
    return network.eval()


@dataclass(frozen=True)
class _Takes:
    """The inputs of a network with several, as a structure holds them."""

    kind: Literal["tuple", "dict"]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    main: int = 0


def inputs_of(structure: Any, where: str) -> InputSpec | None:
    """What a network with several inputs takes; None for one with a single input."""
    written = structure.get(INPUTS) if isinstance(structure, Mapping) else None
    if written is None:
        return None
    found = typed(written, _Takes, f"{where}: the inputs")
    if not len(found.names) == len(found.shapes) == len(found.dtypes) > found.main >= 0:
        raise UserError(f"{where} has names, shapes and types of unequal numbers of inputs; restore it")
    if not all(_NAME.fullmatch(name) for name in found.names):
        raise UserError(f"{where} names an input {found.names!r:.60}; names are identifiers: restore it")
    shapes = tuple(checked_shape(shape, where) for shape in found.shapes)
    dtypes = tuple(getattr(torch, checked_dtype(dtype, where)) for dtype in found.dtypes)
    return InputSpec(found.kind, found.names, shapes, dtypes, found.main)


def examples_of(structure: Any, description: Description, where: str) -> tuple[Tensor, ...]:
    """Inputs on the meta device for the network of a structure."""
    spec = inputs_of(structure, where)
    if spec is not None:
        return spec.tensors(spec.example())
    return (torch.empty((2, *description.input_shape), dtype=description.dtype, device="meta"),)


def empty(structure: Any, where: str) -> nn.Module:
    """The network of a structure on the meta device, without numbers."""
    if not isinstance(structure, Mapping) or structure.get("structure") != VERSION:
        raise UserError(f"{where} holds no structure of a network that this version reads; export it again")
    try:
        with torch.device("meta"):
            return Reader().module(structure.get("network"), 0).eval()
    except OwnModule as error:
        raise UserError(
            f"{where} holds {error}, code of your own, which no file can bring; open it from Python with the network, "
            "built as it was: budgetnet.load(run, net)"
        ) from None
    except UserError as error:
        raise UserError(f"the structure of the network in {where} is damaged ({error}); restore it") from None
    except Exception as error:  # torch refuses arguments in many ways
        raise UserError(f"the network in {where} cannot be built ({reason(error)}); restore it") from None


def parse(text: str, where: str) -> Any:
    """The value of a structure's text."""
    if len(text) > LARGESTTEXT:
        raise UserError(f"the structure in {where} is longer than {LARGESTTEXT} characters; restore it")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"the structure in {where} is not JSON; restore it") from None


def check_shapes(network: nn.Module, examples: Sequence[Tensor], where: str) -> tuple[int, ...]:
    """The shape of the output for inputs on the meta device; a value of absurd size is refused unmade."""
    try:
        with torch.no_grad(), torch.device("meta"), _Bounded():  # type: ignore[no-untyped-call]
            output = network.to("meta")(*examples)
    except UserError:
        raise
    except Exception as error:  # a graph may do anything with shapes
        raise UserError(f"the network in {where} cannot be run ({reason(error)}); restore it") from None
    if not isinstance(output, Tensor):
        raise UserError(f"the network in {where} gives a {type(output).__name__}, not a tensor; restore it")
    return tuple(output.shape)


class _Bounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses an operation that gives more numbers than a network of sane size has anywhere."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = torch.device("meta")
        result = func(*args, **kwargs)
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor) and value.numel() > LARGEST_VALUE:
                raise UserError(f"a value of {value.numel()} numbers is more than {LARGEST_VALUE}; use a smaller input")
        return result


def parameters_of(layer: type[nn.Module]) -> tuple[str, ...]:
    named = inspect.signature(layer).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in named if p.kind in kinds and p.name not in ("device", "dtype", "_weight", "_freeze"))


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Every function that a graph may call, by the name that it has in a file."""
    found: dict[str, Callable[..., Any]] = {}
    for prefix, home, names in (
        ("operator", operator, OPERATORS),
        ("torch", torch, TORCH),
        ("functional", nn.functional, FUNCTIONS),
    ):
        found |= {f"{prefix}.{name}": getattr(home, name) for name in names if hasattr(home, name)}
    for name in OPERATIONS:
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            if "out" not in overload:
                found[f"aten.{name}.{overload}"] = getattr(packet, overload)
    return found


def _damaged(value: object) -> UserError:
    return UserError(f"{value!r:.60} is not what a structure holds")


class Reader:
    """Builds modules from their description; counts them, so that a file cannot ask for endlessly many."""

    def __init__(self) -> None:
        self.parts = 0

    def module(self, value: Any, depth: int) -> nn.Module:
        self._count()
        if not isinstance(value, Mapping) or depth > DEEPEST:
            raise _damaged(value)
        kind = value.get("kind")
        if kind == OWN:
            raise OwnModule(_text(value.get("class")))
        if kind == GRAPH:
            return self._graph(value, depth)
        if kind == CONTAINER:
            return self._container(value, depth)
        if kind == SEQUENCE:
            sequence = nn.Sequential()
            for name, child in self._children(value, depth).items():
                sequence.add_module(name, child)
            return sequence
        layer = LAYERS.get(kind) if isinstance(kind, str) else None
        if layer is None:
            raise _damaged(kind)
        return layer(**self._options(layer, value.get("arguments")))

    def _count(self) -> None:
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise UserError(f"it has more than {MOST_PARTS} parts")

    def _options(self, layer: type[nn.Module], value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not set(value) <= set(parameters_of(layer)):
            raise _damaged(value)
        return {name: _option(item) for name, item in value.items()}

    def _children(self, value: Mapping[str, Any], depth: int) -> dict[str, nn.Module]:
        found: dict[str, nn.Module] = {}
        for entry in _list(value.get("children")):
            if len(_list(entry)) != 2 or entry[0] in found:
                raise _damaged(entry)
            found[_matching(_PART, entry[0])] = self.module(entry[1], depth + 1)
        return found

    def _container(self, value: Mapping[str, Any], depth: int) -> nn.Module:
        root = nn.Module()
        for name, child in self._children(value, depth).items():
            root.add_module(name, child)
        for entry in _list(value.get("tensors")):
            if len(_list(entry)) != 3 or hasattr(root, str(entry[0])):
                raise _damaged(entry)
            name, tensor = _matching(_NAME, entry[0]), torch.empty(_shape(entry[2]))
            if entry[1] is True:
                root.register_parameter(name, nn.Parameter(tensor))
            else:
                root.register_buffer(name, tensor)
        return root

    def _graph(self, value: Mapping[str, Any], depth: int) -> fx.GraphModule:
        root = self._container(value, depth)
        graph, nodes = fx.Graph(), dict[str, fx.Node]()
        for entry in _list(value.get("nodes")):
            self._count()
            if not isinstance(entry, Mapping) or entry.get("name") in nodes:
                raise _damaged(entry)
            nodes[_matching(_NAME, entry.get("name"))] = self._node(graph, entry, root, nodes)
        if [node.op for node in graph.nodes].count("output") != 1:
            raise UserError("its graph has not exactly one output")
        return fx.GraphModule(root, graph, class_name="Extracted")

    def _node(
        self, graph: fx.Graph, entry: Mapping[str, Any], root: nn.Module, nodes: Mapping[str, fx.Node]
    ) -> fx.Node:
        op, target = entry.get("op"), entry.get("target")
        arguments = tuple(_decoded(entry.get("args"), nodes, 0))
        named = entry.get("kwargs")
        if not isinstance(named, Mapping) or not isinstance(target, str):
            raise _damaged(entry)
        keywords = {_matching(_NAME, key): _decoded(item, nodes, 0) for key, item in named.items()}
        name = str(entry["name"])
        if op == "call_function" and target in functions():
            return graph.create_node(op, functions()[target], arguments, keywords, name)
        if op == "call_method" and target in METHODS:
            return graph.create_node(op, target, arguments, keywords, name)
        if op in ("call_module", "get_attr") and _holds(root, target, op):
            return graph.create_node(op, target, arguments, keywords, name)
        if op == "placeholder" and _NAME.fullmatch(target) and not arguments:
            return graph.placeholder(target)
        if op == "output" and len(arguments) == 1:
            return graph.create_node(op, target, arguments)
        raise _damaged(f"{op} {target}")


def _holds(root: nn.Module, target: str, op: object) -> bool:
    """Whether a path of identifiers leads to a module, or to a tensor, that the structure itself declared."""
    parts = target.split(".")
    if not all(_PART.fullmatch(part) for part in parts):
        return False
    for part in parts[:-1]:
        root = dict(root.named_children()).get(part, nn.Identity())
    if op == "call_module":
        return parts[-1] in dict(root.named_children())
    return parts[-1] in {**root._parameters, **root._buffers}


def _decoded(value: Any, nodes: Mapping[str, fx.Node], depth: int) -> Any:
    if depth > DEEPEST:
        raise _damaged("a deeply nested argument")
    if isinstance(value, list):
        return [_decoded(item, nodes, depth + 1) for item in value]
    if isinstance(value, str):
        return _matching(TEXT, value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not isinstance(value, Mapping) or len(value) != 1:
        raise _damaged(value)
    [(kind, content)] = value.items()
    if kind == "node" and isinstance(content, str) and content in nodes:
        return nodes[content]
    if kind == "tuple":
        return tuple(_decoded(item, nodes, depth + 1) for item in _list(content))
    if kind == "slice" and len(_list(content)) == 3:
        return slice(*(_decoded(item, nodes, depth + 1) for item in content))
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    return _constant(kind, content)


def _constant(kind: str, content: Any) -> Any:
    if kind == "device" and content == "cpu":
        return torch.device("cpu")
    found = getattr(torch, content, None) if isinstance(content, str) and _NAME.fullmatch(content) else None
    if kind in CONSTANTS[:3] and isinstance(found, getattr(torch, kind)):
        return found
    raise _damaged({kind: content})


def _option(value: Any, depth: int = 0) -> Any:
    """A layer's argument: a number, a flag, a short text, or a tuple of them."""
    if isinstance(value, list) and depth < 3 and len(value) <= 16:
        return tuple(_option(item, depth + 1) for item in value)
    if isinstance(value, str):
        return _matching(TEXT, value)
    if isinstance(value, int) and abs(value) > LARGEST_VALUE:
        raise UserError(f"a size of {value:.3g} is more than {LARGEST_VALUE}")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise _damaged(value)


def _shape(value: Any) -> Sequence[int]:
    if not all(isinstance(side, int) and side >= 0 for side in _list(value)) or math.prod(value) > LARGEST_VALUE:
        raise _damaged(value)
    return cast("Sequence[int]", value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _damaged(value)
    return value


def _matching(pattern: re.Pattern[str], value: Any) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _damaged(value)
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[\w. <>()\-]{1,200}", value) else "a module"
