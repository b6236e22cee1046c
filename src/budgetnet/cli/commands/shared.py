"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from budgetnet.cli.commands.choices import (
    DEVICES,
    ENGINES,
    OPTIMIZERS,
    SCHEDULES,
    TRACKERS,
    TRAINING_PRECISIONS,
)

Command = Callable[..., Any]

FILE = click.Path(path_type=Path)


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order in which `--help` lists them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
quiet = click.option("--quiet", is_flag=True, help="Show no progress.")
data_root = click.option(
    "--data-root", envvar="BUDGETNET_DATA", help="Folder of the data sets (or the variable BUDGETNET_DATA)."
)
force = click.option("--force", is_flag=True, help="Replace the file if it exists.")
run_space = click.option(
    "--space",
    "--model",
    "space",
    help="The run's own space or model as package.module:name. Code that a run folder names runs only if you do.",
)
architecture = click.option(
    "--architecture",
    default="full",
    show_default=True,
    help="full, a named architecture (resnet-20), or a JSON file.",
)
input_shape = click.option("--input", "shape", default="3x32x32", show_default=True, help="Shape of one input.")
classes = click.option("--classes", default=10, show_default=True, help="Number of classes.")

trust = click.option("--trust", is_flag=True, help="Open a torch program (.pt2) of your own; that runs what is in it.")

training = together(
    click.option(
        "--data",
        help="embedded, cifar10, cifar100, fashion-mnist, folder:path=…, lfw-parts or "
        "segmentation-folder:images=…,labels=…; with options such as :size=16,limit=30000.",
    ),
    data_root,
    click.option(
        "--recipe",
        help="fast, paper, or trained (the default with trained weights); with options as fast:name=value,….",
        metavar="NAME[:OPTIONS]",
    ),
    click.option("--epochs", type=float, help="Epochs of the final training (fast), or of the whole run (paper)."),
    click.option(
        "--teacher",
        help="Learn also from a teacher's outputs: self (the trained network, the default with trained weights), a "
        "safetensors file of the whole network's weights, the folder of a run, or none.",
    ),
    click.option("--batch-size", type=int, help="Examples per batch."),
    click.option(
        "--optimizer",
        type=click.Choice(OPTIMIZERS),
        help="Optimizer of the weights.  [default: sgd for networks with batch norm, adamw for others]",
    ),
    click.option("--lr", type=float, help="Largest learning rate.  [default: the recipe's or the optimizer's]"),
    click.option("--weight-decay", type=float, help="Weight decay of the optimizer."),
    click.option("--schedule", type=click.Choice(SCHEDULES), help="Course of the learning rate.  [default: one-cycle]"),
    click.option("--clip", type=float, help="Largest norm of a gradient; 0 for no limit."),
    click.option("--seed", type=int, help="Seed of everything random."),
    click.option("--out", type=FILE, help="Run folder.  [default: the first free runs/run-N]"),
    click.option("--resume", is_flag=True, help="Continue the run in --out, or start it if there is none."),
    click.option(
        "--lr-scale", type=float, default=1.0, help="Multiply every learning rate, such as that of a resumed run."
    ),
    click.option("--max-time", help="Finish within this time, with a trained network: 30m, 1h30m, 90s."),
    click.option("--device", help=f"{', '.join(DEVICES)}, or one of several as cuda:1."),
    click.option(
        "--precision", help=f"{' or '.join(TRAINING_PRECISIONS)} (autocast; the result is fp32).  [default: fp32]"
    ),
    click.option("--compile", "compile", is_flag=True, default=None, help="Train fixed networks by torch.compile."),
    click.option(
        "--sync-batch-norm",
        is_flag=True,
        default=None,
        help="Under torchrun: batch norm of fixed networks over the shares of all processes.",
    ),
    click.option(
        "--micro-groups",
        type=int,
        help="Architectures per micro-batch of the search, whose gradients add up to those of the batch: less memory "
        "and fewer, larger kernels.  [default: all at once on a CPU, 2 on an accelerator]",
    ),
    click.option("--threads", type=int, help="Number of torch threads.  [default: torch's own choice]"),
    click.option("--int8-drop", type=float, help="Points of accuracy that an int8 file may lose.  [default: 1]"),
    click.option("--config", "config_file", type=FILE, help="Read settings from a TOML file."),
    click.option("--track", type=click.Choice(TRACKERS), help="Also write TensorBoard logs into the run folder."),
    click.option("--profile", is_flag=True, help="Print the time by phase and part, and write profile.json."),
    quiet,
    click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object at the end."),
)
"""Options of `search` and `train`; without a value, the configuration file or the default decides."""

engine = together(
    click.option("--device", help=f"{', '.join(DEVICES)}."),
    click.option("--threads", type=int, help="Threads per run.  [default: cores divided by workers]"),
    click.option(
        "--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="Where runs execute."
    ),
    click.option("--workers", type=int, help="Runs at the same time (local).  [default: number of cores]"),
    click.option("--address", help="Address of the scheduler (dask), such as tcp://host:8786."),
)
"""Options of commands that start many runs."""
