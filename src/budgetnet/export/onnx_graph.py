"""An extracted network as an ONNX model: its modules' pieces, joined as its graph says."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from budgetnet.errors import UserError, reason
from budgetnet.export.pieces import OPSET, Part, Piece, Pieces, need_onnx, quiet, tensors
from budgetnet.network.inputs import InputSpec
from budgetnet.network.meta import example, on_meta

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

INPUT, OUTPUT = "input", "logits"
IR_VERSION = 10
"""Read by every ONNX Runtime since 1.18."""


def to_onnx(
    network: fx.GraphModule,
    input_shape: Sequence[int],
    *,
    scaled: bool,
    pieces: Pieces | None = None,
    dtype: torch.dtype = torch.float32,
) -> ModelProto:
    """The model of a network from `extract`, with a free batch dimension; `scaled` maps pixels to [−1, 1]."""
    need_onnx()
    import onnx

    if not _is_plain(network):
        return _whole(network, input_shape, scaled, dtype)
    parts, output_shape = _parts(network, input_shape, dtype)
    exported = (pieces or Pieces()).of(list(parts.values()))
    graph = onnx.GraphProto(name="network")
    values: dict[fx.Node, str] = {}
    for node in network.graph.nodes:
        if node.op == "placeholder":
            values[node] = _scale(graph) if scaled else INPUT
        elif node.op == "call_module":
            part, piece = parts[node], exported[list(parts).index(node)]
            values[node] = _place(graph, piece, part.module, values[node.args[0]], f"{part.name}.")
        elif node.op == "call_function":
            values[node] = _add(graph, values[node.args[0]], values[node.args[1]], node.name)
        else:
            graph.node.append(onnx.helper.make_node("Identity", [values[node.args[0]]], [OUTPUT], name=OUTPUT))
    kind = onnx.helper.np_dtype_to_tensor_dtype(torch.zeros(0, dtype=dtype).numpy().dtype)
    for slot, name, type_, shape in (
        (graph.input, INPUT, kind, input_shape),
        (graph.output, OUTPUT, onnx.TensorProto.FLOAT, output_shape),
    ):
        slot.append(onnx.helper.make_tensor_value_info(name, type_, ["batch", *shape]))
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="budgetnet")


def _is_plain(network: fx.GraphModule) -> bool:
    """Whether a network is made of modules with one input and of additions, as those of fabrics are."""
    nodes = list(network.graph.nodes)
    calls = [node for node in nodes if node.op not in ("placeholder", "output", "call_module")]
    added = all(node.op == "call_function" and node.target in (operator.add, operator.iadd) for node in calls)
    return added and sum(node.op == "placeholder" for node in nodes) == 1


def _whole(network: fx.GraphModule, input_shape: Sequence[int], scaled: bool, dtype: torch.dtype) -> ModelProto:
    """A network of any operations, exported as one; several inputs have the names of the model's."""
    spec = network.meta.get("inputs") or InputSpec("tensor", ("x",), (tuple(input_shape),), (dtype,))
    names = [INPUT] if len(spec.names) == 1 else list(spec.names)
    examples = spec.tensors(spec.example(2, "cpu"))
    shapes = (tuple({0: torch.export.Dim.DYNAMIC} for _ in examples),)
    module = _Scaled(network, scaled and examples[0].is_floating_point()).cpu().eval()
    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(module, examples, dynamic_shapes=shapes)
            exported = torch.onnx.export(program, dynamo=True, verbose=False, opset_version=OPSET)
    except Exception as error:  # a user's model may contain anything
        raise UserError(f"the network cannot become ONNX ({reason(error)}); use other layers there") from error
    assert exported is not None
    model: ModelProto = exported.model_proto
    model.ir_version = IR_VERSION
    given = [value.name for value in (*model.graph.input, *model.graph.output)]
    renamed = dict(zip(given, [*names, OUTPUT], strict=True))
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [renamed.get(value, value) for value in values]
    for value in (*model.graph.input, *model.graph.output):
        value.name = renamed[value.name]
    return _without_notes(model)


