"""The formats of exported networks: how each becomes bytes, and how each runs in its own runtime."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx, nn

from budgetnet.errors import UserError, reason
from budgetnet.export.description import Description
from budgetnet.export.files import CHECKSUM, UNSEALED, seal
from budgetnet.export.folding import fold
from budgetnet.export.int8 import quantise
from budgetnet.export.onnx_graph import to_onnx
from budgetnet.export.pieces import need_onnx, quiet
from budgetnet.export.rebuilding import check_shapes, empty, examples_of, parse, rebuild
from budgetnet.export.structure import describe

Given = Tensor | tuple[Tensor, ...]
"""What a file takes: a batch, or one of each of its inputs, in their order."""
Runner = Callable[[Given], Tensor]
"""A batch, such as images (float32, N×C×H×W), to outputs."""

_EXTRA = "budgetnet.json"
STRUCTURE = "structure"


class Format(NamedTuple):
    """`pack` makes the bytes of a file from an extracted network; `load` a description and a runner from the bytes."""

    suffix: str
    pack: Callable[[fx.GraphModule, Description], bytes]
    load: Callable[[bytes, str], tuple[Description, Runner]]


class Scale(nn.Module):
    """Pixels from 0 to `white` as values in [−1, 1]."""

    def __init__(self, white: float = 255.0) -> None:
        super().__init__()
        self.middle = white / 2

    def forward(self, x: Tensor) -> Tensor:
        """x / middle − 1."""
        return x / self.middle - 1


def source_runner(network: nn.Module, description: Description) -> Runner:
    """The network itself, run as an exported file is."""
    network = nn.Sequential(Scale(description.white), network) if description.scaled else network
    return lambda given: cast(Tensor, network(*tensors_of(given)))


def tensors_of(given: Given) -> tuple[Tensor, ...]:
    """The inputs as a tuple, also if there is only one."""
    return given if isinstance(given, tuple) else (given,)


def pack_onnx(network: fx.GraphModule, description: Description, samples: Iterable[Tensor] | None = None) -> bytes:
    """An ONNX file that describes itself and is sealed.

    Args:
        network: The extracted network.
        description: What the file says about itself.
        samples: Batches of inputs as the file takes them, by which it is quantised to int8; float32 if not given.
    """
    model = to_onnx(fold(network), description.input_shape, scaled=description.scaled, dtype=description.dtype)
    if samples is not None:
        import onnx

        model = onnx.load_from_string(quantise(model.SerializeToString(), (batch.numpy() for batch in samples)))
        description = replace(description, precision="int8")
    for key, value in {**description.to_strings(), CHECKSUM: UNSEALED}.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    return seal(model.SerializeToString(deterministic=True))


def onnx_session(data: bytes, name: str, threads: int | None = None, provider: str = "") -> Any:
    """An ONNX Runtime session, on the processor by default; a model that it cannot run is the user's file."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise UserError("ONNX needs the package onnxruntime: pip install 'budgetnet[export]'") from None
    provider = _provider(provider or "CPUExecutionProvider", onnxruntime.get_all_providers())
    if provider not in onnxruntime.get_available_providers():
        available = ", ".join(onnxruntime.get_available_providers())
        raise UserError(f"this ONNX Runtime has no provider {provider}; it has {available}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=[provider])
    except Exception as error:  # the runtime has a class of its own for every way in which a model can be wrong
        raise UserError(f"ONNX Runtime cannot run {name} ({reason(error)}); export it again") from None
    if provider not in session.get_providers():  # ONNX Runtime takes the processor instead, and only logs that
        raise UserError(f"ONNX Runtime could not start {provider} here; install the libraries that it needs")
    return session


def _provider(name: str, known: Sequence[str]) -> str:
    """The provider that a user means by `cuda`."""
    return next((full for full in known if full.lower() in (name.lower(), f"{name.lower()}executionprovider")), name)


def _load_onnx(data: bytes, name: str) -> tuple[Description, Runner]:
    session = onnx_session(data, name)
    try:
        strings, names = session.get_modelmeta().custom_metadata_map, [entry.name for entry in session.get_inputs()]
    except UnicodeDecodeError:
        raise UserError(f"{name} holds text that is not UTF-8; export it again") from None

    def run(given: Given) -> Tensor:
        fed = {name: tensor.numpy() for name, tensor in zip(names, tensors_of(given), strict=True)}
        return torch.from_numpy(session.run(None, fed)[0])

    return Description.from_strings(strings, name), run


def program(
    network: nn.Module, input_shape: Sequence[int], dtype: torch.dtype = torch.float32
) -> torch.export.ExportedProgram:
    """A network as a torch program with a free batch dimension."""
    spec: Any = getattr(network, "meta", {}).get("inputs")
    several = spec is not None and len(spec.names) > 1
    example = spec.tensors(spec.example(2, "cpu")) if several else (torch.zeros((2, *input_shape), dtype=dtype),)
    named = dict(zip(spec.names, example, strict=True)) if several and spec.kind == "dict" else None
    batch = torch.export.Dim("batch")
    free = {0: batch}
    try:
        with quiet(), torch.no_grad():
            if named is not None:
                return torch.export.export(network.eval(), (), named, dynamic_shapes=dict.fromkeys(named, free))
            return torch.export.export(network.eval(), example, dynamic_shapes=tuple(free for _ in example))
    except Exception as error:  # a user's module may contain anything
        raise UserError(f"torch.export cannot take this network ({reason(error)}); use other layers") from error


def program_bytes(network: nn.Module, description: Description) -> bytes:
    """A torch program as saved, with its description; pixels are scaled inside if that says so."""
    whole = nn.Sequential(Scale(description.white), network) if description.scaled else network
    made = program(whole, description.input_shape, description.dtype)
    buffer = io.BytesIO()
    with quiet():
        torch.export.save(made, buffer, extra_files={_EXTRA: json.dumps(description.to_strings())})
    return buffer.getvalue()


def _pack_torch(network: fx.GraphModule, description: Description) -> bytes:
    return program_bytes(fold(network), description)


def _load_torch(data: bytes, name: str) -> tuple[Description, Runner]:
    extra = {_EXTRA: ""}
    try:
        with quiet():
            module = torch.export.load(io.BytesIO(data), extra_files=extra).module()
        texts = json.loads(extra[_EXTRA])
    except Exception as error:  # torch raises many things for a file that is not its own
        raise UserError(f"torch cannot load {name} as a program ({reason(error)}); export it again") from None
    names = [node.target for node in module.graph.nodes if node.op == "placeholder"]

    def run(given: Given) -> Tensor:
        tensors = tensors_of(given)
        by_name = len(tensors) > 1 and not module._in_spec.children()[0].num_leaves
        return cast(Tensor, module(**dict(zip(names, tensors, strict=True))) if by_name else module(*tensors))

    return Description.from_strings(texts, name), run


def _pack_safetensors(network: fx.GraphModule, description: Description) -> bytes:
    from safetensors.torch import save

    folded = fold(network)
    state = {key: value.contiguous() for key, value in folded.state_dict().items()}
    texts = {**description.to_strings(), STRUCTURE: json.dumps(describe(folded)), CHECKSUM: UNSEALED}
    return seal(save(state, texts))


def _load_safetensors(data: bytes, name: str) -> tuple[Description, Runner]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        state = load(data)
        texts = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    except (ValueError, RecursionError, SafetensorError) as error:
        raise UserError(f"{name} is not a safetensors file ({reason(error)}); export it again") from None
    description = Description.from_strings(texts, name)
    if STRUCTURE not in texts:
        raise UserError(f"{name} does not hold the structure of its network; export it again")
    structure = parse(texts[STRUCTURE], name)
    check_shapes(empty(structure, name), examples_of(structure, description, name), name)
    return description, source_runner(rebuild(structure, state, name), description)


FORMATS = {
    "onnx": Format(".onnx", pack_onnx, _load_onnx),
    "torch": Format(".pt2", _pack_torch, _load_torch),
    "safetensors": Format(".safetensors", _pack_safetensors, _load_safetensors),
}


def format_of(name: str) -> Format:
    """The format of a file by its suffix."""
    for candidate in FORMATS.values():
        if name.endswith(candidate.suffix):
            return candidate
    known = ", ".join(f"{candidate.suffix} ({key})" for key, candidate in FORMATS.items())
    raise UserError(f"{name} has none of the endings of a model file; rename it to one of: {known}")


def need(kind: str) -> None:
    """Refuses, before any work, a format whose packages are missing or that does not exist."""
    if kind not in FORMATS:
        raise UserError(f"there is no format {kind!r}; use {', '.join(FORMATS)}")
    if kind == "onnx":
        need_onnx()
