"""A network as it is kept: in the folder of a run, or in a model file. Both can be measured and exported again."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, fx, nn

from budgetnet.budgets.budget import BudgetLike
from budgetnet.errors import UserError
from budgetnet.export.description import Description, checked_budgets
from budgetnet.export.files import sha256
from budgetnet.export.models import open_model
from budgetnet.export.rebuilding import INPUTS, check_shapes, empty, examples_of, rebuild
from budgetnet.export.structure import describe
from budgetnet.naming import own_names
from budgetnet.naming.files import read_bytes
from budgetnet.naming.values import typed
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.inputs import InputSpec, Prelude
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.folder import RunFolder
from budgetnet.runs.config import Config, of_run
from budgetnet.spaces import SPACES, build

OWN = "own"
"""The space of a run on a user's own network, which only they can build."""

OF_A_WHOLE = ("macs", "params", "size", "latency", "latency_p95", "peak_memory", "file_size")
"""Costs that need the network alone, not the edges that it is made of."""

STRUCTURE_FILE = "structure.json"
INT8_FILE = "network.int8.onnx"

Limits = tuple[tuple[str, float], ...]
"""Costs, as texts, and their maxima in the base unit."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A super network, the architecture kept of it, the network with its weights, and what is known about it.

    `onnx` is the exported file itself, if that is what was opened; `int8` is the quantised one, of a run or opened. The
    weights of a model file stay in the file: its network is for costs, none of which depends on weights. Where only the
    structure of the network is known, the super network has that network as its one edge; `kept` is always the
    architecture as it was found.
    """

    net: SuperNetwork
    architecture: Architecture
    kept: Architecture
    network: fx.GraphModule
    description: Description
    limits: Limits
    checksums: Mapping[str, str]
    onnx: bytes | None = None
    int8: bytes | None = None
    config: Config | None = None

    @property
    def whole(self) -> bool:
        """Whether the network is known as a whole only, not edge by edge."""
        return self.kept is not self.architecture


def open_stored(
    path: Path, net: SuperNetwork | None = None, *, space: str | None = None, trust: bool = False
) -> Stored:
    """A run folder or a model file.

    Args:
        path: The folder or the file.
        net: The super network of a run on a user's own network, built as it was.
        space: The user's own space of the run, as they named it on the command line; no file can name it.
        trust: Whether to open a torch program, which runs code that is in it.

    Returns:
        What it holds, checked.
    """
    if not path.exists():
        raise UserError(f"there is no {path}; give the folder of a run or a model file")
    return _open_run(path, net, space) if path.is_dir() else _open_file(path, net, space, trust)


def _open_run(path: Path, net: SuperNetwork | None, space: str | None) -> Stored:
    folder = RunFolder(path)
    if not folder.finished:
        raise UserError(f"{path} holds no finished run; give the folder of one, or a model file")
    config, data, certificate = of_run(folder), folder.data(), folder.certificate()
    text, weights = folder.architecture(), folder.read_bytes("weights.safetensors")
    checksums = {"weights.safetensors": sha256(weights)}
    int8 = folder.read_bytes(INT8_FILE) if (path / INT8_FILE).exists() else None
    if int8 is not None:
        checksums[INT8_FILE] = sha256(int8)
    _compare(checksums, certificate.checksums if certificate else {}, path)
    budgets = (certificate.budgets if certificate else ()) or folder.summary().budgets
    limits = tuple((budget.cost, budget.maximum) for budget in budgets)
    known = certificate.to_json() if certificate else {}
    description = Description.of_run(config.space, text, data.to_json(), known)
    net = net or _build(description, space, path)
    if net is None:
        net, kept, network = _from_structure(folder, description, text, weights)
        return Stored(net, net.graph.full, kept, network, description, limits, checksums, int8=int8, config=config)
    kept = Architecture.from_json(net.graph, text)
    network = _with_weights(net, kept, weights, path)
    return Stored(net, kept, kept, network, description, limits, checksums, int8=int8, config=config)


def _open_file(path: Path, net: SuperNetwork | None, space: str | None, trust: bool) -> Stored:
    model, data = open_model(path, trust=trust), read_bytes(path)
    description = model.description
    net = net or _build(description, space, path)
    if net is None:
        raise UserError(
            f"{path} is of the space {description.space}, code of your own; add --space {description.space}, "
            "or certify the folder of its run"
        )
    architecture = Architecture.from_json(net.graph, description.architecture)
    return Stored(
        net,
        architecture,
        architecture,
        extract(net, architecture).eval(),
        description,
        _limits(checked_budgets(description.certificate.get("budgets", []), str(path))),
        {**description.certificate.get("checksums", {}), path.name: sha256(data)},
        onnx=data if path.suffix == ".onnx" and description.precision == "fp32" else None,
        int8=data if path.suffix == ".onnx" and description.precision == "int8" else None,
    )


def _build(description: Description, given: str | None, where: Path) -> SuperNetwork | None:
    """The super network if it is a built-in one, or one of the user's that they named; otherwise None."""
    written = description.space
    if given is not None and given != written:
        raise UserError(f"{where} was made with the space {written}, not {given}; leave --space out, or give that one")
    if given is None and written.partition(":")[0] not in SPACES:
        return None
    return build(written, description.input_shape, len(description.labels), own=own_names(given or ""))


def write_structure(network: nn.Module, graph: Graph) -> bytes:
    """The file in the folder of a run that lets its network be opened without the code that made it."""
    edges = [dataclasses.asdict(edge) for edge in graph.edges]
    return (json.dumps({**describe(network), "edges": edges, "chains": graph.chains}) + "\n").encode()


