"""One run, from a configuration (or a user's own network and data) to a run folder."""

from __future__ import annotations

import copy
import itertools
import math
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_safetensors
from torch import fx

from budgetnet.budgets.certificate import Certificate, certify, file_checksums
from budgetnet.budgets.feasibility import Profile
from budgetnet.costs import bind
from budgetnet.errors import UserError
from budgetnet.export import Description, save_program
from budgetnet.export.formats import program
from budgetnet.naming.files import write_file
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.pictures.examples import write_pictures
from budgetnet.pictures.outline import FILE as GRAPH_FILE
from budgetnet.pictures.outline import Outline
from budgetnet.records.console import ConsoleSink, working
from budgetnet.records.environment import environment, machine, versions
from budgetnet.records.folder import RunFolder
from budgetnet.records.records import Fan, JsonLines, Sink
from budgetnet.records.results import Origin, Summary
from budgetnet.records.stopwatch import OFF, Stopwatch, Untimed
from budgetnet.runs import quantised
from budgetnet.runs.closing import MEASURING, WRITING, Spent, int8_test, summarize
from budgetnet.runs.config import Config
from budgetnet.runs.first import measured_by_first
from budgetnet.runs.inherited import lent_weights
from budgetnet.runs.job import Checked, Job, check_job, make_runner, make_trainer, prepare
from budgetnet.runs.result import Result, load, raw_examples
from budgetnet.runs.resume import check_origin, fingerprint, restore
from budgetnet.runs.stored import INT8_FILE, OWN, STRUCTURE_FILE, write_structure
from budgetnet.spaces import SPACES
from budgetnet.strategies.archive import lines as archive_lines
from budgetnet.strategies.recipes import TIME_SHARES
from budgetnet.strategies.runner import Outcome, Runner
from budgetnet.strategies.state import Inherited
from budgetnet.training import checkpoint
from budgetnet.training.callbacks import Callback
from budgetnet.training.evaluation import EVIDENCE_BATCHES, judge
from budgetnet.training.processes import Processes
from budgetnet.training.tasks import Score

UNUSED = 0.10
"""A run that leaves more of a budget than this says so."""


@dataclass(frozen=True)
class Options:
    """How to execute, which does not change what comes out."""

    quiet: bool = False
    resume: bool = False
    lr_scale: float = 1.0
    sinks: Sequence[Sink] = ()
    should_stop: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = lambda line: None
    profiled: Callable[[Sequence[Profile], Sequence[float | None]], None] = lambda rows, means: None
    """Takes the profile table, before any training: each budget's range, and its expected cost at the start."""
    patience: float = 0.0
    """Seconds to wait for another process that is at work in the folder."""
    command: str | None = None
    """What the run is part of; the command line of this process if not given."""
    judge: bool = True
    """Whether to look at the test data; a sweep does so after it has selected (`judge_on_test`)."""
    report: bool = True
    callbacks: Sequence[Callback] = ()
    watch: Untimed = OFF
    """A running stopwatch leaves its table as profile.json in the folder."""


def execute(job: Job, out: Path, options: Options | None = None) -> Result:
    """Runs a job in its folder, or goes on with it; returns what is in the folder at the end.

    If a measured budget does not hold when the finished network is certified, the next best architecture is finished.
    """
    options = options or Options()
    processes = job.device.processes
    if not processes.first:
        options = replace(options, quiet=True, say=Options.say, profiled=Options.profiled, sinks=())
    with processes.explained():
        return _execute(job, RunFolder(out), options)


def _execute(job: Job, folder: RunFolder, options: Options) -> Result:
    processes = job.device.processes
    processes.from_first(lambda: _check_start(folder, options))
    options.watch.phase("check")
    for note in job.notes:
        options.say(note)
    _check_alike(job)
    together = replace(job, budgets=measured_by_first(job.budgets, processes))
    spent = Spent(together.budgets)
    checked = _check(together, options)
    spent.on(WRITING)
    processes.from_first(lambda: _try_export(job, checked, folder, options))
    alone = folder.locked(options.patience) if processes.first else nullcontext()
    with alone, torch.random.fork_rng(devices=[]), lent_weights(job.net):
        torch.manual_seed(job.config.seed)
        processes.from_first(lambda: _begin(folder, job, options))
        with _runner(together, folder, checked, options) as runner:
            outcome = spent.training(runner.run)
            certificate = processes.from_first(partial(_hand_over, job, folder, outcome, options, spent))
            while not certificate.holds and job.recipe.steps_back and runner.step_back():
                options.say("a budget did not hold when the network was measured: finishing the next best architecture")
                outcome = spent.training(runner.run)
                certificate = processes.from_first(partial(_hand_over, job, folder, outcome, options, spent))
        ended = partial(_conclude, job, folder, outcome, certificate, options, spent, runner.state.inherited)
        summary = processes.from_first(ended)
    _say_unused(summary, options)
    model, kept = outcome.model.eval(), outcome.architecture
    raw, described = raw_examples(job.validation), _described(job, kept)
    return Result(model, kept, summary, certificate, job.data, job.task, described, raw, job.net)


