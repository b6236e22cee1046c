"""`budgetnet draw`, `budgetnet report`, `budgetnet watch`."""

from __future__ import annotations

from pathlib import Path

import click

from budgetnet.cli.options import input_shape
from budgetnet.costs import Meter, bind
from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.naming.files import is_file, is_folder, refuse_replacing
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.draw import Picture, save
from budgetnet.pictures.outline import Outline
from budgetnet.pictures.report.limits import limits, meters
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.series import timeline
from budgetnet.records.folder import RunFiles, find_runs, is_run, read_run
from budgetnet.spaces import build
from budgetnet.spaces.named import architecture_in, find_architecture


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
    """`budgetnet draw`: writes a picture of a space, a run or an architecture."""
    if not force:
        refuse_replacing(out)
    path = Path(what)
    if is_folder(path):
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
    if not is_file(Path(what)):
        net = build(what, shape, classes, own=own_names(what))
        kept = find_architecture(net, architecture) if architecture else None
        return Picture(net, kept, None, _meter(cost, net), title or architecture or what)
    if is_run(Path(what).parent):
        return _architecture_picture(Path(what), cost, title, space)
    if space is not None:
        net = build(space, shape, classes, own=own_names(space))
    else:
        raise UserError(
            f"{what!r} is an architecture without a run beside it; say --space, such as resnet-fabric:width=3"
        )
    return Picture(net, find_architecture(net, what), None, _meter(cost, net), title or Path(what).stem)


def _architecture_picture(file: Path, cost: str | None, title: str | None, space: str | None) -> Picture:
    """The picture of an architecture beside a run."""
    run, networks = read_run(file.parent), Networks(space)
    net = _outline(run, networks)
    kept = architecture_in(net.graph, file)
    return Picture(net, kept, None, networks.meter(run, net, cost or "macs"), title or file.stem)


def _meter(cost: str | None, net: SuperNetwork) -> Meter:
    """The cost that the user named on the command line."""
    return bind(cost or "macs", net, own=own_names(cost or ""))


def _run_picture(path: Path, cost: str | None, epoch: float | None, title: str | None, space: str | None) -> Picture:
    run, networks = read_run(path), Networks(space)
    net = _outline(run, networks)
    meter = networks.meter(run, net, cost) if cost else next(iter(meters(limits(run, net), net).values()))
    shots = timeline(run.records).frames(len(net.graph.edges), len(run.records) + 1)
    if epoch is not None:
        shots = [shot for shot in shots if shot["epoch"] <= epoch]
        if not shots:
            raise UserError(f"{path} has no probabilities up to epoch {epoch:g}; name an epoch of its search phase")
    found = Architecture.from_json(net.graph, run.architecture) if run.architecture and epoch is None else None
    probabilities = [p / 1000 for p in shots[-1]["p"]] if shots and not (found and cost) else None
    return Picture(net, found, probabilities, meter, title or run.name)


def _outline(run: RunFiles, networks: Networks) -> Outline:
    net, reason = networks.of(run)
    if net is None:
        raise UserError(f"{run.path} cannot be drawn: {reason}")
    return net


def report(runs: tuple[Path, ...], out: Path | None, space: str | None, force: bool) -> None:
    """`budgetnet report`: writes one HTML page about runs."""
    from budgetnet.pictures.report.page import write_report

    out = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    click.echo(write_report(find_runs(runs), out, force, space=space))


def watch(runs: tuple[Path, ...], port: int, space: str | None) -> None:
    """`budgetnet watch`: serves the report of runs live."""
    from budgetnet.pictures.watch import ADDRESS, serve

    server = serve(runs, port, space)
    try:
        click.echo(f"http://{ADDRESS}:{server.server_address[1]}/  (Ctrl-C ends)")
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo("")
    finally:
        server.server_close()
