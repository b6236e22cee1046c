"""A user's model as one flat graph of torch operations, exported in training mode with a batch of any size."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from budgetnet.errors import UserError
from budgetnet.network.inputs import Inputs, InputSpec
from budgetnet.network.slices import attribute

RANDOM = ("rand", "randn", "bernoulli", "rand_like", "randn_like", "multinomial", "normal", "uniform")
DISCARDED = (
    "_assert_tensor_metadata",
    "_assert_async",
    "_assert_scalar",
    "sym_constrain_range",
    "lazy_load_decompositions",
)


@dataclass(frozen=True)
class Trace:
    """The model as a graph: its inputs, its tensors by name (`get_attr` nodes read them), and what inputs look like."""

    graph: fx.Graph
    tensors: Mapping[str, Tensor]
    spec: InputSpec
    examples: tuple[Tensor, ...]


class _OneOutput(nn.Module):
    """The model with its inputs in the order of the specification and one tensor as its output."""

    def __init__(self, model: nn.Module, spec: InputSpec) -> None:
        super().__init__()
        self.model, self.spec = model, spec

    def forward(self, *tensors: Tensor) -> Tensor:
        if self.spec.kind == "dict":
            output = self.model(**dict(zip(self.spec.names, tensors, strict=True)))
        else:
            output = self.model(*tensors)
        if not isinstance(output, Tensor):
            output = output.get("logits", output) if isinstance(output, Mapping) else getattr(output, "logits", output)
        if isinstance(output, list | tuple) and len(output) == 1:
            output = output[0]
        if not isinstance(output, Tensor):
            raise UserError(
                f"{type(self.model).__name__} gives {type(output).__name__}, not one tensor (or one named logits); "
                "wrap it in a module whose forward returns the tensor to train on"
            )
        return output


def trace(model: nn.Module, example_inputs: Inputs) -> Trace:
    """Exports the model; what cannot be exported is refused with the place in the model."""
    examples, kind, names = _examples(model, example_inputs)
    shapes = tuple(tuple(tensor.shape[1:]) for tensor in examples)
    spec = InputSpec(kind, names, shapes, tuple(tensor.dtype for tensor in examples))
    wrapped = _OneOutput(model, spec)
    modes = [(module, module.training) for module in model.modules()]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        model.train()
        dynamic = (tuple({0: torch.export.Dim.DYNAMIC} for _ in examples),)
        with quiet(), torch.enable_grad():
            program = torch.export.export(wrapped, examples, dynamic_shapes=dynamic)
    except Exception as error:  # a user's model may contain anything
        raise _misfit(error) or _refusal(wrapped, examples, error) from error
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers and buffer.shape == buffers[name].shape:
                    buffer.copy_(buffers[name])
    return Trace(*_flat(program, wrapped, spec), spec, examples)


def _examples(model: object, inputs: Inputs) -> tuple[tuple[Tensor, ...], str, tuple[str, ...]]:
    """Two examples of each input, and how the inputs are given."""
    if not isinstance(model, nn.Module):
        raise UserError(f"from_model takes an nn.Module, not {type(model).__name__}; give the model itself")
    if isinstance(inputs, Tensor):
        found, kind, names = [inputs], "tensor", ["x"]
    elif isinstance(inputs, Mapping):
        found, kind, names = list(inputs.values()), "dict", list(map(str, inputs))
    elif isinstance(inputs, Sequence):
        found, kind, names = list(inputs), "tuple", [f"x{i}" for i in range(len(inputs))]
    else:
        raise UserError(f"example inputs are a tensor, or a tuple or dict of tensors, not {type(inputs).__name__}")
    for name, tensor in zip(names, found, strict=True):
        if not isinstance(tensor, Tensor) or tensor.dim() == 0 or len(tensor) == 0:
            shown = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise UserError(f"the example input {name} is {shown}; give tensors with at least one example, batch first")
    if not found or len({len(tensor) for tensor in found}) > 1:
        sizes = ", ".join(f"{name}: {len(tensor)}" for name, tensor in zip(names, found, strict=True))
        raise UserError(f"the example inputs have unequal batch sizes ({sizes or 'there are none'}); give equal ones")
    _check_weights(model, found[0].device)
    two = [
        torch.cat([tensor, tensor])[:2].contiguous() if len(tensor) < 2 else tensor[:2].contiguous() for tensor in found
    ]
    return tuple(tensor.detach() for tensor in two), kind, tuple(names)


def _check_weights(model: nn.Module, device: torch.device) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if torch.nn.parameter.is_lazy(tensor):
            raise UserError(
                f"{name} of {type(model).__name__} has no shape yet; call the model once before converting it"
            )
        if tensor.device != device:
            raise UserError(
                f"the example inputs are on {device}, {name} of {type(model).__name__} is on {tensor.device}; move "
                "both to one device"
            )
        if tensor.dtype in (torch.float16, torch.bfloat16):
            raise UserError(
                f"{name} of {type(model).__name__} is {tensor.dtype}; convert model.float(), and train with precision "
                "bf16 if you want to"
            )


def _refusal(wrapped: _OneOutput, examples: tuple[Tensor, ...], error: Exception) -> UserError:
    """A sentence with the line of the user's model at which the export stopped."""
    model, shapes = wrapped.model, ", ".join("×".join(map(str, x.shape)) for x in examples)
    name, text = type(model).__name__, " ".join(str(error).split())
    place = _place_of(error, model)
    if "Could not guard" in text or "data-dependent" in text or "GuardOnDataDependent" in type(error).__name__:
        return UserError(
            f"{name} cannot be exported{place}: its control flow depends on the data; compute both sides and choose "
            "with torch.where"
        )
    if "specializ" in text or "Constraints violated" in text:
        three = tuple(torch.cat([x, x[:1]]) for x in examples)
        place = _place_of(_failure(wrapped, three), model)
        return UserError(
            f"{name} cannot be exported{place}: it reads the batch size as a fixed number; use x.shape[0], or -1 in "
            "views"
        )
    failed = _failure(wrapped, examples)
    if failed is not None:
        return UserError(
            f"{name} cannot take the example inputs ({shapes}){_place_of(failed, model)}: "
            f"{' '.join(str(failed).split())[:240]}; give inputs as the model is called with"
        )
    why = f"torch.export says: {text[:240]}; change that part, or wrap the model without it"
    return UserError(f"{name} cannot be exported{place}: {why}")