def _check_alike(job: Job) -> None:
    """Refuses processes that would do different things: they would wait for each other for ever."""
    mine = fingerprint(job)
    for name, value in job.device.processes.from_first(lambda: mine).items():
        if mine[name] != value:
            raise UserError(
                f"process {job.device.processes.rank} has {name} {mine[name]} and the first one {value}; give all of "
                "them the same"
            )


def _check_start(folder: RunFolder, options: Options) -> None:
    if folder.exists and not options.resume:
        raise UserError(f"{folder.path} holds a run already; go on with it by --resume, or choose another --out")
    if not 0 < options.lr_scale < math.inf:
        raise UserError(f"a learning rate scaled by {options.lr_scale} trains nothing; give --lr-scale above zero")


def _conclude(
    job: Job,
    folder: RunFolder,
    outcome: Outcome,
    certificate: Certificate,
    options: Options,
    spent: Spent,
    inherited: Inherited | None,
) -> Summary:
    """Judges the network on all validation and test data, and writes summary, report and profile."""
    options.watch.phase("report")
    with working("evaluating and writing the report", options.quiet):
        _check_presence(folder)
        model = outcome.model.eval()
        spent.on(MEASURING)
        summary = summarize(job, folder, outcome, certificate, options.judge, inherited)
        spent.on(WRITING)
        if job.data.task == "segmentation":
            write_pictures(folder.path, model, job.validation)
        summary = spent.told(summary)
        folder.write_summary(summary)
        if options.report:
            write_report_of(folder, options.say)
            summary = spent.told(summary)
            folder.write_summary(summary)
    if isinstance(options.watch, Stopwatch):
        folder.write_json("profile.json", options.watch.table())
    return summary


def _try_export(job: Job, checked: Checked, folder: RunFolder, options: Options) -> None:
    """Says before any training what will not be written after it."""
    if (folder.path / "records.jsonl").exists() or job.config.space.partition(":")[0] in SPACES:
        return  # a run that goes on has been tried, and built-in spaces can be written
    try:
        program(extract(job.net, checked.architecture).cpu().eval(), job.net.input_shape, job.net.input_dtype)
    except UserError as error:
        options.say(f"the network can be trained but not written as a torch program: {error}")


def _check(job: Job, options: Options) -> Checked:
    """What is known before any training, with the profile table told; or a refusal."""
    with working("checking the budgets", options.quiet or job.architecture is not None):
        checked = check_job(job)
    if checked.rows:
        options.profiled(checked.rows, checked.means)
    return checked


def _begin(folder: RunFolder, job: Job, options: Options) -> None:
    """Writes what the run is, unless it goes on."""
    check_origin(folder)
    if folder.exists:
        return
    folder.write_json("data.json", job.data.to_json())
    meters = [*(bind(name, job.net) for name in ("macs", "params")), *(budget.meter for budget in job.budgets)]
    folder.write_json(GRAPH_FILE, Outline.of(job.net, meters, job.budgets).to_json())
    said = "budgetnet.search(…) in Python" if job.config.data == OWN else shlex.join(["budgetnet", *sys.argv[1:]])
    command = options.command or said
    origin = Origin(job.config.to_dict(), command, versions().get("budgetnet"), machine(job.device.name), versions())
    folder.write_json("config.json", origin.to_json())


@contextmanager
def _runner(job: Job, folder: RunFolder, checked: Checked, options: Options) -> Iterator[Runner]:
    """The phases of a job, where its last good checkpoint left them, with its sinks open."""
    marks = fingerprint(job)
    trainer = make_trainer(
        job,
        should_stop=options.should_stop,
        max_time=max((job.config.max_time or math.inf) - checked.seconds, 0.0),
        time_shares=TIME_SHARES,
        lr_scale=options.lr_scale,
        callbacks=options.callbacks,
        watch=options.watch,
    )
    restored = restore(folder, job, lambda: make_runner(job, checked, trainer), options.say)
    _check_restored(folder, restored.number, job.device.processes)
    if not job.device.processes.first:
        yield restored.runner
        return
    lines, numbers = JsonLines(folder.path / "records.jsonl", restored.records), itertools.count(restored.number + 1)

    def save(values: dict[str, Any]) -> None:
        _check_presence(folder)
        number = next(numbers)
        writer.save(number, {**values, "records": lines.position, "number": number, "fingerprint": marks})

    console = [] if options.quiet else [ConsoleSink(job.budgets, metric=job.data.metric)]
    sinks: list[Sink] = [lines, *options.sinks, *console]
    with Fan(sinks) as trainer.sink, checkpoint.Writer(folder.checkpoints) as writer:
        trainer.save = save
        try:
            yield restored.runner
        finally:
            if folder.exists:
                entries = restored.runner.state.archive.entries
                write_file(folder.path / "archive.jsonl", archive_lines(entries, job.task.metric.name))


