"""`budgetnet draw`, `budgetnet report`, `budgetnet watch`."""

from __future__ import annotations

from pathlib import Path

import click

from budgetnet.cli.options import input_shape
from budgetnet.costs import bind
from budgetnet.errors import UserError
from budgetnet.naming.files import refuse_replacing
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.draw import THEMES, Picture, save
from budgetnet.pictures.report.folder import RunFiles, find_runs, is_run, read_run
from budgetnet.pictures.report.limits import limits, meters
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.series import timeline
from budgetnet.spaces import build
from budgetnet.spaces.named import find_architecture

FORCE = click.option("--force", is_flag=True, help="Replace the file if it exists.")
SPACE = click.option(
    "--space", help="Your own space of the run, as package.module:name: its code runs only if you say so."
)


@click.command()
@click.argument("what")
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="FILE.svg, FILE.png or FILE.html.")
@click.option("--architecture", help="Of a SPACE: full (the default), a named one (resnet-20), or a file.")
@click.option(
    "--cost", "cost_name", help="Edge widths, and tick colours for steps(n).  [default: the run's budget, or macs]"
)
@click.option("--epoch", type=float, help="Of a RUN: the distribution after this epoch instead of the result.")
@click.option("--input", "shape", default="3x32x32", show_default=True, help="Of a SPACE: shape of one input.")
@click.option("--classes", default=10, show_default=True, help="Of a SPACE: classes of the head.")
@click.option(
    "--theme", default=THEMES[0], type=click.Choice(THEMES), show_default=True, help="auto follows the reader's system."
)
@click.option("--title", help="A line above the picture.")
@SPACE
@FORCE
def draw(
    what: str,
    out: Path,
    architecture: str | None,
    cost_name: str | None,
    epoch: float | None,
    shape: str,
    classes: int,
    theme: str,
    title: str | None,
    space: str | None,
    force: bool,
) -> None:
    """Draw WHAT: a space, a run, or an architecture file beside its run or with --space.

    \b
    budgetnet draw resnet-fabric:width=3 -o space.svg
    budgetnet draw resnet-fabric:width=3 --architecture resnet-20 -o resnet-20.png
    budgetnet draw runs/a -o found.html
    budgetnet draw runs/a --cost "steps(4)" -o schedule.svg

    Kept edges are strong, dropped ones faint; the width is the cost, the opacity the probability of an edge.
    """
    if not force:
        refuse_replacing(out)
    path = Path(what)
    if path.is_dir():
        picture = _run_picture(path, cost_name, epoch, title, space)
    else:
        picture = _space_picture(what, architecture, cost_name, input_shape(shape), classes, title, space)
    click.echo(save(picture, out, theme, force))


def _space_picture(
    what: str,
    architecture: str | None,
    cost: str | None,
    shape: tuple[int, ...],
    classes: int,
    title: str | None,
    space: str | None,
) -> Picture:
    if not Path(what).is_file():
        net = build(what, shape, classes)
        kept = find_architecture(net, architecture) if architecture else None
        return Picture(net, kept, None, bind(cost or "macs", net), title or architecture or what)
    if is_run(Path(what).parent):
        net = _network(read_run(Path(what).parent), space)
    elif space is not None:
        net = build(space, shape, classes)
    else:
        raise UserError(
            f"{what!r} is an architecture without a run beside it; say --space, such as resnet-fabric:width=3"
        )
    return Picture(net, find_architecture(net, what), None, bind(cost or "macs", net), title or Path(what).stem)


def _run_picture(path: Path, cost: str | None, epoch: float | None, title: str | None, space: str | None) -> Picture:
    run = read_run(path)
    net = _network(run, space)
    meter = bind(cost, net) if cost else next(iter(meters(limits(run, net), net).values()))
    shots = timeline(run.records).frames(len(net.graph.edges), len(run.records) + 1)
    if epoch is not None:
        shots = [shot for shot in shots if shot["epoch"] <= epoch]
        if not shots:
            raise UserError(f"{path} has no probabilities up to epoch {epoch:g}; name an epoch of its search phase")
    found = Architecture.from_json(net.graph, run.architecture) if run.architecture and epoch is None else None
    probabilities = [p / 1000 for p in shots[-1]["p"]] if shots and not (found and cost) else None
    return Picture(net, found, probabilities, meter, title or run.name)


def _network(run: RunFiles, space: str | None) -> SuperNetwork:
    net, reason = Networks(space=space).of(run)
    if net is None:
        raise UserError(f"{run.path} cannot be drawn: {reason}")
    return net


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="[default: report.html in the folder named, or here if there are several]",
)
@SPACE
@FORCE
def report(runs: tuple[Path, ...], out: Path | None, space: str | None, force: bool) -> None:
    """Write one HTML page about RUNS: it opens from disk, needs no network, and compares several runs.

    \b
    budgetnet report runs/a
    budgetnet report runs/a runs/b runs/resnet-20 -o comparison.html
    budgetnet report runs -o all.html                     every run in a folder

    A run that was killed, or is still going on, gets a report that says so.
    """
    from budgetnet.pictures.report.page import write_report

    out = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    click.echo(write_report(find_runs(runs), out, force, space=space))


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--port", default=8123, show_default=True, help="On 127.0.0.1; 0 takes any free one.")
@SPACE
def watch(runs: tuple[Path, ...], port: int, space: str | None) -> None:
    """Show RUNS in a browser while they go on. Only this machine can see the page, and nothing can be changed there.

    \b
    budgetnet watch runs/a
    budgetnet watch runs                                  every run in a folder, new ones too
    """
    from budgetnet.pictures.watch import ADDRESS, serve

    server = serve(runs, port, space)
    try:
        click.echo(f"http://{ADDRESS}:{server.server_address[1]}/  (Ctrl-C ends)")
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo("")
    finally:
        server.server_close()
