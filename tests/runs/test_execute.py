"""From a configuration or a user's own parts to a run folder: killed, resumed, damaged, locked, loaded."""

import fcntl
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import budgetnet
from budgetnet.budgets.budget import parse_all
from budgetnet.data.feeds import make_feed
from budgetnet.errors import Interrupted, UserError
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.folder import RunFolder, new_folder
from budgetnet.records.results import DataDescription
from budgetnet.runs.config import Config
from budgetnet.runs.execute import Options, execute
from budgetnet.runs.job import Job
from budgetnet.runs.result import Result
from budgetnet.strategies.recipes import Recipe
from budgetnet.training import checkpoint
from budgetnet.training.tasks import Task
from tests import small_runs
from tests.small_runs import forked, mlp, same_run, short, vectors
from tests.training.test_checkpoint import limited

QUIET = Options(quiet=True)


def make_job(recipe: Recipe | None = None, task: Task | None = None, budget: str = "macs<=60%") -> Job:
    """A search on vectors, its parts made afresh."""
    net = mlp()
    recipe = recipe or short()
    train, validation = make_feed(vectors(160), recipe.batch_size, 0), make_feed(vectors(64, 1), 64, 0)
    config = Config(space="own", data="own", budgets=(budget,))
    about = DataDescription("own", "own", (), net.input_shape)
    return Job(net, task or Task(), train, validation, None, parse_all([budget], net), recipe, config, about)


def search(out: Path, net: SuperNetwork | None = None, train: Any = None, **options: Any) -> Result:
    values = {"budgets": ["macs<=60%"], "recipe": short(), "quiet": True, **options}
    return budgetnet.search(net or mlp(), train or vectors(160), vectors(64, 1), out=out, **values)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    execute(make_job(), out, QUIET)
    return out


