"""Finished run folders without the run: real parts, a network with batch-norm statistics, made in a moment."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from budgetnet import data
from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.certificate import certify, file_checksums
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.environment import environment
from budgetnet.spaces import build
from tests.summaries import make_budget, make_summary

SPACE = "resnet-fabric:width=1,channels=4"
DATA = "embedded:size=8,limit=100"
LABELS = tuple(data.load(DATA).classes)
SHAPE = (1, 8, 8)


def network(seed: int = 0) -> SuperNetwork:
    """A super network whose batch norms have seen data, so that folding them matters."""
    torch.manual_seed(seed)
    net = build(SPACE, SHAPE, len(LABELS))
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.3)
            nn.init.normal_(module.bias, 0, 0.3)
    net(torch.randn(64, *SHAPE))
    return net.eval()


def make_run(folder: Path, budgets: tuple[str, ...] = ("macs<=90%", "size<=1MB"), seed: int = 0) -> Path:
    """The files of a finished run, as `budgetnet search` leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    net = network(seed)
    architecture = net.named["resnet-8"]
    model = extract(net, architecture)
    save_file(model.state_dict(), folder / "weights.safetensors")
    (folder / "architecture.json").write_text(architecture.to_json(), encoding="utf-8")
    checksums = file_checksums([folder / "weights.safetensors"])
    certificate = certify(
        net, architecture, parse_all(budgets, net), network=model, checksums=checksums, environment=environment()
    )
    entries = tuple(make_budget(entry.cost, entry.measured, entry.maximum, entry.unit) for entry in certificate.budgets)
    files = {
        "config.json": {"config": {"space": SPACE, "data": DATA, "budgets": budgets, "costs": []}},
        "data.json": {
            "name": "embedded",
            "task": "classification",
            "classes": LABELS,
            "input_shape": SHAPE,
            "scaling": "[-1,1]",
        },
        "certificate.json": certificate.to_json(),
        "summary.json": make_summary(budgets=entries).to_json(),
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def write_images(folder: Path, count: int = 3) -> list[Path]:
    """Real images as files, in their own size: they are resized for the network."""
    inputs = data.load("embedded").validation.inputs
    paths = [folder / f"{i}.png" for i in range(count)]
    for image, path in zip(inputs, paths, strict=False):
        Image.fromarray(image[0].numpy()).save(path)
    return paths
