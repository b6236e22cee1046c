"""Down-sampling: exact area means for images, the nearest pixel for label maps."""

from __future__ import annotations

import torch
from torch import Tensor

_CHUNK = 1024
"""Images resized at a time: bounds the memory taken by floating-point copies."""


def area(images: Tensor, size: int) -> Tensor:
    """uint8 images …×H×W as …×size×size, each pixel the mean over the area that it covers."""
    height, width = images.shape[-2:]
    if (height, width) == (size, size):
        return images
    if images.dim() == 4 and len(images) > _CHUNK:
        return torch.cat([area(images[i : i + _CHUNK], size) for i in range(0, len(images), _CHUNK)])
    rows, columns = _overlaps(height, size), _overlaps(width, size)
    return (rows @ images.to(torch.float32) @ columns.T).round().clamp(0, 255).to(torch.uint8)


def nearest(maps: Tensor, size: int) -> Tensor:
    """Label maps …×H×W as …×size×size, each pixel the label at its centre."""
    height, width = maps.shape[-2:]
    return maps[..., _centres(height, size)[:, None], _centres(width, size)]


def _overlaps(source: int, target: int) -> Tensor:
    """target×source weights: the share of each target cell that each source cell covers."""
    low = torch.arange(target, dtype=torch.float64)[:, None] * source / target
    high = low + source / target
    cells = torch.arange(source, dtype=torch.float64)
    covered = (torch.minimum(high, cells + 1) - torch.maximum(low, cells)).clamp(min=0)
    return (covered * target / source).to(torch.float32)


def _centres(source: int, target: int) -> Tensor:
    return (2 * torch.arange(target) + 1) * source // (2 * target)
