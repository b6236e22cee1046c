"""`file_size`: bytes of the exported ONNX file, batch norm folded, with the metadata that it carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from budgetnet.costs.base import Cost, refuse_bundles
from budgetnet.costs.counts import AdditiveCost
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.latency.predictor import error
from budgetnet.export.folding import fold
from budgetnet.export.onnx_graph import to_onnx
from budgetnet.export.pieces import Pieces
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork

CERTIFICATE = 6144
"""Bytes set aside for the certificate inside the file, which is made after its size was judged."""
DESCRIPTION = 2048
"""Bytes set aside, while searching, for labels and the other texts of the file."""
COMPARED = 2
"""Networks that a refresh exports."""


class FileSize(Cost):
    """Estimates for gates: folded state, and an equal share of the file's structure per edge; measures by exporting."""

    measured = True

    def __init__(self, net: SuperNetwork) -> None:
        super().__init__(net.graph)
        refuse_bundles(net, "file_size")
        self.net = net

    def evaluate(self, live: Tensor) -> Tensor:
        """The estimated bytes of each row of live gates."""
        return self._estimate.evaluate(live)

    def smallest(self) -> Architecture | None:
        """The architecture of the smallest estimate."""
        return self._estimate.smallest()

    def evidence(self, architecture: Architecture, batches: Sequence[Any] = ()) -> Evidence:
        """The bytes of the exported network and of its description."""
        value = float(self._export(architecture) + len(architecture.live().to_json()) + DESCRIPTION + CERTIFICATE)
        return Evidence(value, value, {"method": "exported", "reserved": DESCRIPTION + CERTIFICATE})

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """The bytes of the file itself, with room for the certificate if that is still to be put into it."""
        reserved = 0 if deliverable.final else CERTIFICATE
        value = float(len(deliverable.onnx) + reserved)
        how = {"method": "bytes of the exported file", "network": "exported", "reserved": reserved}
        return Evidence(value, value, how)

    def refresh(self, live: Tensor) -> Mapping[str, float]:
        """The error of the estimate on a few of these networks. There is nothing to fit."""
        chosen = live[live.any(1)][:COMPARED]
        if not len(chosen):
            return {}
        measured = np.array([self.evidence(self.net.graph.architecture(row)).value for row in chosen])
        return {"error": error(self.evaluate(chosen).numpy(), measured)}

    def _export(self, architecture: Architecture) -> int:
        network = fold(extract(self.net, architecture).cpu())
        return int(to_onnx(network, self.net.input_shape, scaled=True, pieces=self._pieces).ByteSize())

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces()

    @cached_property
    def _estimate(self) -> AdditiveCost:
        graph = self.net.graph
        tensors = torch.tensor([float(_folded_bytes(module)) for module in self.net.edge_modules], dtype=torch.float64)
        fixed = sum(_folded_bytes(module) for module in (self.net.stem, self.net.head, *self.net.activations))
        structure = (self._export(graph.full) - fixed - float(tensors.sum())) / (len(graph.edges) + 1)
        names = torch.tensor([float(len(edge.name) + 5) for edge in graph.edges], dtype=torch.float64)
        base = fixed + structure + DESCRIPTION + CERTIFICATE
        return AdditiveCost(
            graph, base, tensors + structure + names, torch.zeros(len(graph.nodes), dtype=torch.float64)
        )


def file_size(net: SuperNetwork) -> FileSize:
    """Bytes of the exported ONNX file, certificate included."""
    return FileSize(net)


def _folded_bytes(module: nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in fold(nn.ModuleList([module])).state_dict().values())
