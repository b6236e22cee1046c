"""The modules on the edges of the built-in spaces: plain torch, so that an extracted network needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from budgetnet.errors import UserError

Side = tuple[int, int]

LARGEST = 2**16
MOST_EDGES = 20_000
MOST_WEIGHTS = 2**32


def conv_bn(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """Convolution (with bias, as in the paper's parameter counts) and batch norm, He-initialised."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(conv.bias)  # type: ignore[arg-type]  # bias=True above
    return [conv, nn.BatchNorm2d(outputs)]


def stem(inputs: int, outputs: int) -> nn.Module:
    """conv3×3-BN-ReLU at the input's resolution."""
    return nn.Sequential(*conv_bn(inputs, outputs), nn.ReLU(inplace=True))


def residual_block(inputs: int, outputs: int, stride: int) -> nn.Module:
    """conv3×3(stride)-BN-ReLU-conv3×3-BN: a ResNet's basic block without its shortcut."""
    return nn.Sequential(*conv_bn(inputs, outputs, stride=stride), nn.ReLU(inplace=True), *conv_bn(outputs, outputs))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Identity, or conv1×1(stride)-BN where the shape changes."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(*conv_bn(inputs, outputs, kernel=1, stride=stride))


def fabric_edge(filters: int, source: Side, target: Side) -> nn.Module:
    """conv3×3-BN: plain, with stride 2 to a coarser scale, after nearest up-sampling to a finer one."""
    if source == target:
        return nn.Sequential(*conv_bn(filters, filters))
    if target > source:
        return nn.Sequential(nn.Upsample(size=target, mode="nearest"), *conv_bn(filters, filters))
    return nn.Sequential(*conv_bn(filters, filters, stride=2))


def scales(input_shape: Sequence[int], count: int, what: str) -> list[Side]:
    """The height and width at each scale; a side halves to its ceiling, and two neighbours may not be equal."""
    if len(input_shape) != 3 or min(input_shape) < 1:
        given = "x".join(map(str, input_shape))
        raise UserError(f"an image input is channels×height×width, such as 3x32x32, not {given}")
    sides = [(input_shape[1], input_shape[2])]
    for _ in range(count - 1):
        height, width = sides[-1]
        sides.append(((height + 1) // 2, (width + 1) // 2))
        if sides[-1] == sides[-2]:
            raise UserError(
                f"an input of {input_shape[1]}×{input_shape[2]} is too small for {count} {what}: it is down to "
                f"{height}×{width} after {len(sides) - 1}; use at most {len(sides) - 1} {what} or a larger input"
            )
    return sides


def positive(**values: int) -> None:
    """Refuses sizes below one, or beyond any network that could be trained, with the name of the parameter."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{name}={value!r:.40} is not a positive whole number; give 1 or more")
        if value > LARGEST:
            raise UserError(f"{name}={value!r:.40} is more than {LARGEST}; give a smaller number")


def affordable(edges: int, weights: int) -> None:
    """Refuses a super network by its size before it is built: a text in a file may ask for any."""
    if edges > MOST_EDGES or weights > MOST_WEIGHTS:
        raise UserError(
            f"the super network would have about {edges} edges and {weights:.3g} weights, more than {MOST_EDGES} or "
            f"{MOST_WEIGHTS:.3g}; make it smaller"
        )
