"""The int8 file of a run: calibrated on its training data, and judged on the same data as the network itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, fx, nn

from budgetnet.budgets.budget import Budget
from budgetnet.budgets.certificate import Int8Score
from budgetnet.data.feeds import Feed
from budgetnet.errors import UserError
from budgetnet.export.description import Description
from budgetnet.export.formats import FORMATS, pack_onnx
from budgetnet.naming.files import write_file
from budgetnet.records.results import MetricDescription
from budgetnet.runs.job import Job
from budgetnet.runs.stored import INT8_FILE
from budgetnet.training.evaluation import judge
from budgetnet.training.tasks import Score

CALIBRATION = 256
"""Training examples whose activations give the ranges; more hardly change them."""


class FileNetwork(nn.Module):
    """An ONNX file that takes inputs as the network was trained on them.

    Args:
        data: The bytes of the file.
        scaled: Whether the file takes pixels from 0 to 255 where the network takes [−1, 1].
    """

    def __init__(self, data: bytes, scaled: bool) -> None:
        super().__init__()
        self._run = FORMATS["onnx"].load(data, INT8_FILE)[1]
        self._scaled = scaled

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs of the file, where the inputs are."""
        given = inputs.detach().cpu().float().contiguous()
        return self._run((given + 1) * 127.5 if self._scaled else given).to(inputs.device)


def wanted(budgets: Sequence[Budget]) -> bool:
    """Whether one of the budgets is about the int8 file."""
    return any(getattr(budget.meter.cost, "precision", "") == "int8" for budget in budgets)


def samples(train: Feed, scaled: bool) -> list[Tensor]:
    """Training inputs without augmentation, as the file takes them."""
    found: list[Tensor] = []
    for inputs, _ in train.evaluation(CALIBRATION):
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            raise UserError("int8 files are made for networks of one float32 input only; use precision=fp32")
        found.append(inputs.cpu().float().contiguous())
        if sum(map(len, found)) >= CALIBRATION:
            break
    batch = torch.cat(found)[:CALIBRATION]
    return [*torch.split((batch + 1) * 127.5 if scaled else batch, 32)]


def make(job: Job, network: fx.GraphModule, description: Description, folder: Path) -> bytes:
    """Writes the int8 file into the folder of the run."""
    data = pack_onnx(network.cpu().eval(), description, samples(job.train, description.scaled))
    write_file(folder / INT8_FILE, data)
    return data


def score(data: bytes, job: Job, feed: Feed) -> Score:
    """The score of the int8 file on one part of the data."""
    return judge(FileNetwork(data, job.data.scaling == "[-1,1]"), job.task, feed.evaluation())


def compare(data: bytes, network: nn.Module, job: Job) -> Int8Score:
    """The scores of network and file on the validation data, and whether the drop is within what is allowed."""
    fp32, int8 = judge(network, job.task, job.validation.evaluation()).metric, score(data, job, job.validation).metric
    return scored(fp32, int8, job.config.int8_drop, job.data.metric)


def scored(fp32: float, int8: float, allowed: float, metric: MetricDescription) -> Int8Score:
    """Two scores as a certificate holds them; the drop is in hundredths of the metric's unit, so in points."""
    drop = 100 * (fp32 - int8 if metric.higher_is_better else int8 - fp32)
    # written so that a score that is no number does not pass
    return Int8Score(fp32, int8, drop, allowed, bool(drop <= allowed))