def _misfit(error: BaseException | None) -> UserError | None:
    """The sentence about the model's output among the errors that an export failed with."""
    while error is not None and not isinstance(error, UserError):
        error = error.__cause__ or error.__context__
    return error


def _failure(wrapped: _OneOutput, examples: tuple[Tensor, ...]) -> Exception | None:
    """What the model raises if it is called with these examples."""
    try:
        with torch.no_grad():
            wrapped(*examples)
    except Exception as error:  # a user's model may raise anything
        return error
    return None


def _place_of(error: Exception | None, model: nn.Module) -> str:
    """The module whose forward raised an error: the innermost of the user's own, or of torch's if there is none."""
    paths = {id(module): path for path, module in model.named_modules()}
    found, of_torch = "", ""
    frame = error.__traceback__ if error is not None else None
    while frame is not None:
        code = frame.tb_frame
        owner = code.f_locals.get("self")
        if isinstance(owner, nn.Module) and code.f_code.co_name == "forward" and not isinstance(owner, _OneOutput):
            path = paths.get(id(owner), "")
            where = f" in {type(owner).__name__}.forward" + (f" ({path})" if path else "")
            if type(owner).__module__.startswith("torch."):
                of_torch = where
            else:
                found = f"{where}, line {frame.tb_lineno} of {code.f_code.co_filename.rpartition('/')[2]}"
        frame = frame.tb_next
    return found or of_torch


def _flat(
    program: torch.export.ExportedProgram, wrapped: nn.Module, spec: InputSpec
) -> tuple[fx.Graph, dict[str, Tensor]]:
    """The program's graph with its tensors as attributes, without operations that write in place."""
    signature, tensors, graph = program.graph_signature, dict[str, Tensor](), fx.Graph()
    own = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    named = {**own, **signature.inputs_to_lifted_tensor_constants}
    new: dict[fx.Node, Any] = {}
    names = iter(spec.names)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in named:
            name = named[node.name].removeprefix("model.")
            if node.users:
                of_model = node.name in own
                tensors[name] = attribute(wrapped, own[node.name]) if of_model else program.constants[named[node.name]]
                new[node] = graph.get_attr(name)
                new[node].meta = dict(node.meta)
        elif node.op == "placeholder":
            new[node] = graph.placeholder(next(names))
            new[node].meta = dict(node.meta)
        elif node.op == "get_attr":
            continue  # sub-graphs of operations that are written out
        elif node.op == "output":
            result = node.args[0][-1]
            graph.output(new[result])
        else:
            _copy(node, graph, new, program.graph_module)
    return graph, tensors


