"""This side of the other tools: what they are asked, and their networks as modules that the trainer can finish."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks._common import ROOT
from benchmarks.trained.study import Study

TOOLS = ("taylor", "magnitude", "fastnas")
CALIBRATION, SCORED = 1664, 1000
"""Training images that a tool gets, and validation images that FastNAS scores its candidates on."""
Answer = dict[str, Any]


def pruned(study: Study, tool: str, seed: int, shares: Sequence[float]) -> Answer:
    """What a tool makes of the trained network at shares of the multiply-adds; answers are kept in the folder."""
    name = f"{tool}-seed-{seed}-" + "-".join(f"{share:g}" for share in shares)
    folder = study.out / (name if len(name) < 80 else f"{tool}-seed-{seed}-grid-{len(shares)}")
    if not (folder / "answer.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _ask(study, tool, seed, shares, folder)
    found: Answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return found


def _ask(study: Study, tool: str, seed: int, shares: Sequence[float], folder: Path) -> None:
    protocol, files = study.protocol, {"weights": folder / "full.safetensors", "images": folder / "images.safetensors"}
    save_file({name: value.contiguous() for name, value in study.full(seed).state_dict().items()}, files["weights"])
    save_file(_images(study, seed), files["images"])
    request = {
        "tool": tool,
        "seed": seed,
        "shares": list(shares),
        "channels": protocol.channels,
        "blocks": protocol.blocks,
        "inputs": study.data.input_shape[0],
        "out": str(folder),
        **{name: str(path) for name, path in files.items()},
    }
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [str(study.peers), "-m", "benchmarks.trained.peer", str(folder / "request.json")]
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=log, stderr=log)


def _images(study: Study, seed: int) -> dict[str, Tensor]:
    """Training images with their crops and flips, and validation images, as a network takes them."""
    train = list(study.calibration(seed, CALIBRATION))
    held = list(study.feed("validation", seed).evaluation(SCORED))
    named = {"train": train, "validation": held}
    found = {}
    for part, batches in named.items():
        found[f"{part}_images"] = torch.cat([x for x, _ in batches]).contiguous()
        found[f"{part}_labels"] = torch.cat([y for _, y in batches]).contiguous()
    return found


def network_of(study: Study, answer: Answer, share: float) -> tuple[nn.Module, Mapping[str, Any]] | None:
    """A tool's network, and what is said about it; None if the tool refused the share."""
    about = next((found for found in answer["networks"] if found["share"] == share), None)
    if about is None:
        return None
    state = load_file(about["file"])
    model = reshaped(study.fresh(0), state)
    model.load_state_dict(state)
    return model, about


def reshaped(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A network whose layers have the widths of some weights."""
    for name, module in list(model.named_modules()):
        weight = state.get(f"{name}.weight")
        if weight is None:
            continue
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, _layer(module, weight))
    return model


def _layer(module: nn.Module, weight: Tensor) -> nn.Module:
    if isinstance(module, nn.Conv2d):
        size, stride, padding = module.kernel_size, module.stride, module.padding
        assert isinstance(padding, tuple)
        return nn.Conv2d(weight.shape[1], weight.shape[0], size, stride, padding)  # type: ignore[arg-type]
    return nn.Linear(weight.shape[1], weight.shape[0]) if isinstance(module, nn.Linear) else nn.BatchNorm2d(len(weight))
