"""Runs from trained weights: what they say at the end, teachers, weights, and what they choose by."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import budgetnet
from budgetnet.budgets.budget import parse_all
from budgetnet.data.feeds import make_feed
from budgetnet.errors import Interrupted, UserError
from budgetnet.records.records import Record
from budgetnet.records.results import DataDescription, Summary
from budgetnet.runs.before import removed
from budgetnet.runs.config import Config
from budgetnet.runs.execute import Options, execute
from budgetnet.runs.inherited import make_teacher, original_of
from budgetnet.runs.job import Job
from budgetnet.runs.result import Result, load
from budgetnet.training.distillation import Teacher
from budgetnet.training.metrics import cross_entropy
from budgetnet.training.tasks import Task
from tests.small_runs import mlp, same_run, vectors
from tests.trained_runs import quick, table_net, trained_mlp


def run(out: Path, budget: str = "macs<=50%", **options: object) -> Result:
    net = table_net()
    given = {name: value.clone() for name, value in net.state_dict().items()}
    result = budgetnet.search(
        net, vectors(160), vectors(64, 1), vectors(64, 2), budgets=[budget], out=out, quiet=True, **options
    )
    assert all(torch.equal(given[name], value) for name, value in net.state_dict().items()), "the model stays as it was"
    return result


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(tmp_path_factory.mktemp("trained") / "run", epochs=2, batch_size=32)


def test_trained_weights_choose_their_recipe_and_their_teacher(result: Result) -> None:
    assert result.summary.recipe == "trained"
    assert result.met
    assert result.summary.before is not None
    assert result.summary.before.teacher == "self"


def test_before_and_after_are_what_the_two_networks_say(result: Result) -> None:
    before = result.summary.before
    assert before is not None
    model = trained_mlp()
    for part, seed in (("validation", 1), ("test", 2)):
        x, y = vectors(64, seed)
        right = float((model(x).argmax(1) == y).float().mean())
        assert getattr(before, f"{part}_score") == pytest.approx(right)
    assert before.params == sum(p.numel() for p in model.parameters())
    assert before.macs == 6 * 16 + 16 * 12 + 12 * 3
    assert before.costs == {"macs": before.macs}
    assert result.summary.macs <= before.macs / 2
    assert before.file_bytes > before.file_bytes_after > 0
    widths = [m.out_features for m in result.model.modules() if isinstance(m, torch.nn.Linear)][:2]
    said = {line.partition(":")[0]: line for line in before.removed}
    for name, width, of in zip(("0", "3"), widths, (16, 12), strict=True):
        assert (f"{name}: keeps {width} of {of} channels" == said[name]) if width < of else name not in said
    assert {"chosen", "uniform"} == before.race_losses.keys()
    rows = {name: (a, b) for name, a, b in before.compared(result.summary)}
    assert {"validation accuracy", "test accuracy", "macs", "params", "weights file"} == rows.keys()


def test_the_page_says_before_and_after(result: Result) -> None:
    before = result.summary.before
    assert before is not None
    page = (Path(result.summary.run) / "report.html").read_text()
    words = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    quality = words.partition("How good is it?")[2].partition("What was kept?")[0]
    scores = (before.validation_score, before.test_score)
    shown = " ".join(f"{100 * score:.1f} %" for score in scores if score is not None)
    assert f"the full network as it came, before {before.macs} {shown}" in quality
    assert f"uniform widths at the same cost {before.race_losses['uniform']:.4f}" in quality
    assert "The network before was its teacher" in quality
    assert f"The full network: {before.macs}." in words
    kept = words.partition("What was kept?")[2].partition("Where does the cost go?")[0]
    for line in before.removed:
        name, _, what = line.partition(": ")
        assert f"{name} {what.removeprefix('keeps ')}" in kept or what == "dropped"


def test_the_summary_is_read_back(result: Result) -> None:
    assert load(result.summary.run).summary == result.summary
    assert Summary.from_json(result.summary.to_json(), "here") == result.summary


def test_a_result_of_uniform_widths_says_so(tmp_path: Path, result: Result) -> None:
    """A quarter of every layer is the least that there is: no other network is within the budget."""
    assert result.summary.before is not None
    assert not result.summary.before.uniform
    least = 6 * 4 + 4 * 3 + 3 * 3
    found = run(tmp_path / "least", f"macs<={least}", epochs=2, batch_size=32)
    before = found.summary.before
    assert before is not None
    assert found.summary.macs == least
    assert before.uniform
    assert before.removed == ("0: keeps 4 of 16 channels", "3: keeps 3 of 12 channels")
    assert "The chosen network has uniform widths: every layer keeps the same share." in before.notes()


def test_a_fixed_network_of_trained_weights_says_what_is_gone() -> None:
    net = table_net()
    assert removed(net, net.graph.full) == ()


def test_teachers(tmp_path: Path, result: Result) -> None:
    net, fresh = table_net(), mlp()
    x, _ = vectors(8)
    original = original_of(net)
    assert make_teacher(None, net, original, by_itself=False) is None
    assert make_teacher("none", net, original, by_itself=True) is None
    with pytest.raises(UserError, match="has no trained weights"):
        make_teacher("self", fresh, None, by_itself=False)
    with pytest.raises(UserError, match="there is no teacher"):
        make_teacher(tmp_path / "gone", net, original, by_itself=True)
    own = Teacher(trained_mlp(), kind="mse")
    assert make_teacher(own, net, original, by_itself=True) is own
    save_file(trained_mlp().state_dict(), tmp_path / "full.safetensors")
    for parameter in net.parameters():
        parameter.data.zero_()
    for chosen in ("self", tmp_path / "full.safetensors", trained_mlp()):
        found = make_teacher(chosen, net, original, by_itself=False)
        assert found is not None
        assert torch.allclose(found.module.eval()(x), trained_mlp()(x), atol=1e-6), chosen
    taught = make_teacher(result.summary.run, net, original, by_itself=False)
    assert taught is not None
    assert torch.allclose(taught.module(x), result.model.eval()(x), atol=1e-6)
    (tmp_path / "pickle.pt").write_bytes(b"\x80\x04.")
    with pytest.raises(UserError, match="not a safetensors file"):
        make_teacher(tmp_path / "pickle.pt", net, original, by_itself=False)


def test_selection_looks_at_validation_data_only(tmp_path: Path) -> None:
    """Other test data, the same network; other validation data may choose another one."""
    x, y = vectors(64, 2)
    runs = []
    for name, test in (("one", (x, y)), ("two", (x.flip(0), (y + 1) % 3))):
        runs.append(
            budgetnet.search(
                table_net(),
                vectors(160),
                vectors(64, 1),
                test,
                budgets=["macs<=50%"],
                out=tmp_path / name,
                quiet=True,
                recipe=quick(),
            )
        )
    assert runs[0].architecture == runs[1].architecture
    weights = [result.model.state_dict() for result in runs]
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())
    assert runs[0].summary.test_score != runs[1].summary.test_score


class Watcher:
    """Says to stop once a run is so many questions into a phase; the records tell it which phase that is."""

    def __init__(self, phase: str, after: int) -> None:
        self.phase, self.after, self.now = phase, after, ""

    def write(self, record: Record) -> None:
        self.now = record.phase

    def close(self) -> None:
        pass

    def asked(self) -> bool:
        self.after -= self.now == self.phase
        return self.now == self.phase and self.after < 0


def taught_job(loss: Any = None) -> Job:
    """A run from trained weights that learns from itself, its parts made afresh."""
    net, recipe = table_net(), quick()
    train, validation = make_feed(vectors(160), recipe.batch_size, 0), make_feed(vectors(64, 1), 64, 0)
    config, about = Config(space="own", data="own", budgets=("macs<=50%",)), DataDescription("own", "own", (), (6,))
    original = original_of(net)
    made = (
        net,
        Task.of(loss, None, None),
        train,
        validation,
        None,
        parse_all(["macs<=50%"], net),
        recipe,
        config,
        about,
    )
    return Job(*made, original=original, teacher=make_teacher(None, net, original, by_itself=True))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "whole"
    execute(taught_job(), out, Options(quiet=True, report=False))
    return out


@pytest.mark.parametrize(("phase", "after"), [("choose", 1), ("race", 2), ("race", 3), ("finish", 3)])
def test_interrupted_in_any_phase_it_goes_on_with_the_same_bits(
    phase: str, after: int, uninterrupted: Path, tmp_path: Path
) -> None:
    watcher = Watcher(phase, after)
    with pytest.raises(Interrupted):
        execute(taught_job(), tmp_path, Options(quiet=True, sinks=[watcher], should_stop=watcher.asked))
    assert watcher.now == phase
    execute(taught_job(), tmp_path, Options(quiet=True, resume=True, report=False))
    same_run(uninterrupted, tmp_path)


def test_killed_in_the_importance_pass_it_begins_again(uninterrupted: Path, tmp_path: Path) -> None:
    calls = iter(range(2))

    def dying(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return cross_entropy(outputs, targets)

    with pytest.raises(KeyboardInterrupt):
        execute(taught_job(dying), tmp_path, Options(quiet=True))
    (line,) = (tmp_path / "records.jsonl").read_text().splitlines()
    assert '"phase": "importance"' in line
    execute(taught_job(), tmp_path, Options(quiet=True, resume=True, report=False))
    same_run(uninterrupted, tmp_path)
