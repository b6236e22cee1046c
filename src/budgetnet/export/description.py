"""What a model file says about itself, apart from its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError

SCALED = "inputs in [0, 1] are scaled to [-1, 1] inside"
PLAIN = "none"


@dataclass(frozen=True)
class Description:
    """Where a network comes from, what it takes and gives, and its certificate; kept in the file's metadata."""

    space: str
    architecture: str
    """As `Architecture.to_json` writes it."""
    input_shape: tuple[int, ...]
    labels: tuple[str, ...]
    task: str = "classification"
    scaled: bool = True
    """Whether the file takes inputs in [0, 1] and scales them to the [−1, 1] that the network was trained on."""
    certificate: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of_run(space: str, architecture: str, data: Mapping[str, Any], certificate: Mapping[str, Any]) -> Description:
        """The network of a run, whose `data` are what its data.json holds."""
        shape, classes = tuple(data["input_shape"]), tuple(data["classes"])
        return Description(space, architecture, shape, classes, data["task"], data["scaling"] == "[-1,1]", certificate)

    def label(self, number: int) -> str:
        """The name of a class, or its number where it has none."""
        return self.labels[number] if number < len(self.labels) else str(number)

    def to_strings(self) -> dict[str, str]:
        """As a map of texts, which every format can hold."""
        return {
            "space": self.space,
            "architecture": json.dumps(json.loads(self.architecture)),
            "input_shape": json.dumps(self.input_shape),
            "labels": json.dumps(self.labels),
            "task": self.task,
            "normalisation": SCALED if self.scaled else PLAIN,
            "certificate": json.dumps(dict(self.certificate)),
        }

    @staticmethod
    def from_strings(texts: Mapping[str, str], path: Path | str) -> Description:
        """What `to_strings` made; `path` is for the message if it is not that."""
        try:
            return Description(
                texts["space"],
                texts["architecture"],
                tuple(json.loads(texts["input_shape"])),
                tuple(json.loads(texts["labels"])),
                texts["task"],
                texts["normalisation"] == SCALED,
                json.loads(texts["certificate"]),
            )
        except (KeyError, ValueError, TypeError):
            raise UserError(f"{path} does not describe itself as budgetnet's models do; export it again") from None
