"""Commands that train: `search`, `train`, `sweep` and `reproduce`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from budgetnet.cli.commands import shared
from budgetnet.cli.commands.choices import AXES, SCALES


class ListCommand(click.Command):
    """Lets `--seeds 0 1 2` stand for `--seeds 0 --seeds 1 --seeds 2`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(repeated(args)))


def repeated(args: Sequence[str]) -> Iterator[str]:
    """Arguments with the name of a list option repeated before each of its further values."""
    axis, fresh = None, False
    for arg in args:
        if arg.startswith("--"):
            axis, fresh = (arg if arg.removeprefix("--") in AXES else None), True
        elif axis is not None and not fresh:
            yield axis
        yield arg
        fresh = fresh and arg.startswith("--")


@click.command(cls=ListCommand)
@click.option("--space", help="Super network, such as resnet-fabric:width=3,channels=16; see `budgetnet spaces`.")
@click.option("--model", help="Your own model, as package.module:build[:name=value,…]; see `budgetnet describe`.")
@click.option("--weights", help="With --model: a checkpoint, .safetensors or .pt, to start from.")
@click.option(
    "--budget", "budgets", multiple=True, help='Such as "macs<=40.9M"; may be repeated. See `budgetnet costs`.'
)
@click.option(
    "--budgets",
    "family",
    multiple=True,
    help='A network for each, from one preparation of trained weights: "latency<=12ms" "latency<=6ms & size<=1MB".',
)
@click.option("--cost", "costs", multiple=True, help="Your own cost, package.module:name, for use in a budget.")
@click.option("--groups", type=int, help="Architectures sampled per batch.")
@click.option("--penalty", type=float, help="λ: constant in the paper recipe, the initial value in the fast one.")
@click.option("--dry-run", is_flag=True, help="Print the reachable costs and the estimated time; train nothing.")
@shared.training
def search(**options: Any) -> int:
    """Search and train a network that meets every budget.

    \b
    budgetnet search                                          embedded data, about two minutes on two cores
    budgetnet search --data cifar10 --data-root ~/data --budget "macs<=40.9M" --out runs/a
    budgetnet search --budget "params<=0.1M" --budget "steps(4)<=12"
    budgetnet search --space my_package.nets:build --cost my_package.costs:energy --budget "energy<=3J"
    budgetnet search --model my_package.nets:resnet --weights resnet.safetensors --budget "macs<=50%"
    budgetnet search --model my_package.nets:resnet --weights resnet.safetensors --budgets "macs<=60%" "macs<=30%"
    budgetnet search --budget "size<=60%" --dry-run
    """
    from budgetnet.cli import searching

    return searching.search(**options)


@click.command()
@click.argument("space")
@shared.architecture
@shared.training
def train(**options: Any) -> int:
    """Train one fixed architecture of SPACE: a baseline.

    The training loop, the data and the records are those of a search.

    \b
    budgetnet train resnet-fabric:width=3,channels=8 --architecture resnet-20 --epochs 16
    """
    from budgetnet.cli import searching

    return searching.train(**options)


@click.command(cls=ListCommand)
@click.argument("file", type=shared.FILE, required=False)
@click.option("--budgets", multiple=True, help='One search for each: "macs<=40%" "macs<=60% & params<=1M".')
@click.option("--recipes", multiple=True, help="fast (default), paper, with options as fast:name=value,….")
@click.option("--seeds", multiple=True, type=int, help="Such as 0 1 2.  [default: 0]")
@click.option("--penalties", multiple=True, help="λ: a list, or first:last:count such as 0.1:10:5, log-spaced.")
@click.option("--architectures", multiple=True, help="Baselines to train: resnet-20, SPACE, SPACE@NAME or a file.")
@click.option("--space", help="Super network; see `budgetnet spaces`.")
@click.option("--data", help="As for `budgetnet search`.")
@shared.data_root
@click.option("--cost", "costs", multiple=True, help="Your own cost, package.module:name.")
@click.option("--epochs", type=float, help="Epochs of the final training (fast), or of the whole run (paper).")
@click.option("--groups", type=int, help="Architectures sampled per batch.")
@click.option("--batch-size", type=int, help="Examples per batch.")
@click.option("--max-time", help="Time limit of each run: 30m, 1h30m, 90s.")
@click.option("--out", type=shared.FILE, help="Folder of the sweep.  [default: sweeps/NAME for NAME.toml]")
@shared.engine
@click.option("--test-all", is_flag=True, help="Test every run, not only the front: to compare recipes over seeds.")
@click.option("--dry-run", is_flag=True, help="Print the plan and the estimated time; run nothing.")
@shared.quiet
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON at the end.")
def sweep(**options: Any) -> int:
    """Run many searches and baselines: the curve of cost and score.

    The sweep finds the Pareto front of cost and validation score, and tests the runs on it. The settings come from
    the command line, from a TOML FILE, or from both. Start an interrupted sweep again to continue it: finished runs
    are kept, interrupted runs resume.

    \b
    budgetnet sweep --budgets "macs<=40%" "macs<=60%" --seeds 0 1 --architectures resnet-20 --out sweeps/a
    budgetnet sweep --budgets "macs<=40%" --recipes paper --penalties 0.1:10:5 --out sweeps/b
    budgetnet sweep experiment.toml --engine dask --address tcp://host:8786
    """
    from budgetnet.cli import sweeping

    return sweeping.sweep(**options)


@click.command()
@click.argument("table", required=False)
@click.option(
    "--scale",
    type=click.Choice(SCALES),
    default="reduced",
    show_default=True,
    help="full: the paper's setting, for GPUs; reduced: what two cores finish overnight.",
)
@click.option("--list", "as_list", is_flag=True, help="List the tables, their runs, and the estimated time here.")
@click.option("--dry-run", is_flag=True, help="Print every run of the plan; needs no data and runs nothing.")
@shared.data_root
@click.option("--batch-size", type=int, help="Examples per batch, if the recipe's batch does not fit into memory.")
@click.option("--out", type=click.Path(path_type=Path), help="[default: reproductions/TABLE-SCALE]")
@shared.engine
@shared.quiet
@shared.as_json
def reproduce(**options: Any) -> int:
    """Reproduce a table or figure of the paper.

    The command runs what is missing of TABLE, and writes the published numbers beside ours.

    \b
    budgetnet reproduce --list                                  the tables, and how long each would take here
    budgetnet reproduce cifar10-macs --scale full --dry-run     every run of the paper's setting
    budgetnet reproduce cifar10-macs --data-root ~/data         reduced: smaller images and networks, fewer epochs
    budgetnet reproduce cifar10-macs --scale full --engine dask --address tcp://host:8786

    It is a sweep: start it again to continue it. The folder gets table.md, table.json, charts and drawings of the
    networks.
    """
    from budgetnet.cli import reproducing

    return reproducing.reproduce(**options)


@click.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def meter(arguments: tuple[str, ...]) -> int:
    """Measure networks on this device, for a search elsewhere.

    The program is the same as the one file that `budgetnet meter --write meter.pyz` makes for a device without
    budgetnet, so that it reads its options itself: `budgetnet meter --help` lists them.
    """
    from budgetnet.costs.latency.meter.program import main

    return main(arguments)
