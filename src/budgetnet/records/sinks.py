"""Records in other people's tools. A sink has two methods, `write` and `close`: another tool is ten lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.records.records import Record


class TensorBoard:
    """Writes scalars, the phases as text, and edge probabilities as a histogram, to a TensorBoard log folder."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = _summary_writer()(log_dir=str(folder))

    def write(self, record: Record) -> None:
        """Takes one record. Steps count from the start of a phase, so each phase has scalars of its own."""
        if record.kind == "phase":
            self._writer.add_text(f"{record.phase}/phase", f"begins after {record.time:.0f} s", record.step)
        for name, value in record.values.items():
            if name == "probabilities":
                self._writer.add_histogram(f"{record.phase}/{name}", _array(value), record.step)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self._writer.add_scalar(f"{record.phase}/{record.kind}/{name}", value, record.step)
        if record.kind != "step":
            self._writer.flush()

    def close(self) -> None:
        """Flushes and closes."""
        self._writer.close()


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("TensorBoard is not installed; run: pip install 'budgetnet[track]'") from None
    return SummaryWriter


def _array(values: Any) -> Any:
    import numpy as np

    return np.asarray(values, dtype=np.float32)
