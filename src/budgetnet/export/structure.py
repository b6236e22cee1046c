"""The structure of a network as data, which `rebuilding` reads: what a run folder and a safetensors export keep."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx, nn

from budgetnet.export.allowed import LAYERS, METHODS
from budgetnet.export.rebuilding import (
    CONSTANTS,
    CONTAINER,
    GRAPH,
    INPUTS,
    OWN,
    SEQUENCE,
    TEXT,
    VERSION,
    Reader,
    functions,
    parameters_of,
)
from budgetnet.network.inputs import InputSpec


def describe(network: nn.Module) -> dict[str, Any]:
    """The structure of a network, for JSON; a module that is not allowed is kept as the name of its class."""
    spec: InputSpec | None = getattr(network, "meta", {}).get(INPUTS)
    several = {INPUTS: _inputs(spec)} if spec is not None and len(spec.names) > 1 else {}
    return {"structure": VERSION, "network": _describe(network), **several}


def _inputs(spec: InputSpec) -> dict[str, Any]:
    return {**asdict(spec), "dtypes": [str(dtype).removeprefix("torch.") for dtype in spec.dtypes]}


def _describe(module: nn.Module) -> dict[str, Any]:
    if isinstance(module, fx.GraphModule):
        return _describe_graph(module)
    if type(module) is nn.Sequential and not _hooked(module):
        return {"kind": SEQUENCE, "children": [[name, _describe(child)] for name, child in module.named_children()]}
    if type(module) is nn.Module and not _hooked(module):
        return {"kind": CONTAINER, **_contents(module)}
    arguments = _arguments(module)
    if arguments is None:
        return {"kind": OWN, "class": f"{type(module).__module__}.{type(module).__qualname__}"[:200]}
    return {"kind": type(module).__name__, "arguments": arguments}


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _arguments(module: nn.Module) -> dict[str, Any] | None:
    """What makes a layer equal to this one, or None where that is not sure."""
    if type(module) is not LAYERS.get(type(module).__name__) or _hooked(module):
        return None
    values = {name: getattr(module, name) for name in parameters_of(type(module)) if hasattr(module, name)}
    values = {k: v is not None if k == "bias" or isinstance(v, Tensor) else v for k, v in values.items()}
    try:
        arguments: dict[str, Any] = json.loads(json.dumps(values))
        with torch.device("meta"):
            twin = Reader().module({"kind": type(module).__name__, "arguments": arguments}, 0)
    except (TypeError, ValueError, RuntimeError):
        return None
    return arguments if _options(twin) == _options(module) else None


def _options(module: nn.Module) -> dict[str, Any]:
    """Everything about a layer but its numbers."""
    plain = {name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training"}
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    return json.loads(json.dumps([plain, shapes], default=list))  # type: ignore[no-any-return]


def _describe_graph(module: fx.GraphModule) -> dict[str, Any]:
    nodes = []
    for node in module.graph.nodes:
        target = _target_name(node)
        if target is None:
            return {"kind": OWN, "class": f"the operation {node.target}"[:200]}
        entry = {"name": node.name, "op": node.op, "target": target}
        try:
            entry |= {"args": _encode(node.args), "kwargs": {k: _encode(v) for k, v in node.kwargs.items()}}
        except TypeError as error:
            return {"kind": OWN, "class": f"an argument {error}"[:200]}
        nodes.append(entry)
    return {"kind": GRAPH, **_contents(module), "nodes": nodes}


def _contents(module: nn.Module) -> dict[str, Any]:
    """The modules inside a module, and its own tensors."""
    tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    return {
        "children": [[name, _describe(child)] for name, child in module.named_children()],
        "tensors": [[name, isinstance(value, nn.Parameter), list(value.shape)] for name, value in tensors],
    }


def _target_name(node: fx.Node) -> str | None:
    if node.op != "call_function":
        return str(node.target) if node.op != "call_method" or node.target in METHODS else None
    return _function_names().get(node.target)


@cache
def _function_names() -> dict[Any, str]:
    return {function: name for name, function in functions().items()}


def _encode(value: Any) -> Any:
    """A node's argument as JSON; lists are themselves, everything else that is not plain is a map of one key."""
    if isinstance(value, fx.Node):
        return {"node": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and TEXT.fullmatch(value)):
        return value
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item) for item in value]}
    if isinstance(value, slice):
        return {"slice": [_encode(item) for item in (value.start, value.stop, value.step)]}
    for kind in CONSTANTS:
        if isinstance(value, getattr(torch, kind)):
            return {kind: str(value).removeprefix("torch.")}
    raise TypeError(f"of {type(value).__name__}")