def _without_notes(model: ModelProto) -> ModelProto:
    """Clears what the exporter writes beside the model: names of source files, and shapes that runtimes find again."""
    graph = model.graph
    graph.ClearField("value_info")
    for thing in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        thing.ClearField("doc_string")
        thing.ClearField("metadata_props")
    model.producer_name, model.producer_version = "budgetnet", ""
    return model


class _Scaled(nn.Module):
    """A network whose first input may be given as pixels from 0 to 255 instead of values in [−1, 1]."""

    def __init__(self, network: nn.Module, scaled: bool) -> None:
        super().__init__()
        self.network, self.scaled = network, scaled

    def forward(self, *inputs: Tensor) -> Any:
        first = inputs[0] / 127.5 - 1 if self.scaled else inputs[0]
        return self.network(first, *inputs[1:])


def _parts(
    network: fx.GraphModule, input_shape: Sequence[int], dtype: torch.dtype
) -> tuple[dict[fx.Node, Part], tuple[int, ...]]:
    """Every module call with an example of its input, by a walk on the meta device; and the output's shape."""
    values: dict[fx.Node, Tensor] = {}
    parts: dict[fx.Node, Part] = {}
    output: tuple[int, ...] = ()
    for node in network.graph.nodes:
        sources = [values[argument] for argument in node.all_input_nodes]
        if node.op == "placeholder":
            values[node] = example(input_shape, dtype)
        elif node.op == "call_module":
            module = network.get_submodule(str(node.target))
            parts[node] = Part(str(node.target), module, sources[0])
            values[node] = on_meta(module, sources[0])
        elif node.op == "call_function" and node.target in (operator.add, operator.iadd):
            values[node] = sources[0]
        elif node.op == "output":
            output = tuple(sources[0].shape[1:])
        else:
            raise UserError(f"the network does {node.format_node()}, not what `extract` makes; export what it returned")
    return parts, output


def _scale(graph: GraphProto) -> str:
    from onnx import helper, numpy_helper

    for name, number in (("scale.half", 127.5), ("scale.one", 1.0)):
        graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), name))
    graph.node.append(helper.make_node("Div", [INPUT, "scale.half"], ["scale.divided"], name="scale.div"))
    graph.node.append(helper.make_node("Sub", ["scale.divided", "scale.one"], ["scaled"], name="scale.sub"))
    return "scaled"


def _add(graph: GraphProto, first: str, second: str, name: str) -> str:
    from onnx import helper

    graph.node.append(helper.make_node("Add", [first, second], [f"{name}.sum"], name=name))
    return f"{name}.sum"


def _place(graph: GraphProto, piece: Piece, module: nn.Module, source: str, prefix: str) -> str:
    """Adds a copy of a piece with this module's numbers; returns the name of its output."""
    from onnx import numpy_helper

    names = {piece.input: source, "": ""}
    used = {value for node in piece.nodes for value in node.input}
    for name, tensor in zip(piece.state, tensors(module), strict=True):
        if name in used:
            names[name] = prefix + name
            graph.initializer.append(numpy_helper.from_array(_array(tensor), prefix + name))
    for constant in piece.constants:
        copied = graph.initializer.add()
        copied.CopyFrom(constant)
        copied.name = prefix + constant.name
    for node in piece.nodes:
        copied_node = graph.node.add()
        copied_node.CopyFrom(node)
        copied_node.name = prefix + node.name
        copied_node.ClearField("metadata_props")
        copied_node.ClearField("doc_string")
        _rename(copied_node, names, prefix)
    return names.get(piece.output, prefix + piece.output)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.to(torch.device("cpu")).contiguous().numpy()


def _rename(node: NodeProto, names: dict[str, str], prefix: str) -> None:
    for side in (node.input, node.output):
        for i, name in enumerate(side):
            side[i] = names.get(name, prefix + name)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            _rename(inner, names, prefix)
