"""The inputs of a network as one argument: a tensor, or a tuple or dict of tensors, examples first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from budgetnet.errors import UserError

Inputs = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""What a network is given; a tuple stands for positional arguments, a dict for named ones."""


@dataclass(frozen=True)
class InputSpec:
    """What inputs look like: their names, and the shape of one example and the type of each.

    Args:
        kind: `tensor`, `tuple` or `dict`.
        names: The names of the arguments.
        shapes: The shape of one example of each.
        dtypes: The type of each.
        main: Which of them the network's first node holds; the others are side inputs.
    """

    kind: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    main: int = 0

    def tensors(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """The tensors in the order of `names`; inputs of another kind are refused."""
        if isinstance(inputs, Tensor):
            found: tuple[Tensor, ...] = (inputs,)
        elif isinstance(inputs, Mapping):
            if set(inputs) != set(self.names):
                raise UserError(
                    f"the network takes the inputs {', '.join(self.names)}, not {', '.join(map(str, inputs)) or 'none'}"
                    "; give those that it was converted with"
                )
            found = tuple(inputs[name] for name in self.names)
        else:
            found = tuple(inputs)
        if len(found) != len(self.names):
            raise UserError(
                f"the network takes {len(self.names)} inputs ({', '.join(self.names)}), not {len(found)}; give those "
                "that it was converted with"
            )
        return found

    def pack(self, tensors: Sequence[Tensor]) -> Inputs:
        """Tensors in the order of `names` as the one argument that the network takes."""
        if self.kind == "dict":
            return dict(zip(self.names, tensors, strict=True))
        return tensors[0] if self.kind == "tensor" else tuple(tensors)

    def example(self, batch: int = 2, device: str = "meta") -> Inputs:
        """Inputs of zeros."""
        pairs = zip(self.shapes, self.dtypes, strict=True)
        return self.pack([torch.zeros((batch, *shape), dtype=dtype, device=device) for shape, dtype in pairs])


class Prelude(nn.Module):
    """What is computed first, from all inputs: values that several edges read beside their source, such as a mask.

    Args:
        spec: The inputs.
        body: A graph from all inputs to a tuple of side values.
        by_example: For each side value, whether it has a row for each example.
    """

    def __init__(self, spec: InputSpec, body: fx.GraphModule, by_example: Sequence[bool]) -> None:
        super().__init__()
        self.spec, self.body, self.by_example = spec, body, tuple(by_example)

    def forward(self, inputs: Inputs) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The value of the first node, and the side values."""
        tensors = self.spec.tensors(inputs)
        return tensors[self.spec.main], tuple(self.body(*tensors))
