"""What can be chosen in a super network, as a table: kind, units, multiply-adds and parameters of every operation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn
from torch.utils.flop_counter import FlopCounterMode

from budgetnet.naming.html import table
from budgetnet.network.graph import Graph
from budgetnet.network.inputs import InputSpec, Prelude
from budgetnet.network.meta import on_meta
from budgetnet.network.slices import Region


class Described(Protocol):
    """What of a super network is described."""

    name: str
    graph: Graph
    inputs: InputSpec
    prelude: Prelude | None
    stem: nn.Module
    head: nn.Module
    edge_modules: nn.ModuleList
    activations: nn.ModuleList
    reasons: dict[str, str]


class _Counting(fx.Interpreter):
    """Runs a graph on the meta device and notes the multiply-adds of every call."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.work: dict[str, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        with FlopCounterMode(display=False) as counter:
            result = super().run_node(n)
        flops = counter.get_total_flops()
        if flops:
            self.work[n.name] = flops / 2
        return result


def work_by_call(net: Described) -> list[dict[str, float]]:
    """For every operation, the multiply-adds of each of its calls (by name) on one example, with everything kept."""
    inputs = net.inputs.example(1)
    main, sides = (net.inputs.tensors(inputs)[0], ()) if net.prelude is None else on_meta(net.prelude, inputs)
    values: dict[int, Any] = {0: on_meta(net.stem, main)}
    found: list[dict[str, float]] = [{} for _ in net.graph.operations]
    order = sorted(range(len(found)), key=lambda i: net.graph.operations[i].target)
    for number in order:
        operation, module = net.graph.operations[number], net.edge_modules[number]
        given = values[operation.source]
        if isinstance(module, Region):
            found[number], output = _counted(module, [given, *(sides[i] for i in module.sides)])
        else:
            with FlopCounterMode(display=False) as counter:
                output = on_meta(module, given)
            found[number] = {operation.name: counter.get_total_flops() / 2}
        if operation.target not in values:
            values[operation.target] = on_meta(net.activations[operation.target], output)
    return found


def _counted(region: Region, inputs: list[Tensor]) -> tuple[dict[str, float], Any]:
    holder = _OnMeta(region)
    output = on_meta(holder, *inputs)
    return holder.work, output


class _OnMeta(nn.Module):
    def __init__(self, region: Region) -> None:
        super().__init__()
        self.body = region.body
        self.work: dict[str, float] = {}

    def forward(self, *inputs: Tensor) -> Any:
        counting = _Counting(self.body)
        output = counting.run(*inputs)
        self.work = counting.work
        return output


@dataclass(frozen=True)
class Row:
    """One operation of a super network; `goes` are the multiply-adds and parameters that go with a branch."""

    place: str
    kind: str
    units: int
    macs: float
    params: float
    reason: str = ""
    goes: tuple[float, float] | None = None