@dataclass(frozen=True)
class _Searched:
    """The graph that was searched, as a structure file holds it."""

    edges: tuple[Edge, ...]
    chains: tuple[tuple[str, ...], ...] = ()


def _from_structure(
    folder: RunFolder, description: Description, text: str, weights: bytes
) -> tuple[SuperNetwork, Architecture, fx.GraphModule]:
    """A run on a network of the user's, from its structure and its weights alone."""
    file = folder.path / STRUCTURE_FILE
    if not file.exists():
        raise UserError(
            f"{folder.path} is of a network of your own, and has no {STRUCTURE_FILE}; name its space with --space, "
            f"or open it from Python, with the network built as it was: budgetnet.load({str(folder.path)!r}, net)"
        )
    structure = folder.read_json(STRUCTURE_FILE)
    found = typed(structure, _Searched, str(file))
    network = rebuild(structure, _numbers(weights, folder.path), str(file))
    if not isinstance(network, fx.GraphModule):
        raise UserError(f"{file} does not hold an extracted network; restore it")
    check_shapes(empty(structure, str(file)), examples_of(structure, description, str(file)), str(file))
    kept = Architecture.from_json(Graph(found.edges, found.chains), text)
    return _whole(network, description), kept, network


def _whole(network: fx.GraphModule, description: Description) -> SuperNetwork:
    """A super network that has this network as its one edge."""
    graph = Graph([Edge("network", "input", "output")])
    spec: InputSpec | None = network.meta.get(INPUTS)
    if spec is None or len(spec.names) == 1:
        shape, dtype = description.input_shape, description.dtype
        return SuperNetwork(graph, {"network": Region(network)}, input_shape=shape, input_dtype=dtype, name=OWN).eval()
    shape, dtype = spec.shapes[spec.main], spec.dtypes[spec.main]
    others = [name for name in spec.names if name != spec.names[spec.main]]
    prelude = Prelude(spec, _side_inputs(spec.names, others), [True] * len(others))
    edge = Region(_first(network, spec.names[spec.main]), range(len(others)))
    return SuperNetwork(
        graph, {"network": edge}, input_shape=shape, input_dtype=dtype, name=OWN, prelude=prelude
    ).eval()


def _side_inputs(names: Sequence[str], others: Sequence[str]) -> fx.GraphModule:
    """From all inputs to a tuple of some of them."""
    graph = fx.Graph()
    entries = {name: graph.placeholder(name) for name in names}
    graph.output(tuple(entries[name] for name in others))
    return fx.GraphModule(nn.Module(), graph)


def _first(network: fx.GraphModule, name: str) -> fx.GraphModule:
    """The network with this input before the others."""
    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    entries = [node for node in network.graph.nodes if node.op == "placeholder"]
    for node in sorted(entries, key=lambda node: node.target != name):
        values[node] = graph.placeholder(str(node.target))
    for node in network.graph.nodes:
        if node.op != "placeholder":
            values[node] = graph.node_copy(node, values.__getitem__)
    return fx.GraphModule(network, graph)


def measurable(network: fx.GraphModule, description: Description) -> tuple[SuperNetwork, Architecture, bool]:
    """What a network can be measured by.

    Args:
        network: The network; its weights may have changed.
        description: What is known about it.

    Returns:
        The super network that it came from, if that is a built-in one, and its architecture; or one that has the
        network as its only edge, and that it is known as a whole only.
    """
    net = _build(description, None, Path(description.space))
    if net is not None:
        return net, Architecture.from_json(net.graph, description.architecture), False
    made = _whole(network, description)
    return made, made.graph.full, True


def check_whole(budgets: Sequence[BudgetLike], where: object) -> None:
    """Refuses costs of edges where only the network as a whole is known: the code of its space was not named."""
    for budget in budgets:
        text = budget if isinstance(budget, str) else budget[0]
        if not isinstance(text, str) or re.split(r"[(<≤]", text)[0].strip() not in OF_A_WHOLE:
            raise UserError(
                f"the cost {text!r:.80} is of the edges of a space of your own, which {where} cannot bring; "
                "name the space with --space, or limit one of " + ", ".join(OF_A_WHOLE)
            )


def _numbers(weights: bytes, folder: Path) -> dict[str, Tensor]:
    try:
        return load(weights)
    except (SafetensorError, ValueError, RuntimeError):
        raise UserError(f"the weights in {folder} are damaged; restore them or run again") from None


def _with_weights(net: SuperNetwork, architecture: Architecture, weights: bytes, folder: Path) -> fx.GraphModule:
    network = extract(net, architecture).eval()
    try:
        network.load_state_dict(_numbers(weights, folder))
    except RuntimeError:
        raise UserError(f"the weights in {folder} do not fit its architecture; restore them or run again") from None
    return network


def _compare(found: Mapping[str, str], certified: Mapping[str, str], folder: Path) -> None:
    for name, checksum in found.items():
        if certified.get(name, checksum) != checksum:
            raise UserError(f"{folder / name} is not what its certificate was made for; restore it or run again")


def _limits(budgets: Sequence[Mapping[str, Any]]) -> Limits:
    return tuple((budget["cost"], float(budget["maximum"])) for budget in budgets)


def without_own_checksum(description: Description, name: str) -> Description:
    """The description for a file of this name: its certificate leaves out the checksum of the file itself."""
    if not description.certificate:
        return description
    checksums = {key: value for key, value in description.certificate["checksums"].items() if key != name}
    return replace(description, certificate={**description.certificate, "checksums": checksums})
