"""The code on the page of a network with several inputs; that of other runs is tried in the browser's tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import budgetnet
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.usage import usage
from budgetnet.records.folder import read_run
from tests.small_runs import run_cli


class Weighted(nn.Module):
    """Words with weights: two inputs of different types."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(10, 8), nn.Linear(8, 3)
        self.branch = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, ids: Tensor, weight: Tensor) -> Tensor:
        """Logits."""
        x = (self.words(ids) * weight[..., None]).mean(1)
        logits: Tensor = self.last(x + self.branch(x))
        return logits


def examples(count: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Sequences whose class is that of their first word."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, (count, 5), generator=generator)
    return {"ids": ids, "weight": torch.rand(count, 5, generator=generator)}, ids[:, 0] % 3


def said(program: str) -> str:
    """What a program prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_several_inputs_are_given_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    net = budgetnet.from_model(Weighted(), examples(2, 0)[0])
    data = (examples(120, 0), examples(40, 1))
    monkeypatch.chdir(tmp_path)
    budgetnet.search(net, *data, budgets="macs<=80%", classes="abc", epochs=1, out="run", quiet=True)
    run = read_run(Path("run"))
    python, onnx, certify = (block.code for block in usage(run, Networks().of(run)[0]))
    assert said(python) in "abc"
    export, _, program = onnx.partition("\npython - <<'END'\n")
    code, out, err = run_cli(capsys, *export.split()[1:])
    assert code == 0, (out, err)
    assert said(program.removesuffix("\nEND")).startswith("[[")
    assert run_cli(capsys, *certify.split()[1:])[0] == 0