def _copy(node: fx.Node, graph: fx.Graph, new: dict[fx.Node, Any], owner: nn.Module) -> None:
    """Copies a call; one that writes in place becomes its functional form, which later readers read instead."""
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        _write_out(node, graph, new, owner)
        return
    name = operation(node)
    if name in DISCARDED:
        return
    if name.removesuffix("_") in RANDOM:
        raise UserError(
            f"{place(node)} draws random numbers by itself (aten.{name}), which evaluation would do too; set its drop "
            "rate to 0, or use nn.Dropout"
        )
    schema = getattr(node.target, "_schema", None)
    writes = schema is not None and schema.is_mutable
    if not writes:
        new[node] = graph.node_copy(node, lambda old: new[old])
        return
    written = node.args[0]
    assert isinstance(written, fx.Node)
    value = new[written]
    if value.op == "get_attr":
        if str(value.target).endswith("num_batches_tracked"):
            return  # batch norm counts by itself
        raise UserError(
            f"{place(node)} keeps state between calls in {value.target}; compute it from the inputs instead"
        )
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    overload = getattr(packet, node.target._overloadname, None) if packet is not None else None  # type: ignore[union-attr]
    if overload is None or not name.endswith("_") or _aliased(written, node):
        raise UserError(
            f"{place(node)} writes in place (aten.{name}) into a part of a tensor; write it without in-place operations"
        )
    result = graph.node_copy(node, lambda old: new[old])
    result.target = overload
    new[node] = new[written] = result


def _write_out(node: fx.Node, graph: fx.Graph, new: dict[fx.Node, Any], owner: nn.Module) -> None:
    """The operations inside a block with another autocast or gradient mode, one by one."""
    inner = next((a for a in node.args if isinstance(a, fx.Node) and a.op == "get_attr"), None)
    body = attribute(owner, str(inner.target)) if inner is not None else None
    if not isinstance(body, fx.GraphModule) or "wrap_with" not in str(node.target):
        raise UserError(
            f"{place(node)} uses {node.target}, which cannot be taken apart; write it with plain operations"
        )
    given = iter(node.args[node.args.index(inner) + 1 :])
    for child in body.graph.nodes:
        if child.op == "placeholder":
            argument = next(given)
            new[child] = new[argument] if isinstance(argument, fx.Node) else argument
        elif child.op == "output":
            new[node] = fx.map_arg(child.args[0], lambda old: new[old])
        elif child.op != "get_attr":
            _copy(child, graph, new, body)
    for user in list(node.users):
        if operation(user) == "getitem":
            new[user] = new[node][user.args[1]]


def _aliased(written: fx.Node, writer: fx.Node) -> bool:
    """Whether what is written is a part of a tensor, or parts of it were taken, that others read afterwards."""
    order = {node: i for i, node in enumerate(writer.graph.nodes)}
    family, stack = {written}, [written]
    while stack:
        node = stack.pop()
        near = [a for a in node.all_input_nodes[:1] if _views(node)] + [u for u in node.users if _views(u)]
        for other in near:
            if other not in family and other.op == "call_function":
                family.add(other)
                stack.append(other)
    family.discard(written)
    return any(order[user] > order[writer] for node in family for user in node.users)


def _views(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def operation(node: fx.Node) -> str:
    """The name of an operation without namespace and overload; that of a Python function as it is."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.partition("::")[2]
    return getattr(node.target, "__name__", str(node.target))


def place(node: fx.Node) -> str:
    """Where in the model a call was made: the path and class of the innermost module."""
    stack = node.meta.get("nn_module_stack") or {}
    found = [(path, kind) for path, kind in stack.values()]
    if not found:
        return "the model"
    path, kind = found[-1]
    name = str(path).partition("model")[2].lstrip(".").replace("slice(None, ", "").strip()
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"{name or 'the model'} ({kind.rpartition('.')[2]})"


def path_of(node: fx.Node) -> str:
    """The path of the innermost module of a call, empty for the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    found = [str(path) for path, _ in stack.values()]
    return found[-1].partition("model")[2].lstrip(".") if found else ""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Torch's exporter logs and warns about parts of itself, and prints its graph: that tells a user nothing."""
    logger = logging.getLogger("torch")
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