@dataclass(frozen=True)
class Summary:
    """What can be chosen: a row for every operation that computes something, and the number of architectures."""

    name: str
    rows: tuple[Row, ...]
    choices: int
    macs: float
    params: float

    @property
    def free_share(self) -> float:
        """The share of the multiply-adds that lies in what can be dropped or narrowed."""
        return sum(row.macs for row in self.rows if row.kind != "fixed") / max(1.0, self.macs)

    def to_json(self) -> dict[str, Any]:
        """For JSON, with shares."""
        rows = [
            {
                **dataclasses.asdict(row),
                "share_of_macs": row.macs / max(1.0, self.macs),
                "share_of_params": row.params / max(1.0, self.params),
            }
            for row in self.rows
        ]
        return {
            "name": self.name,
            "macs": self.macs,
            "params": self.params,
            "free_share": self.free_share,
            "choices": self.choices,
            "architectures": f"about 10^{self.choices * math.log10(2):.0f}",
            "rows": rows,
        }

    @property
    def headline(self) -> str:
        """The size of the full network, and how much of it is free."""
        return (
            f"{self.name}: {self.macs / 1e6:.3g}M multiply-adds, {self.params / 1e6:.3g}M parameters, "
            f"{100 * self.free_share:.0f} % of the multiply-adds can be dropped or narrowed"
        )

    def shares(self, row: Row) -> tuple[float, float]:
        """What an operation, or all that goes with a branch, has of the multiply-adds and parameters, in percent."""
        macs, params = row.goes or (row.macs, row.params)
        return 100 * macs / max(1.0, self.macs), 100 * params / max(1.0, self.params)

    def __str__(self) -> str:
        lines = [self.headline, f"about 10^{self.choices * math.log10(2):.0f} architectures ({self.choices} choices)"]
        width = max(len(row.place) for row in self.rows)
        lines.append(f"{'place':{width}}  {'kind':10} units   macs  params")
        for row in self.rows:
            macs, params = self.shares(row)
            line = f"{row.place:{width}}  {row.kind:10} {row.units or '':>5} {macs:5.1f}% {params:6.1f}%"
            lines.append(f"{line}  {row.reason}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = [
            (row.place, row.kind, row.units or "", *(f"{share:.1f} %" for share in self.shares(row)), row.reason)
            for row in self.rows
        ]
        return table(rows, ("place", "kind", "units", "multiply-adds", "parameters", ""), self.headline)


def describe(net: Described, reasons: Mapping[str, str] | None = None) -> Summary:
    """What can be dropped or narrowed in a super network, with its share of multiply-adds and parameters."""
    reasons = net.reasons if reasons is None else reasons
    rows = []
    spared = _spared(net)
    works = work_by_call(net)
    for operation, module, work in zip(net.graph.operations, net.edge_modules, works, strict=True):
        params = float(sum(parameter.numel() for parameter in module.parameters()))
        macs = sum(work.values())
        edge = net.graph.edges[operation.edges[0]]
        kind = "bundle" if operation.bundle else "branch" if not edge.fixed else "fixed"
        if kind == "fixed" and bool(spared[operation.edges[0]]):
            kind = "in branch"
        if not (kind in ("fixed", "in branch") and not macs and not params):
            names = module.axes if isinstance(module, Region) else ()
            place = ", ".join(axis.name for axis in names) or operation.name
            why = next((reasons[key] for key in _layers(module) if key in reasons), "") if kind == "fixed" else ""
            goes = _goes(net, operation.edges[0], works) if kind == "branch" else None
            rows.append(Row(place, kind, len(operation.edges) if operation.bundle else 0, macs, params, why, goes))
    ends = [part for part in (net.prelude, net.stem, net.head) if part is not None]
    total = sum(row.params for row in rows) + sum(p.numel() for part in ends for p in part.parameters())
    choices = int((~net.graph.fixed).sum())
    return Summary(net.name, tuple(rows), choices, sum(row.macs for row in rows), float(total))


def _goes(net: Described, edge: int, works: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """The multiply-adds and parameters of everything that is dead without an edge."""
    row = torch.ones(1, len(net.graph.edges), dtype=torch.bool)
    row[0, edge] = False
    live = net.graph.live(row)[0].tolist()
    macs = params = 0.0
    for operation, module, work in zip(net.graph.operations, net.edge_modules, works, strict=True):
        if not any(live[unit] for unit in operation.edges):
            macs += sum(work.values())
            params += sum(parameter.numel() for parameter in module.parameters())
    return macs, params


def _spared(net: Described) -> Tensor:
    """For every edge, whether a connected architecture that lacks only one choice does without it."""
    free = (~net.graph.fixed).nonzero().flatten()
    rows = torch.ones(len(free), len(net.graph.edges), dtype=torch.bool)
    rows[torch.arange(len(free)), free] = False
    live = net.graph.live(rows)
    connected = live[live.any(1)]
    return ~connected.all(0) if len(connected) else torch.zeros(len(net.graph.edges), dtype=torch.bool)


def _layers(module: nn.Module) -> list[str]:
    if not isinstance(module, Region):
        return []
    return [str(node.target) for node in module.body.graph.nodes if node.op == "call_module"]
