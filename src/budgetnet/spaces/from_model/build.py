"""Pieces of a model as regions: graphs of their own, with what must shrink where an axis is narrowed."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from budgetnet.network.axes import Axis, Count, Cut, LayerCuts
from budgetnet.network.inputs import Prelude
from budgetnet.network.slices import Path, Region, plain_layer
from budgetnet.spaces.from_model.axes import Found, count_of, multiplies
from budgetnet.spaces.from_model.cut import Piece
from budgetnet.spaces.from_model.labels import Labels, number
from budgetnet.spaces.from_model.lift import Lifted
from budgetnet.spaces.from_model.trace import operation

aten = torch.ops.aten


class Builder:
    """Makes the regions of all pieces, and the prelude that computes what several of them read besides their source."""

    def __init__(self, lifted: Lifted, labels: Labels, pieces: Sequence[Piece], main: fx.Node) -> None:
        self.lifted, self.labels = lifted, labels
        self.main = set(labels.main)
        self.piece_of = {node: piece for piece in pieces for node in piece.nodes}
        self.placeholders = [node for node in lifted.graph.nodes if node.op == "placeholder"]
        self._input_made = self._from_inputs()
        self._owners = self._find_owners()
        self.sides = self._find_sides()

    def _from_inputs(self) -> set[fx.Node]:
        """Values beside the main ones that depend on the inputs, by more than the batch size."""
        found = set(self.placeholders)
        for node in self.lifted.graph.nodes:
            beside = node.op.startswith("call") and node not in self.main and not _is_size(node)
            if beside and not _made_new(node) and any(argument in found for argument in node.all_input_nodes):
                found.add(node)
        return found

    def _find_owners(self) -> dict[fx.Node, set[Piece | None]]:
        """For values beside the main ones, the pieces that need them; None is the prelude."""
        owners: dict[fx.Node, set[Piece | None]] = {}
        for node in reversed(list(self.lifted.graph.nodes)):
            if node in self.main or node.op == "output" or _is_size(node):
                continue
            found: set[Piece | None] = set()
            for user in node.users:
                if user in self.piece_of:
                    found.add(self.piece_of[user])
                elif user in owners:
                    found |= {None} if user in self._input_made or len(owners[user]) > 1 else owners[user]
            owners[node] = found
        return owners

    def _local(self, node: fx.Node) -> bool:
        owners = self._owners.get(node, set())
        return node not in self._input_made and len(owners) == 1 and None not in owners

    def _find_sides(self) -> list[fx.Node]:
        """The values that the prelude hands over, in order."""
        found: dict[fx.Node, None] = {}
        for node in self.lifted.graph.nodes:
            if node in self.main or node.op == "output" or _is_size(node) or self._local(node):
                continue
            if any(user in self.piece_of or (user in self._owners and self._local(user)) for user in node.users):
                found[node] = None
        return list(found)

    def prelude(self) -> Prelude:
        """The module that computes the side values from the inputs."""
        graph = fx.Graph()
        known: dict[fx.Node, Any] = {node: graph.placeholder(node.name) for node in self.placeholders}
        emit = _Emitter(self, graph, known, known[self.placeholders[self.lifted.spec.main]])
        outputs = tuple(emit.value(node) for node in self.sides)
        graph.output(outputs)
        by_example = [_batch_first(node) for node in self.sides]
        return Prelude(self.lifted.spec, fx.GraphModule(emit.holder, graph), by_example)

    def region(self, piece: Piece, names: Callable[[Found], str]) -> Region:
        """The region of a piece; `names` gives the name of an axis's bundle."""
        graph = fx.Graph()
        x = graph.placeholder("x")
        known: dict[fx.Node, Any] = {piece.start: x}
        needed = [side for side in self.sides if self._reads(piece, side)]
        for i, side in enumerate(needed):
            known[side] = graph.placeholder(f"side_{i}")
        emit = _Emitter(self, graph, known, x, piece)
        for node in piece.nodes:
            emit.value(node)
        graph.output(known[piece.end])
        body = fx.GraphModule(emit.holder, graph)
        axes = [Axis(names(axis), axis.bounds, axis.channels) for axis in piece.axes]
        numbers = [self.sides.index(side) for side in needed]
        return Region(body, numbers, axes, emit.cuts, emit.sizes, emit.factors, emit.picks)

    def _reads(self, piece: Piece, side: fx.Node) -> bool:
        return any(
            self.piece_of.get(user) is piece
            or (user in self._owners and self._local(user) and piece in self._owners[user])
            for user in side.users
        )


