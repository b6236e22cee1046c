"""Segmentation: the U-Net of the tests on Part Labels at 64×64, trained, and then at half of its multiply-adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.trained import macs
from benchmarks.trained.study import SELF, Protocol, Study

PROTOCOL = Protocol("lfw-parts:size=64", before=40.0, after=120.0)
"""So few channels take long to learn: with 40 epochs uniform widths had 0.3 points less on validation data."""
POINTS = 0.5
"""Points of pixel accuracy that the smaller network may lose."""


class Faces(Study):
    """The study with the U-Net in the ResNet's place."""

    @property
    def batch(self) -> int:
        """Fewer images than CIFAR has need smaller batches."""
        return 32

    def known(self, **more: Any) -> dict[str, Any]:
        """See `Study`."""
        protocol = self.protocol
        return {"data": protocol.data, "model": "unet", "before": protocol.before, "after": protocol.after, **more}

    def fresh(self, seed: int) -> nn.Module:
        """See `Study`."""
        from tests.models import UNet

        torch.manual_seed(seed)
        made: nn.Module = UNet(classes=len(self.data.classes))
        return made


def run(study: Study, shares: Sequence[float], seeds: Sequence[int], contestants: Sequence[str]) -> None:
    """The search with its teacher, for every seed."""
    faces = Faces(PROTOCOL, study.ledger, study.out / "faces", study.data_root)
    for seed in seeds:
        for share in shares:
            macs.search(faces, share, seed, SELF)


def compared(study: Study) -> list[dict[str, Any]]:
    """Pixel accuracy of the full network and of the small one, in percent, for every seed."""
    faces = Faces(PROTOCOL, study.ledger, study.out, study.data_root)
    full = {entry["seed"]: entry["test"] for entry in faces.entries(contestant="full")}
    rows = []
    for entry in faces.entries(contestant="ours"):
        lost = 100 * (full[entry["seed"]] - entry["test"])
        row = {"seed": entry["seed"], "limit": entry["limit"], "full": 100 * full[entry["seed"]]}
        rows.append({**row, "small": 100 * entry["test"], "lost": lost, "bar": POINTS, "met": lost <= POINTS})
    return rows