def _check_restored(folder: RunFolder, number: int, processes: Processes) -> None:
    """All processes have read the same checkpoint, before the first one writes another."""
    highest, lowest = processes.agree(number, -number)
    if highest != -lowest:
        raise UserError(f"not every process can read the checkpoints in {folder.path}; put it where all of them can")


def _check_presence(folder: RunFolder) -> None:
    """A folder that was deleted under the run is not made again: half a run would be in it."""
    if not folder.exists:
        raise UserError(f"{folder.path} was deleted or emptied while the run was at work; start the run again")


def _described(job: Job, architecture: Architecture) -> Description:
    return Description.of_run(job.config.space, architecture.to_json(), job.data.to_json(), {})


def _hand_over(job: Job, folder: RunFolder, outcome: Outcome, options: Options, spent: Spent) -> Certificate:
    """Writes the network, measures it against its budgets and writes the certificate."""
    options.watch.phase("certify")
    spent.on(WRITING)
    _check_presence(folder)
    model, described = outcome.model.eval(), _described(job, outcome.architecture)
    write_file(folder.path / "architecture.json", (outcome.architecture.to_json() + "\n").encode())
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    write_file(folder.path / "weights.safetensors", save_safetensors(weights))
    write_file(folder.path / STRUCTURE_FILE, write_structure(model, job.net.graph))
    names = ["architecture.json", "weights.safetensors", STRUCTURE_FILE]
    if _write_program(model, folder, described, options):
        names.append("network.pt2")
    spent.on(MEASURING)
    int8, int8_score = None, None
    if quantised.wanted(job.budgets):
        int8 = quantised.make(job, copy.deepcopy(outcome.model), described, folder.path)
        int8_score = quantised.compare(int8, model, job)
        names.append(INT8_FILE)
    batches = [inputs for inputs, _ in itertools.islice(job.validation.evaluation(), EVIDENCE_BATCHES)]
    with working("measuring the network against its budgets", options.quiet):
        certificate = certify(
            job.net,
            outcome.architecture,
            job.budgets,
            network=model,
            description=described,
            batches=batches,
            environment=environment(),
            checksums=file_checksums([folder.path / name for name in names]),
            int8=int8,
            int8_score=int8_score,
        )
    folder.write_json("certificate.json", certificate.to_json())
    return certificate


def _write_program(model: fx.GraphModule, folder: RunFolder, described: Description, options: Options) -> bool:
    """Writes the torch program. What is finished is not lost because of a format that cannot hold it."""
    try:
        save_program(model, folder.path / "network.pt2", described)
    except UserError as error:
        options.say(f"no network.pt2 was written: {error}; the weights and the structure of the network are there")
        return False
    return True


def judge_on_test(run: Path, config: Config, patience: float = 0.0, own: Collection[str] = ()) -> None:
    """Looks at the test data of a finished run that left them alone, and writes the score into its summary."""
    folder = RunFolder(run)
    job = prepare(config, own)
    model = load(run, job.net).network
    if job.test is not None:
        with folder.locked(patience):
            write_test_score(folder, judge(model, job.task, job.test.evaluation()), int8_test(job, folder))


def write_test_score(folder: RunFolder, score: Score | None, int8: float | None = None) -> None:
    """Puts a score on test data into a summary, or takes it out."""
    summary = folder.summary()
    known = summary.with_test(score.metric, score.mean_iou, int8, score.examples) if score else summary.with_test(None)
    folder.write_summary(known)


def _say_unused(summary: Summary, options: Options) -> None:
    for budget in summary.budgets:
        if budget.met and 1 - budget.share > UNUSED:
            options.say(f"{1 - budget.share:.0%} of the budget {budget.text} is unused")


def write_report_of(folder: RunFolder, say: Callable[[str], None]) -> None:
    """The page about a run. A missing extra is only said: the run is finished."""
    from budgetnet.pictures.report import write_report

    try:
        write_report([folder.path], folder.path / "report.html", force=True)
    except UserError as error:
        say(f"no report was written: {error}")