class _Emitter:
    """Copies calls into a graph, with everything that they need."""

    def __init__(
        self, builder: Builder, graph: fx.Graph, known: dict[fx.Node, Any], x: fx.Node, piece: Piece | None = None
    ) -> None:
        self.builder, self.graph, self.known, self.x, self.piece = builder, graph, known, x, piece
        self.holder: dict[str, Any] = {}
        self.cuts: dict[str, LayerCuts] = {}
        self.sizes: dict[str, dict[Path, Count]] = {}
        self.factors: dict[str, tuple[Count, ...]] = {}
        self.picks: dict[str, dict[Path, tuple[int, Cut]]] = {}
        self.axes = piece.axes if piece is not None else []
        self.numbers = {axis.number: i for i, axis in enumerate(self.axes)}
        self._batch: fx.Node | None = None

    def value(self, node: fx.Node) -> Any:
        """The copy of a node, made if it is not there yet."""
        if node in self.known:
            return self.known[node]
        if isinstance(node.meta.get("val"), torch.SymInt):
            new: Any = self._symbol(node)
        elif node.op == "get_attr":
            self.holder[str(node.target)] = self.builder.lifted.tensors[str(node.target)]
            new = self.graph.get_attr(str(node.target))
        else:
            new = self._call(node)
        self.known[node] = new
        return new

    def _call(self, node: fx.Node) -> fx.Node:
        for argument in node.all_input_nodes:
            beside = _made_new(node) and argument is node.args[0]
            if not beside and not (isinstance(argument.meta.get("val"), torch.SymInt) and _sized(node)):
                self.value(argument)
        sizes = _sized(node)
        args = fx.map_arg(node.args, lambda old: self.known.get(old, old))
        kwargs = fx.map_arg(node.kwargs, lambda old: self.known.get(old, old))
        values = {path: self._size(of, dim) for path, (of, dim) in sizes.items()}
        arguments = [_listed(argument) for argument in args]
        if _made_new(node):
            arguments[0] = self.x
        for path, (value, _) in values.items():
            _put(arguments, path, value)
        new = self.graph.create_node(node.op, node.target, tuple(arguments), kwargs, name=node.name)
        counts = {path: count for path, (value, count) in values.items() if isinstance(value, int) and count.per_block}
        counts |= self._slice(node)
        if counts:
            self.sizes[new.name] = counts
        self._beside(node, new)
        if node.op == "call_module":
            self._layer(node)
        elif multiplies(node):
            dims = enumerate(node.meta["val"].shape)
            found = [count_of(self.axes, node, dim, number(size), self.numbers) for dim, size in dims]
            self.factors[new.name] = tuple(count for count in found if count.per_block)
        return new

    def _size(self, of: fx.Node, dim: int) -> tuple[Any, Count]:
        """The size of a dimension: a number, or a multiple of the batch size."""
        size = of.meta["val"].shape[dim]
        count = count_of(self.axes, of, dim, number(size), self.numbers)
        if isinstance(size, int):
            return size, count
        if number(size) == 1 and not count.per_block:
            return self.batch(), count
        product = self.graph.call_function(operator.mul, (self.batch(), number(size)))
        if count.per_block:
            self.sizes[product.name] = {(1,): count}
        return product, count

    def batch(self) -> fx.Node:
        """The number of examples that the region is given."""
        if self._batch is None:
            with self.graph.inserting_after(list(self.graph.find_nodes(op="placeholder"))[-1]):
                self._batch = self.graph.call_function(aten.sym_size.int, (self.x, 0))
        return self._batch

    def _symbol(self, node: fx.Node) -> Any:
        """A size as a number: a multiple of the batch size, or computed as the model does."""
        if operation(node) == "sym_size":
            source, dim = node.args
            assert isinstance(source, fx.Node)
            size = source.meta["val"].shape[dim]
            times = number(size)
            return self.batch() if times == 1 else self.graph.call_function(operator.mul, (self.batch(), times))
        args = fx.map_arg(node.args, self.value)
        return self.graph.call_function(node.target, args, dict(node.kwargs))  # type: ignore[arg-type]

    def _slice(self, node: fx.Node) -> dict[Path, Count]:
        """Where a slice of narrowed channels begins and ends."""
        if operation(node) != "slice" or not self.axes:
            return {}
        source = node.args[0]
        assert isinstance(source, fx.Node)
        value = source.meta["val"]
        dim = (node.args[1] if len(node.args) > 1 else 0) % value.dim()
        cuts = [(self.numbers[a.number], a.values[source][dim]) for a in self.axes if dim in a.values.get(source, {})]
        counts: dict[Path, Count] = {}
        for place, bound in list(enumerate(node.args))[2:4]:
            if cuts and isinstance(bound, int) and 0 < bound < value.shape[dim]:
                before = [(axis, int((positions < bound).sum(1)[0])) for axis, positions in cuts]
                stays = bound - sum(int((positions < bound).sum()) for _, positions in cuts)
                counts[(place,)] = Count(stays, tuple(before))
        return counts

    def _beside(self, node: fx.Node, new: fx.Node) -> None:
        """Operands that are narrowed where they are read."""
        for (call, operand), dims in ((key, dims) for axis in self.axes for key, dims in axis.beside.items()):
            if call is node:
                path: Path = next(((i,) for i, a in enumerate(node.args) if a is operand), ())
                path = path or next((key,) for key, a in node.kwargs.items() if a is operand)
                for dim in dims:
                    of = [
                        (self.numbers[a.number], a.beside[call, operand])
                        for a in self.axes
                        if (call, operand) in a.beside
                    ]
                    cut = Cut(
                        operand.meta["val"].shape[dim], tuple((n, places[dim]) for n, places in of if dim in places)
                    )
                    self.picks.setdefault(new.name, {})[path] = (dim, cut)

    def _layer(self, node: fx.Node) -> None:
        name = str(node.target)
        layer = self.holder[name] = self.builder.lifted.layers[name]
        if isinstance(layer, nn.ReLU | nn.ReLU6 | nn.Hardtanh) and self._fresh(node.args[0]):
            self.holder[name] = _in_place(layer)
        if not self.axes:
            return
        made, read = self._made(node), self._read(node)
        tensors: dict[str, dict[int, Cut]] = {}
        groups = None
        if isinstance(layer, nn.Linear):
            tensors = {"weight": _dims({0: made, 1: read}), "bias": _dims({0: made})}
        elif isinstance(layer, nn.modules.conv._ConvNd):
            outer, inner = (read, made) if layer.transposed else (made, read)
            tensors = {"weight": _dims({0: outer, 1: inner if layer.groups == 1 else None}), "bias": _dims({0: made})}
            if layer.groups > 1 and made is not None:
                size = layer.out_channels // layer.groups
                count = made.count
                groups = Count(count.base // size, tuple((axis, per // size) for axis, per in count.per_block))
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            tensors = {key: _dims({0: read}) for key in ("weight", "bias", "running_mean", "running_var")}
        elif isinstance(layer, nn.Embedding):
            tensors = {"weight": _dims({1: made})}
        elif isinstance(layer, nn.PReLU):
            tensors = {"weight": _dims({0: read})}
        present = {key: dims for key, dims in tensors.items() if dims and getattr(layer, key) is not None}
        if present:
            self.cuts[name] = LayerCuts(present, groups)

    def _fresh(self, value: Any) -> bool:
        """Whether a value is a layer's output that nobody else reads and no gradient needs: it may be written to."""
        if value.op != "call_module" or len(value.users) != 1 or self.builder.piece_of.get(value) is not self.piece:
            return False
        return plain_layer(self.builder.lifted.layers[str(value.target)])

    def _made(self, node: fx.Node) -> Cut | None:
        if node not in self.builder.labels.made:
            return None
        start, stop = self.builder.labels.made[node]
        return self._cut(torch.arange(start, stop))

    def _read(self, node: fx.Node) -> Cut | None:
        labels = self.builder.labels.reads.get(node)
        return None if labels is None else self._cut(labels)

    def _cut(self, labels: Tensor) -> Cut | None:
        parts = []
        for axis in self.axes:
            blocks = axis.table[labels]
            if bool((blocks >= 0).any()):
                positions = torch.stack([(blocks == i).nonzero().flatten() for i in range(len(axis.blocks))])
                parts.append((self.numbers[axis.number], positions))
        return Cut(len(labels), tuple(parts)) if parts else None


def _in_place(layer: nn.ReLU | nn.ReLU6 | nn.Hardtanh) -> nn.Module:
    new = copy.copy(layer)
    new.inplace = True
    return new


def _dims(cuts: Mapping[int, Cut | None]) -> dict[int, Cut]:
    return {dim: cut for dim, cut in cuts.items() if cut is not None}


def _sized(node: fx.Node) -> dict[Path, tuple[fx.Node, int]]:
    """Arguments of a call that are sizes: where they stand, and which dimension of which value they are."""
    name = operation(node)
    if node.op != "call_function":
        return {}
    if name in ("view", "reshape", "_unsafe_view", "expand", "new_zeros", "new_ones", "new_full", "new_empty"):
        return {(1, i): (node, i) for i in range(node.meta["val"].dim())}
    if name == "unflatten":
        dim = node.args[1] % node.args[0].meta["val"].dim()  # type: ignore[union-attr]
        return {(2, i): (node, dim + i) for i in range(len(node.args[2]))}  # type: ignore[arg-type]
    if name in ("split", "split_with_sizes"):
        parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        dim = (node.args[2] if len(node.args) > 2 else 0) % node.args[0].meta["val"].dim()  # type: ignore[union-attr]
        if isinstance(node.args[1], int):
            return {(1,): (parts[0], dim)} if 0 in parts else {}
        return {(1, i): (part, dim) for i, part in parts.items()}  # type: ignore[misc]
    return {}


def _put(arguments: list[Any], path: Path, value: Any) -> None:
    if len(path) == 1:
        arguments[path[0]] = value  # type: ignore[index]
    else:
        arguments[path[0]][path[1]] = value  # type: ignore[index]


def _listed(argument: Any) -> Any:
    return list(argument) if isinstance(argument, list | tuple) else argument


def _made_new(node: fx.Node) -> bool:
    """Whether a call reads a value for its device alone."""
    return operation(node) in ("new_zeros", "new_ones", "new_full", "new_empty")


def _is_size(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt)


def _batch_first(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dim() > 0 and not isinstance(value.shape[0], int)
