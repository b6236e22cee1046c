"""Records as TensorBoard reads them back."""

from __future__ import annotations

from pathlib import Path

import pytest

from budgetnet.records.records import Record
from budgetnet.records.sinks import TensorBoard


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of protobuf and tensorboard, not ours
def test_scalars_phases_and_histograms_come_back(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path / "log")
    sink.write(Record("phase", "search", 0, 0, 12.0, {"epochs": 2, "steps": 8}))
    sink.write(Record("step", "search", 1, 3, 13.0, {"loss": 1.5, "cost/macs": 4e6}))
    sink.write(Record("epoch", "search", 1, 4, 14.0, {"loss": 1.25, "feasible": True, "probabilities": [0.1, 0.9]}))
    sink.write(Record("epoch", "finish", 1, 4, 15.0, {"loss": 0.5}))
    sink.close()

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "log"))
    events.Reload()
    tags = events.Tags()
    assert [(e.step, e.value) for e in events.Scalars("search/step/loss")] == [(3, 1.5)]
    assert [(e.step, e.value) for e in events.Scalars("search/step/cost/macs")] == [(3, 4e6)]
    assert [(e.step, e.value) for e in events.Scalars("search/epoch/loss")] == [(4, 1.25)]
    assert [(e.step, e.value) for e in events.Scalars("finish/epoch/loss")] == [(4, 0.5)]
    assert "search/epoch/feasible" not in tags["scalars"]
    assert [(e.step, e.histogram_value.num) for e in events.Histograms("search/probabilities")] == [(4, 2.0)]
    assert any("phase" in tag for tag in tags["tensors"])
