"""What a user's own code hears of a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Callback:
    """Called at the end of steps, epochs and phases. Override what you need; the default does nothing.

    The values of steps come when a record is due, for all steps since the one before: to read them after each step
    would wait for the device.
    """

    def step_ended(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """For every training step.

        Args:
            phase: The name of the phase.
            step: Its number in the phase.
            values: Its loss, metric and learning rate.
        """

    def epoch_ended(self, phase: str, step: int, values: Mapping[str, Any]) -> None:
        """After an epoch.

        Args:
            phase: The name of the phase.
            step: The number of its last step in the phase.
            values: Its mean values and validation scores.
        """

    def phase_ended(self, phase: str) -> None:
        """After a phase.

        Args:
            phase: Its name.
        """
