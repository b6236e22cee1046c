"""Other tools at work on the trained network: a program of their own environment, which has no budgetnet.

    python -m benchmarks.trained.peer REQUEST.json

The request names the tool, the network's weights, images, the shares of the multiply-adds that are asked for, and a
folder. For each share the folder gets the weights of a network as the tool left it, before any fine-tuning; the shapes
of the layers are those of the weights. `answer.json` has the versions, the settings and the seconds of each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._resnet import HandResNet

STEPS = 200
"""In which Torch-Pruning goes from the full network to nothing; importance is new in each of them."""
GRADIENT_IMAGES, BATCH = 512, 128
"""Training images behind the gradients of each step of Taylor pruning; images in a batch."""
DIVISOR, CALIBRATION_BATCHES, CALIBRATION_BATCH = 4, 50, 32
"""FastNAS: widths are multiples of this (its own 32 would leave nothing to choose); batches that batch norm is
re-estimated on before each score, its own number of them, and their images."""

Request = dict[str, Any]


def multiply_adds(model: nn.Module, example: Tensor) -> float:
    """Of the convolutions and linear layers, for one example."""
    total = 0.0

    def add(module: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal total
        weight = module.weight
        assert isinstance(weight, Tensor)
        total += weight.numel() * output[0].numel() / output.shape[1]

    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(add) for layer in layers]
    with torch.no_grad():
        model.eval()(example[:1])
    for hook in hooks:
        hook.remove()
    return total


def gradients(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Adds up the gradients of the mean loss."""
    model.zero_grad()
    for x, y in zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True):
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]


def torch_pruning(request: Request, model: nn.Module, data: dict[str, Tensor]) -> Iterator[tuple[float, nn.Module]]:
    """Global pruning in small steps; each share is met by the first network within it."""
    import torch_pruning as tp  # type: ignore[import-not-found, unused-ignore]

    images, labels = data["train_images"][:GRADIENT_IMAGES], data["train_labels"][:GRADIENT_IMAGES]
    taylor = request["tool"] == "taylor"
    importance = tp.importance.GroupTaylorImportance() if taylor else tp.importance.GroupMagnitudeImportance(p=2)
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    options = {"global_pruning": True, "pruning_ratio": 1.0, "iterative_steps": STEPS, "ignored_layers": linear[-1:]}
    pruner = tp.pruner.BasePruner(model, images[:1], importance, **options)
    full = multiply_adds(model, images)
    wanted = sorted(request["shares"], reverse=True)
    for _ in range(STEPS):
        if taylor:
            gradients(model, images, labels)
        pruner.step()
        share = multiply_adds(model, images) / full
        while wanted and share <= wanted[0]:
            yield wanted.pop(0), model
        if not wanted:
            return


def fastnas(request: Request, model: nn.Module, data: dict[str, Tensor]) -> Iterator[tuple[float, nn.Module]]:
    """ModelOpt's FastNAS: what each width of each layer costs in accuracy, then the best within the limit."""
    import modelopt.torch.prune as mtp  # type: ignore[import-not-found, unused-ignore]

    images, labels = (torch.split(data[f"train_{part}"], CALIBRATION_BATCH) for part in ("images", "labels"))
    batches = list(zip(images, labels, strict=True))

    def accuracy(candidate: nn.Module) -> float:
        with torch.no_grad():
            found = candidate.eval()(data["validation_images"]).argmax(1)
        return float((found == data["validation_labels"]).float().mean())

    config = mtp.fastnas.FastNASConfig()
    space = {"nn.Conv2d": {"*": {**config["nn.Conv2d"]["*"], "channel_divisor": DIVISOR}}}
    space |= {"nn.BatchNorm2d": {"*": {**config["nn.BatchNorm2d"]["*"], "feature_divisor": DIVISOR}}}
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for share in sorted(request["shares"], reverse=True):
        fresh = network(request)
        fresh.load_state_dict(state)
        options = {
            "data_loader": batches,
            "score_func": accuracy,
            "collect_func": lambda batch: batch[0],
            "checkpoint": str(Path(request["out"]) / "fastnas.pth"),
            "max_iter_data_loader": CALIBRATION_BATCHES,
        }
        limit, mode = {"flops": f"{100 * share:g}%"}, [("fastnas", {**dict(config), **space})]
        try:
            found, _ = mtp.prune(fresh, mode=mode, constraints=limit, dummy_input=images[0][:1], config=options)
        except ValueError as refusal:
            print(f"{share:g}: {refusal}", file=sys.stderr)
            return
        yield share, found


Tool = Callable[[Request, nn.Module, dict[str, Tensor]], Iterator[tuple[float, nn.Module]]]
TOOLS: dict[str, tuple[Tool, str, dict[str, Any]]] = {
    "taylor": (torch_pruning, "torch-pruning", {"steps": STEPS, "gradient_images": GRADIENT_IMAGES, "global": True}),
    "magnitude": (torch_pruning, "torch-pruning", {"steps": STEPS, "norm": 2, "global": True}),
    "fastnas": (fastnas, "nvidia-modelopt", {"divisor": DIVISOR, "images": CALIBRATION_BATCHES * CALIBRATION_BATCH}),
}
"""What runs, the package whose version is said, and its settings."""


def network(request: Request) -> HandResNet:
    """The network of a request, with fresh weights."""
    return HandResNet(request["channels"], request["blocks"], inputs=request["inputs"])


def answer(request: Request) -> dict[str, Any]:
    """Runs the tool and writes the networks; says how."""
    tool, package, settings = TOOLS[request["tool"]]
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    model, data, out = network(request), load_file(request["images"]), Path(request["out"])
    model.load_state_dict(load_file(request["weights"]))
    model.eval()
    networks, begun = [], time.monotonic()
    for share, found in tool(request, model, data):
        file = out / f"{request['tool']}-{share:g}.safetensors"
        save_file({name: value.detach().clone().contiguous() for name, value in found.state_dict().items()}, file)
        networks.append({"share": share, "file": str(file), "tool_seconds": round(time.monotonic() - begun, 1)})
    versions = {name: version(name) for name in (package, "torch")}
    settings |= {"scored_images": len(data["validation_images"])} if request["tool"] == "fastnas" else {}
    return {"versions": versions, "settings": settings, "networks": networks}


def main() -> None:
    """Answers the request."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = answer(request)
    Path(request["out"], "answer.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
