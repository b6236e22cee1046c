"""`file_size`: bytes of the exported ONNX file, batch norm folded, with the metadata that it carries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from budgetnet.costs.base import Cost
from budgetnet.costs.counts import AdditiveCost, BundleCost
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.latency.predictor import error
from budgetnet.costs.latency.samples import roughly_int8
from budgetnet.errors import UserError
from budgetnet.export.folding import fold, folded_calls
from budgetnet.export.int8 import check_precision
from budgetnet.export.onnx_graph import to_onnx
from budgetnet.export.pieces import Pieces
from budgetnet.network.axes import Keeps, Polynomial
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork

CERTIFICATE = 6144
"""Bytes set aside for the certificate inside the file, which is made after its size was judged."""
DESCRIPTION = 2048
"""Bytes set aside, while searching, for labels and the other texts of the file."""
COMPARED = 2
"""Networks that a refresh exports; a converted model's take seconds each, and one has to do."""


class FileSize(Cost):
    """Estimates for gates: folded state, and an equal share of the file's structure per edge; measures by exporting.

    Args:
        net: The super network.
        precision: fp32, or int8 for the quantised file.
    """

    measured = True

    def __init__(self, net: SuperNetwork, precision: str = "fp32") -> None:
        check_precision(precision)
        super().__init__(net.graph)
        if precision == "int8" and (len(net.inputs.names) > 1 or net.inputs.dtypes[0] != torch.float32):
            raise UserError(
                f"an int8 file takes one float32 input, and the network takes {', '.join(net.inputs.names)}; use fp32"
            )
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
        chosen = live[live.any(1)][: COMPARED if self.net.prelude is None else 1]
        if not len(chosen):
            return {}
        measured = np.array([self.evidence(self.net.graph.architecture(row)).value for row in chosen])
        return {"error": error(self.evaluate(chosen).numpy(), measured)}

    def _export(self, architecture: Architecture) -> int:
        """The bytes of an architecture's file, which do not depend on its weights."""
        key = architecture.live().kept
        if key not in self._known:
            network = fold(extract(self.net, architecture).cpu())
            shape, dtype = self.net.input_shape, self.net.input_dtype
            made = to_onnx(network, shape, scaled=dtype.is_floating_point, pieces=self._pieces, dtype=dtype)
            model = made.SerializeToString()
            self._known[key] = len(model if self.precision == "fp32" else roughly_int8(model, self.net.input_shape))
        return self._known[key]

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces()

    @cached_property
    def _estimate(self) -> AdditiveCost:
        """Tensors as they are stored, and the rest of the full network's file shared out over what holds it.

        In a float32 file every edge has about the same share, of a converted model every call; in an int8 file every
        layer with weights has. The tensors of a bundle are exact for every set of units.
        """
        net, graph = self.net, self.net.graph
        others = nn.ModuleList([net.stem, net.head, *net.activations])
        fixed, own = self._tensor_bytes(others), self._share(others) if self.precision == "int8" else 1.0
        if net.prelude is not None:
            fixed, own = fixed + self._tensor_bytes(net.prelude.body), own + _calls(net.prelude.body)
        tensors = [self._polynomial(module) for module in net.edge_modules]
        everything = [polynomial(_all_units(polynomial)) for polynomial in tensors]
        shares = [self._share(module) for module in net.edge_modules]
        structure = (self._export(graph.full) - fixed - math.fsum(everything)) / (math.fsum(shares) + own)
        edges, bundles = _numbers([float(len(edge.name) + 5) for edge in graph.edges]), []
        for operation, polynomial, full, share in zip(graph.operations, tensors, everything, shares, strict=True):
            if operation.bundle:
                bundles.append(BundleCost(operation.axes, polynomial, structure * share))
            else:
                edges[operation.edges[0]] += full + structure * share
        base = fixed + structure * own + DESCRIPTION + CERTIFICATE
        return AdditiveCost(graph, base, edges, torch.zeros(len(graph.nodes)).double(), bundles=tuple(bundles))

    def _polynomial(self, module: nn.Module) -> Polynomial:
        """The bytes of a module's tensors in the file, for every set of units if it is a bundle."""
        if not isinstance(module, Region):
            return Polynomial((), ((self._tensor_bytes(module), ()),))
        gone = _folded_tensors(module.body)
        return module.tensor_counts(lambda tensor: 0.0 if id(tensor) in gone else self._stored(tensor))

    def _tensor_bytes(self, module: nn.Module) -> float:
        folded = fold(nn.ModuleList([module]))
        if self.precision == "fp32":
            return math.fsum(self._stored(tensor) for tensor in folded.state_dict().values())
        return math.fsum(self._stored(tensor) for tensor in folded.parameters())

    def _stored(self, tensor: Tensor) -> float:
        """The bytes of a tensor in the file.

        In an int8 file a weight is a byte; each channel has a scale and a zero point of its weights and of its bias,
        and the bias, int32.
        """
        if self.precision == "fp32":
            return float(tensor.numel() * tensor.element_size())
        return float(tensor.numel()) * (17 if tensor.dim() == 1 else 1)

    def _share(self, module: nn.Module) -> float:
        """How much of a file's structure a module has, against others."""
        if self.precision == "fp32":
            return _calls(module.body) if isinstance(module, Region) else 1.0
        return float(sum(tensor.dim() > 1 for tensor in module.parameters())) + 0.1


def file_size(net: SuperNetwork, precision: str = "fp32") -> FileSize:
    """Bytes of the exported ONNX file, certificate included.

    Args:
        net: The super network.
        precision: fp32, or int8 for the quantised file.

    Returns:
        The cost: an architecture in, bytes out.
    """
    return FileSize(net, precision)


def _numbers(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _all_units(polynomial: Polynomial) -> Keeps:
    return tuple((True,) * axis.units for axis in polynomial.axes)


def _calls(body: fx.GraphModule) -> float:
    """The calls of a graph that its file has a node for, about."""
    return float(sum(node.op.startswith("call") for node in body.graph.nodes) - len(folded_calls(body)))


def _folded_tensors(body: fx.GraphModule) -> set[int]:
    """The tensors (by id) that a file does not hold: of a batch norm that is folded, all but one become the bias."""
    gone: set[int] = set()
    for before, node in folded_calls(body):
        layer, norm = (body.get_submodule(str(call.target)) for call in (before, node))
        kept = norm._buffers["running_mean"]
        gone |= {id(tensor) for tensor in [*norm.parameters(), *norm.buffers()] if tensor is not kept}
        gone |= {id(tensor) for tensor in [layer._parameters.get("bias")] if tensor is not None}
    return gone