def test_the_folder_holds_everything_worth_keeping(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {
        "config.json",
        "data.json",
        "records.jsonl",
        "archive.jsonl",
        "architecture.json",
        "weights.safetensors",
        "structure.json",
        "network.pt2",
        "summary.json",
    } <= names
    config = json.loads((finished / "config.json").read_text())
    assert config["versions"]["torch"] == torch.__version__
    assert config["config"]["seed"] == 0
    archive = [json.loads(line) for line in (finished / "archive.jsonl").read_text().splitlines()]
    assert {"kept", "phase", "epoch", "validation_accuracy", "validation_loss", "costs", "feasible"} <= archive[
        0
    ].keys()
    program = torch.export.load(finished / "network.pt2").module()
    inputs, _ = vectors(16, 3)
    result = budgetnet.load(finished, mlp(seed=9))
    assert torch.allclose(program(inputs), result.model(inputs), atol=1e-6)


def test_a_run_loads_as_it_was(finished: Path) -> None:
    result = budgetnet.load(finished, mlp(seed=9))
    weights = load_file(finished / "weights.safetensors")
    assert all(torch.equal(value, weights[name]) for name, value in result.model.state_dict().items())
    assert [edge.name for edge in result.architecture.live()] == list(result.summary.architecture)
    assert result.met
    inputs, targets = vectors(64, 1)
    accuracy = float((result.model(inputs).argmax(1) == targets).float().mean())
    assert result.summary.validation_score == pytest.approx(accuracy)


def test_loading_needs_a_finished_run_and_a_network_that_fits(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no summary.json"):
        budgetnet.load(tmp_path)
    with pytest.raises(UserError):
        budgetnet.load(finished, mlp(4))


def test_killed_ten_times_at_random_moments_it_ends_bit_identical(finished: Path, tmp_path: Path) -> None:
    """Each child is the same process image, so that it costs no import; it is really killed, by SIGKILL."""
    out, job = tmp_path / "killed", make_job()
    generator = torch.Generator().manual_seed(0)
    lengths = (0.1 + 0.9 * torch.rand(10, generator=generator)).tolist()
    killed = 0
    for length in lengths:
        child = forked(lambda: execute(job, out, Options(quiet=True, resume=True)) and None)
        time.sleep(length)
        os.kill(child, signal.SIGKILL)
        killed += os.waitpid(child, 0)[1] == signal.SIGKILL
    execute(job, out, Options(quiet=True, resume=True))
    same_run(finished, out)
    assert killed >= 5


def test_a_child_killed_in_a_progress_bar_does_not_stop_this_process() -> None:
    """torch.fx has progress bars, whose lock is one for this process and its children."""
    torch.hub.tqdm(disable=True)  # makes the lock
    ready, told = os.pipe()

    def hold() -> None:
        with torch.hub.tqdm.get_lock():
            os.write(told, b"!")
            time.sleep(30)

    child = forked(hold)
    os.read(ready, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    taken = threading.Thread(target=lambda: torch.hub.tqdm(disable=True), daemon=True)
    taken.start()
    taken.join(10)
    assert not taken.is_alive()
    os.close(ready)
    os.close(told)


def interrupted(out: Path, step: int) -> None:
    calls = iter(range(10_000))
    with pytest.raises(Interrupted):
        execute(make_job(), out, Options(quiet=True, should_stop=lambda: next(calls) >= step))


@pytest.mark.parametrize("damage", ["truncated", "flipped", "both"])
def test_a_damaged_checkpoint_is_said_and_the_run_ends_the_same(finished: Path, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "damaged"
    interrupted(out, 13)
    files = sorted((out / "checkpoints").iterdir())
    assert len(files) == 2
    for path in files if damage == "both" else files[-1:]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content) if damage == "flipped" else bytes(content)[:-9])
    said: list[str] = []
    execute(make_job(), out, Options(quiet=True, resume=True, say=said.append))
    assert sum("damaged" in line for line in said) == (2 if damage == "both" else 1)
    same_run(finished, out)


def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "full"
    interrupted(out, 8)
    before = checkpoint.load_latest(out / "checkpoints")[0]
    job = make_job()
    for size in (12_000, (out / "records.jsonl").stat().st_size + 100):
        said = limited(size, lambda: execute(job, out, Options(quiet=True, resume=True)) and None)
        assert said.startswith("UserError: "), said
        assert "cannot be written" in said
        after, corrupt = checkpoint.load_latest(out / "checkpoints")
        assert corrupt == []
        assert after["number"] >= before["number"]
    execute(make_job(), out, Options(quiet=True, resume=True))
    same_run(finished, out)


def test_nothing_is_overwritten(finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="holds a run already"):
        execute(make_job(), finished, QUIET)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_a_folder_at_work_is_refused(tmp_path: Path) -> None:
    (tmp_path / "busy").mkdir()
    with (tmp_path / "busy" / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is at work"):
            execute(make_job(), tmp_path / "busy", QUIET)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written to"):
        execute(make_job(), tmp_path / "file", QUIET)


def test_a_budget_that_cannot_be_met_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be met"):
        execute(make_job(budget="macs<=1%"), tmp_path / "none", QUIET)
    assert not (tmp_path / "none").exists()


def test_new_folders_are_numbered(tmp_path: Path) -> None:
    assert new_folder(tmp_path) == tmp_path / "run-1"
    (tmp_path / "run-1").mkdir()
    assert new_folder(tmp_path) == tmp_path / "run-2"
    assert not RunFolder(tmp_path / "run-1").exists


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs, F.one_hot(targets, 3).float())


SOURCES: dict[str, Callable[[], Any]] = {
    "dataset": lambda: TensorDataset(*vectors(160)),
    "loader": lambda: DataLoader(TensorDataset(*vectors(160)), batch_size=32, shuffle=True),
}


@pytest.mark.parametrize("source", SOURCES)
def test_python_takes_data_of_every_kind(tmp_path: Path, source: str) -> None:
    result = search(tmp_path / "run", train=SOURCES[source](), test=vectors(50, 2))
    assert result.met
    assert not result.model.training
    assert result.model(vectors(4)[0]).shape == (4, 3)
    assert result.summary.test_score is not None
    assert set(result.summary.phases) == {"warm-up", "search", "choose", "race", "finish"}


def test_python_takes_a_loss_that_returns_one_mean_and_costs_as_functions(tmp_path: Path) -> None:
    calls: list[tuple[int, ...]] = []

    def metric(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(tuple(outputs.shape))
        return (outputs.argmax(1) == targets).float()

    budgets = [(small_runs.joules, 5.0), "params<=80%"]
    result = search(tmp_path / "run", loss=squared, metric=metric, budgets=budgets)
    assert result.met
    assert calls
    assert result.summary.budgets[0].unit == "J"
    assert small_runs.weight_of(result.architecture.live()) == result.summary.budgets[0].value <= 5


def test_python_takes_one_budget_as_a_text(tmp_path: Path) -> None:
    (found,) = search(tmp_path / "run", budgets="macs<=60%").summary.budgets
    assert found.met


@pytest.mark.parametrize("missing", ["train", "validation"])
def test_python_needs_data_to_train_and_to_validate(tmp_path: Path, missing: str) -> None:
    data = {"train": vectors(40), "validation": vectors(40, 1), missing: None}
    with pytest.raises(UserError, match="needs both"):
        budgetnet.search(mlp(), **data, budgets=["macs<=60%"], out=tmp_path / "run")


def test_python_resumes_where_it_was(finished: Path, tmp_path: Path) -> None:
    interrupted(tmp_path / "part", 9)
    result = search(tmp_path / "part", resume=True)
    assert result.met
    same_run(finished, tmp_path / "part")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"train": (torch.zeros(40, 6), torch.full((40,), 7))}, "7"),
        ({"train": (torch.zeros(40, 5), torch.zeros(40, dtype=torch.long))}, "5"),
        ({"budgets": []}, "no budget"),
        ({"budgets": ["macs<=1%"]}, "cannot be met"),
        ({"budgets": [(small_runs.raising, 3)]}, "raised ZeroDivisionError"),
        ({"budgets": [(small_runs.not_a_number, 3)]}, "nan"),
        ({"budgets": [(small_runs.late, 5)]}, "nan"),
        ({"recipe": "slow"}, "'slow'"),
        ({"recipe": "fast", "epochs": -1}, "epochs"),
        ({"net": torch.nn.Linear(6, 3)}, "Linear is not a super network"),
        ({"loss": lambda outputs, targets: None}, "the loss gave a NoneType"),
        ({"loss": lambda outputs, targets: outputs.detach().mean()}, "no gradient"),
        ({"metric": lambda outputs, targets: "good"}, "the metric gave a str"),
    ],
)
def test_python_refuses_bad_input_with_a_sentence(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        search(tmp_path / "run", **options)
    assert said in str(error.value)


def test_settings_are_not_accepted_and_then_ignored(tmp_path: Path) -> None:
    """With a recipe of one's own, epochs, groups and batch size are either applied or refused."""
    recipe = short(warmup_epochs=1, search_epochs=1, finish_epochs=2)
    try:
        search(tmp_path / "run", recipe=recipe, batch_size=80)
    except (UserError, TypeError):
        return
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    finish = next(r for r in records if r["kind"] == "phase" and r["phase"] == "finish")
    assert config["batch_size"] == 80
    assert finish["steps"] == pytest.approx(finish["epochs"] * 160 / 80)


def test_a_budget_left_unused_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    execute(make_job(budget="macs<=300%"), tmp_path / "loose", Options(quiet=True, say=said.append))
    assert any("unused" in line and "macs<=300%" in line for line in said)


def test_a_random_cost_that_is_just_within_its_budget_is_not_a_matter_of_luck(tmp_path: Path) -> None:
    """The bound of the full network's mean is as likely inside as outside; what was chosen by it must stay met."""
    maximum = small_runs.weight_of(mlp().graph.full) * (1 + 1.645 * 0.1 / math.sqrt(400))
    recipe = short(warmup_epochs=0.2, search_epochs=0.4, finish_epochs=0.2)
    for seed in range(3):
        result = search(tmp_path / str(seed), budgets=[(small_runs.noisy, maximum)], recipe=recipe, seed=seed)
        assert result.met, seed
