"""Architectures of a space as people name them: by a name that the space gives, or by a file."""

from __future__ import annotations

from pathlib import Path

from budgetnet.errors import UserError
from budgetnet.naming.files import is_file, read_text
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.supernet import SuperNetwork


def find_architecture(net: SuperNetwork, text: str) -> Architecture:
    """An architecture by its name, or from a file; one that connects nothing is refused."""
    path = Path(text)
    if text == "full" or text in net.named or not is_file(path):
        return net.architecture(text)
    return architecture_in(net.graph, path)


def architecture_in(graph: Graph, path: Path) -> Architecture:
    """The architecture in a file; one that connects nothing is refused."""
    content = read_text(path)
    try:
        architecture = Architecture.from_json(graph, content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    if not architecture.connected:
        raise UserError(f"the architecture in {path} does not connect the input to the output; keep a whole path")
    return architecture
