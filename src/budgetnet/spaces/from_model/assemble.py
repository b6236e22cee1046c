"""The graph of a super network from the branches of a model: fixed edges, droppable edges, and bundles of units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import fx, nn

from budgetnet.errors import UserError
from budgetnet.network.graph import Edge, Graph
from budgetnet.spaces.from_model.axes import find_axes, main_values, tied_layers
from budgetnet.spaces.from_model.build import Builder
from budgetnet.spaces.from_model.cut import Branch, Cutter, Piece, by_example
from budgetnet.spaces.from_model.labels import Labels
from budgetnet.spaces.from_model.lift import Lifted
from budgetnet.spaces.from_model.trace import path_of

SOURCE = "input"


@dataclass
class Assembly:
    """Edges, their modules, chains of bundles, and names that are taken."""

    builder: Builder
    activated: dict[fx.Node, fx.Node]
    edges: list[Edge] = field(default_factory=list)
    modules: dict[str, nn.Module] = field(default_factory=dict)
    chains: list[tuple[str, ...]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)

    def name(self, wish: str) -> str:
        """A name that no other edge or bundle has."""
        found, attempt = wish, 1
        while found in self.names:
            attempt += 1
            found = f"{wish}_{attempt}"
        self.names.add(found)
        return found

    def branch(self, branch: Branch) -> None:
        """The edges of a branch; its first piece without axes, or an identity at the end, is what is dropped."""
        start, last = node_name(branch.start), node_name(self.activated.get(branch.target, branch.target))
        if not branch.pieces:
            self._edge(Edge(self.name(f"{last}.skip"), start, last, fixed=True), nn.Identity())
            return
        plain = next((piece for piece in branch.pieces if not piece.axes), None)
        path = common_path(branch.nodes) or last
        ends = [*(node_name(piece.end, ".0") for piece in branch.pieces[:-1]), last]
        gate = self.name(f"{path}.branch") if branch.droppable else ""
        if branch.droppable and plain is None:
            ends[-1] = f"{gate}.end"
        for piece, end in zip(branch.pieces, ends, strict=True):
            if piece.axes:
                self._bundles(piece, start, end)
            else:
                kept = not branch.droppable or piece is not plain
                wish = common_path(piece.nodes) or piece.end.name
                edge = Edge(self.name(wish) if kept else gate, start, end, fixed=kept)
                self._edge(edge, self.builder.region(piece, str))
            start = end
        if branch.droppable and plain is None:
            self._edge(Edge(gate, start, last), nn.Identity())

    def _edge(self, edge: Edge, module: nn.Module) -> None:
        self.edges.append(edge)
        self.modules[edge.name] = module

    def _bundles(self, piece: Piece, start: str, end: str) -> None:
        """A bundle for each axis, one after the other: each needs a unit at least."""
        names = {axis.number: self.name(str(axis.makers[0].target)) for axis in piece.axes}
        chain = tuple(names.values())
        for place, axis in enumerate(piece.axes):
            bundle = names[axis.number]
            target = end if place == len(piece.axes) - 1 else f"{bundle}.units"
            units = range(len(axis.bounds) - 1)
            self.edges += [Edge(self.name(f"{bundle}[{u}]"), start, target, bundle=bundle) for u in units]
            start = target
        self.modules[chain[0]] = self.builder.region(piece, lambda axis: names[axis.number])
        if len(chain) > 1:
            self.chains.append(chain)


def node_name(node: fx.Node, ending: str = "") -> str:
    """The name of a value as a node of the graph."""
    return SOURCE if node.op == "placeholder" else node.name + ending


def common_path(nodes: Sequence[fx.Node]) -> str:
    """The path of the innermost module that contains all layers of these calls."""
    paths = [str(node.target) if node.op == "call_module" else path_of(node) for node in nodes]
    paths = [path for path in paths if path]
    if not paths:
        return ""
    parts = paths[0].split(".")
    for path in paths[1:]:
        other = path.split(".")
        parts = [a for i, a in enumerate(parts) if parts[: i + 1] == other[: i + 1]]
    return ".".join(parts)


def main_input(lifted: Lifted) -> int:
    """The input that most weights depend on; the first of several."""
    inputs = [node for node in lifted.graph.nodes if node.op == "placeholder"]

    def weights(node: fx.Node) -> int:
        names = {str(n.target) for n in reached_from(node) if n.op == "call_module"}
        return sum(parameter.numel() for name in names for parameter in lifted.layers[name].parameters())

    return max(range(len(inputs)), key=lambda i: (weights(inputs[i]), -i))


def reached_from(node: fx.Node) -> set[fx.Node]:
    """Everything that is computed from a value."""
    found, stack = {node}, [node]
    while stack:
        for user in stack.pop().users:
            if user not in found:
                found.add(user)
                stack.append(user)
    return found


def needed_for(node: fx.Node) -> set[fx.Node]:
    """Everything that a value is computed from, and itself."""
    found, stack = {node}, [node]
    while stack:
        for argument in stack.pop().all_input_nodes:
            if argument not in found:
                found.add(argument)
                stack.append(argument)
    return found


@dataclass(frozen=True)
class Converted:
    """What the conversion found."""

    graph: Graph
    modules: dict[str, nn.Module]
    builder: Builder
    reasons: dict[str, str]
    activations: dict[str, nn.Module]


def assemble(lifted: Lifted, slices: int, round_to: int | None, ignore: Sequence[str]) -> Converted:
    """The graph and the modules of the super network; a model in which nothing can be chosen is refused."""
    inputs = [node for node in lifted.graph.nodes if node.op == "placeholder"]
    output = lifted.graph.output_node().args[0]
    source = inputs[lifted.spec.main]
    main = main_values(lifted, source)
    if not isinstance(output, fx.Node) or output not in main or not by_example(output):
        raise UserError(
            "the model's output has no row for each example of its main input; give a model whose output is batch first"
        )
    main &= needed_for(output)
    labels = Labels(lifted, main, ignore)
    axes, reasons = find_axes(lifted, labels, slices, round_to)
    cutter = Cutter(lifted, main, {*ignore, *tied_layers(lifted)})
    branches = cutter.branches()
    for axis in cutter.pieces(branches, axes):
        for maker in axis.makers:
            reasons.setdefault(str(maker.target), "its channels are part of the stream between blocks")
    pieces = [piece for branch in branches for piece in branch.pieces]
    builder = Builder(lifted, labels, pieces, source)
    assembly = Assembly(builder, cutter.activated)
    for branch in branches:
        assembly.branch(branch)
    activations: dict[str, nn.Module] = {node_name(value): nn.ReLU() for value in cutter.activated.values()}
    if all(edge.fixed for edge in assembly.edges):
        why = next(iter(reasons.items()), None)
        because = f" ({why[0]}: {why[1]})" if why else ""
        raise UserError(
            f"nothing in the model can be dropped or narrowed{because}; use a model with residual branches or with "
            "pairs of layers whose hidden channels nothing else reads"
        )
    return Converted(Graph(assembly.edges, assembly.chains), assembly.modules, builder, reasons, activations)
