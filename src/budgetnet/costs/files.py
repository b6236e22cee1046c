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
from budgetnet.costs.latency.runtimes import roughly_int8
from budgetnet.export.folding import fold
from budgetnet.export.int8 import check_precision
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

    def __init__(self, net: SuperNetwork, precision: str = "fp32") -> None:
        check_precision(precision)
        super().__init__(net.graph)
        refuse_bundles(net, "file_size")
        self.net, self.precision = net, precision
        self._known: dict[frozenset[str], int] = {}

    def evaluate(self, live: Tensor) -> Tensor:
        """The estimated bytes of each row of live gates."""
        return self._estimate.evaluate(live)

    def smallest(self) -> Architecture | None:
        """The architecture of the smallest estimate."""
        return self._estimate.smallest()

    def evidence(self, architecture: Architecture, batches: Sequence[Any] = ()) -> Evidence:
        """The bytes of the exported network and of its description."""
        value = float(self._export(architecture) + len(architecture.live().to_json()) + DESCRIPTION + CERTIFICATE)
        how = {"method": "exported", "precision": self.precision, "reserved": DESCRIPTION + CERTIFICATE}
        return Evidence(value, value, how)

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """The bytes of the file itself, with room for the certificate if that is still to be put into it."""
        reserved = 0 if deliverable.final else CERTIFICATE
        value = float(len(deliverable.file(self.precision)) + reserved)
        how = {"method": "bytes of the exported file", "network": "exported", "reserved": reserved}
        how["precision"] = self.precision
        return Evidence(value, value, how)

    def refresh(self, live: Tensor) -> Mapping[str, float]:
        """The error of the estimate on a few of these networks. There is nothing to fit."""
        chosen = live[live.any(1)][:COMPARED]
        if not len(chosen):
            return {}
        measured = np.array([self.evidence(self.net.graph.architecture(row)).value for row in chosen])
        return {"error": error(self.evaluate(chosen).numpy(), measured)}

    def _export(self, architecture: Architecture) -> int:
        """The bytes of an architecture's file, which do not depend on its weights."""
        key = architecture.live().kept
        if key not in self._known:
            network = fold(extract(self.net, architecture).cpu())
            model = to_onnx(network, self.net.input_shape, scaled=True, pieces=self._pieces).SerializeToString()
            self._known[key] = len(model if self.precision == "fp32" else roughly_int8(model, self.net.input_shape))
        return self._known[key]

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces()

    @cached_property
    def _estimate(self) -> AdditiveCost:
        """Tensors as they are stored, and the rest of the full network's file shared out over what holds it.

        In a float32 file every edge has about the same share; in an int8 file every layer with weights has.
        """
        graph, modules = self.net.graph, [*self.net.edge_modules]
        others = nn.ModuleList([self.net.stem, self.net.head, *self.net.activations])
        tensors = _numbers([self._tensor_bytes(module) for module in modules])
        fixed = self._tensor_bytes(others)
        shares = _numbers([self._share(module) for module in modules])
        own = self._share(others) if self.precision == "int8" else 1.0
        rest = self._export(graph.full) - fixed - float(tensors.sum())
        structure = rest / (float(shares.sum()) + own)
        names = _numbers([float(len(edge.name) + 5) for edge in graph.edges])
        base = fixed + structure * own + DESCRIPTION + CERTIFICATE
        return AdditiveCost(
            graph, base, tensors + structure * shares + names, torch.zeros(len(graph.nodes), dtype=torch.float64)
        )

    def _tensor_bytes(self, module: nn.Module) -> float:
        folded = fold(nn.ModuleList([module]))
        if self.precision == "fp32":
            return float(sum(tensor.numel() * tensor.element_size() for tensor in folded.state_dict().values()))
        # a byte for each weight; scale and zero point of each channel's weights and of its bias, and the bias, int32
        channels = sum(len(tensor) for tensor in folded.parameters() if tensor.dim() == 1)
        weights = sum(tensor.numel() for tensor in folded.parameters() if tensor.dim() > 1)
        return float(weights + 17 * channels)

    def _share(self, module: nn.Module) -> float:
        """How much of a file's structure a module has, against others."""
        if self.precision == "fp32":
            return 1.0
        return float(sum(tensor.dim() > 1 for tensor in module.parameters())) + 0.1


def file_size(net: SuperNetwork, precision: str = "fp32") -> FileSize:
    """Bytes of the exported ONNX file, certificate included.

    Args:
        net: The super network.
        precision: fp32, or int8 for the quantised file.
    """
    return FileSize(net, precision)


def _numbers(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
