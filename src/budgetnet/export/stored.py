"""A network as it is kept: in the folder of a run, or in a model file. Both can be measured and exported again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import fx

from budgetnet.errors import UserError
from budgetnet.export.description import Description
from budgetnet.export.files import sha256
from budgetnet.export.models import open_model
from budgetnet.naming.files import read_bytes, read_json
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import build

OWN = "own"
"""The space of a run on a user's own network, which only they can build."""

Limits = tuple[tuple[str, float], ...]
"""Costs, as texts, and their maxima in the base unit."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A super network, the architecture kept of it, the network with its weights, and what is known about it.

    `onnx` is the exported file itself, if that is what was opened. The weights of a model file stay in the file: its
    network is for costs, none of which depends on weights.
    """

    net: SuperNetwork
    architecture: Architecture
    network: fx.GraphModule
    description: Description
    limits: Limits
    checksums: Mapping[str, str]
    onnx: bytes | None = None
    config: Mapping[str, Any] | None = None


def open_stored(path: Path, net: SuperNetwork | None = None) -> Stored:
    """A run folder or a model file; a run on a user's own network needs that network, built as it was."""
    if not path.exists():
        raise UserError(f"there is no {path}; give the folder of a run or a model file")
    return _open_run(path, net) if path.is_dir() else _open_file(path, net)


def _open_run(folder: Path, net: SuperNetwork | None) -> Stored:
    if not (folder / "summary.json").exists():
        raise UserError(f"{folder} holds no finished run; give the folder of one, or a model file")
    config, data = read_json(folder / "config.json")["config"], read_json(folder / "data.json")
    net = net or _build(config["space"], tuple(data["input_shape"]), len(data["classes"]), folder)
    text = read_bytes(folder / "architecture.json").decode()
    architecture = Architecture.from_json(net.graph, text)
    weights = read_bytes(folder / "weights.safetensors")
    certificate = read_json(folder / "certificate.json") if (folder / "certificate.json").exists() else {}
    checksums = {"weights.safetensors": sha256(weights)}
    _compare(checksums, certificate.get("checksums", {}), folder)
    budgets = certificate.get("budgets") or read_json(folder / "summary.json")["budgets"]
    description = Description.of_run(config["space"], text, data, certificate)
    network = _with_weights(net, architecture, weights, folder)
    return Stored(net, architecture, network, description, _limits(budgets), checksums, config=config)


def _open_file(path: Path, net: SuperNetwork | None) -> Stored:
    model, data = open_model(path), read_bytes(path)
    description = model.description
    net = net or _build(description.space, description.input_shape, len(description.labels), path)
    architecture = Architecture.from_json(net.graph, description.architecture)
    return Stored(
        net,
        architecture,
        extract(net, architecture).eval(),
        description,
        _limits(description.certificate.get("budgets", [])),
        {**description.certificate.get("checksums", {}), path.name: sha256(data)},
        onnx=data if path.suffix == ".onnx" else None,
    )


def _build(space: str, input_shape: tuple[int, ...], classes: int, where: Path) -> SuperNetwork:
    if space == OWN:
        raise UserError(f"{where} is of a network of your own, which only you can build; do this from Python, with it")
    return build(space, input_shape, classes)


def _with_weights(net: SuperNetwork, architecture: Architecture, weights: bytes, folder: Path) -> fx.GraphModule:
    network = extract(net, architecture).eval()
    try:
        network.load_state_dict(load(weights))
    except (SafetensorError, RuntimeError):
        raise UserError(f"the weights in {folder} do not fit its architecture; restore them or run again") from None
    return network


def _compare(found: Mapping[str, str], certified: Mapping[str, str], folder: Path) -> None:
    for name, checksum in found.items():
        if certified.get(name, checksum) != checksum:
            raise UserError(f"{folder / name} is not what its certificate was made for; restore it or run again")


def _limits(budgets: list[Mapping[str, Any]]) -> Limits:
    return tuple((budget["cost"], float(budget["maximum"])) for budget in budgets)


def without_own_checksum(description: Description, name: str) -> Description:
    """The description for a file of this name: its certificate leaves out the checksum of the file itself."""
    if not description.certificate:
        return description
    checksums = {key: value for key, value in description.certificate["checksums"].items() if key != name}
    return replace(description, certificate={**description.certificate, "checksums": checksums})
