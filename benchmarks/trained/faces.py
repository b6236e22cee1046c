"""Segmentation: the U-Net of the tests on Part Labels at 64×64, trained, and then at half of its multiply-adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.trained import macs
from benchmarks.trained.study import SELF, Protocol, Study

PROTOCOL = Protocol("lfw-parts:size=64", before=40.0, after=80.0)
BATCH = 8
"""Few images and few channels need many steps: in trials of 40 epochs without a teacher, a network of half of the
multiply-adds had 93.9 % of the validation pixels with batches of 8 and 93.0 % with batches of 32."""
POINTS = 0.5
"""Points of pixel accuracy that the smaller network may lose."""


class Faces(Study):
    """The study with the U-Net in the ResNet's place."""

    @property
    def batch(self) -> int:
        """See `Study`; that of the full network, too."""
        return BATCH

    def known(self, **more: Any) -> dict[str, Any]:
        """See `Study`."""
        protocol = self.protocol
        shared = {"data": protocol.data, "model": "unet", "before": protocol.before, "after": protocol.after}
        return {**shared, "batch": self.batch, **more}

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
