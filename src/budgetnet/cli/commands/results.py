"""Commands for finished runs and their networks: certify, export, predict, report, watch, draw, show, runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from budgetnet.cli.commands import shared
from budgetnet.cli.commands.choices import FORMATS, PRECISIONS, THEMES


@click.command()
@click.argument("run_or_model", type=shared.FILE)
@click.option("--budget", "budgets", multiple=True, help="Check this budget instead of those of the run.")
@shared.run_space
@click.option("--cost", "costs", multiple=True, help="A cost of your own of the run, package.module:name.")
@shared.trust
@shared.data_root
@click.option("--json", "as_json", is_flag=True, help="Print the certificate as JSON.")
def certify(**options: Any) -> int:
    """Measure a run or a model file against its budgets.

    The measurement is made again, on this machine: exit code 0 if every budget holds, 1 if one does not.

    \b
    budgetnet certify runs/run-1
    budgetnet certify model.onnx --budget "latency(threads=1)<=12ms" --budget "file_size<=500kB"
    """
    from budgetnet.cli import certifying

    return certifying.certify(**options)


@click.command()
@click.argument("run", type=shared.FILE)
@click.option("--format", "kind", type=click.Choice(FORMATS), help="[default: by the suffix of -o, else onnx]")
@click.option("-o", "--output", type=shared.FILE, help="File to write.  [default: RUN/model.SUFFIX]")
@click.option("--precision", type=click.Choice(PRECISIONS), default="fp32", show_default=True, help="Of an ONNX file.")
@click.option(
    "--int8-drop", type=float, default=1.0, show_default=True, help="Points of accuracy that an int8 file may lose."
)
@shared.run_space
@shared.force
@shared.data_root
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def export(**options: Any) -> None:
    """Write the network as ONNX, a torch program or safetensors.

    The file needs no budgetnet: it takes what the data of the run have (pixels from 0 to 255, as float32) and returns
    logits. It is run in its own runtime and compared with the source, on random and on real images, before it is kept.

    \b
    budgetnet export runs/run-1 --format onnx -o model.onnx
    budgetnet export runs/run-1 --precision int8 -o small.onnx
    budgetnet predict model.onnx photo.png
    """
    from budgetnet.cli import certifying

    certifying.export(**options)


@click.command()
@click.argument("file", type=shared.FILE)
@click.argument("images", nargs=-1, required=True, type=shared.FILE)
@click.option("-o", "--output", type=shared.FILE, help="Folder for the label maps of a segmentation.")
@click.option("--force", is_flag=True, help="Replace label maps that exist.")
@shared.trust
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def predict(**options: Any) -> None:
    """Run an exported network on images.

    The command prints the most probable label of each image and its probability. A segmentation model gives the share
    of each class and, with -o, label maps of the size of the images: PNG files whose pixels are class numbers.

    \b
    budgetnet predict runs/run-1 photos/
    budgetnet predict model.onnx cat.png dog.jpg
    budgetnet predict model.safetensors cat.png --json
    budgetnet predict faces.onnx photos/*.jpg -o maps
    """
    from budgetnet.cli import certifying

    certifying.predict(**options)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=shared.FILE)
@click.option(
    "-o", "--out", type=shared.FILE, help="[default: report.html in the folder, or here if several are named]"
)
@shared.run_space
@shared.force
def report(**options: Any) -> None:
    """Write one HTML page about one or several runs.

    The page opens from disk and needs no network connection. A run that was killed, or is still running, gets a
    report that says so.

    \b
    budgetnet report runs/a
    budgetnet report runs/a runs/b runs/resnet-20 -o comparison.html
    budgetnet report runs -o all.html                     every run in a folder
    """
    from budgetnet.cli import seeing

    seeing.report(**options)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=shared.FILE)
@click.option("--port", default=8123, show_default=True, help="Port on 127.0.0.1; 0 takes any free one.")
@shared.run_space
def watch(**options: Any) -> None:
    """Show the report live in a browser while runs go on.

    The page is served to this machine only, and nothing can be changed there.

    \b
    budgetnet watch runs/a
    budgetnet watch runs                                  every run in a folder, new ones too
    """
    from budgetnet.cli import seeing

    seeing.watch(**options)


@click.command()
@click.argument("what")
@click.option("-o", "--out", required=True, type=shared.FILE, help="FILE.svg, FILE.png or FILE.html.")
@click.option("--architecture", help="Of a SPACE: full (the default), a named one (resnet-20), or a JSON file.")
@click.option(
    "--cost",
    "cost_name",
    help="Cost that sets edge widths; steps(n) also colours ticks.  [default: the run's budget, or macs]",
)
@click.option("--epoch", type=float, help="Of a RUN: the distribution after this epoch instead of the result.")
@click.option("--input", "shape", default="3x32x32", show_default=True, help="Of a SPACE: shape of one input.")
@click.option("--classes", default=10, show_default=True, help="Of a SPACE: number of classes.")
@click.option(
    "--theme",
    default=THEMES[0],
    type=click.Choice(THEMES),
    show_default=True,
    help="auto follows the reader's system.",
)
@click.option("--title", help="A line above the picture.")
@shared.run_space
@shared.force
def draw(**options: Any) -> None:
    """Draw a space, a run or an architecture.

    WHAT is a space, a run folder, or an architecture file (beside its run, or with --space). Kept edges are strong,
    dropped edges faint; the width of an edge is its cost, the opacity its probability.

    \b
    budgetnet draw resnet-fabric:width=3 -o space.svg
    budgetnet draw resnet-fabric:width=3 --architecture resnet-20 -o resnet-20.png
    budgetnet draw runs/a -o found.html
    budgetnet draw runs/a --cost "steps(4)" -o schedule.svg
    """
    from budgetnet.cli import seeing

    seeing.draw(**options)


@click.command()
@click.argument("run", type=shared.FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def show(**options: Any) -> None:
    """Print one run: its configuration and its result, or its progress."""
    from budgetnet.cli import runs as listing

    listing.show(**options)


@click.command()
@click.argument("folder", type=shared.FILE, default=Path("runs"))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def runs(**options: Any) -> None:
    """List the runs in FOLDER (runs/ if not given): budgets, score and progress."""
    from budgetnet.cli import runs as listing

    listing.runs(**options)
