"""The figures of the README's table are those of the committed result files, computed from them again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
TABLE = [line for line in README.partition("## Results")[2].partition("\n## ")[0].splitlines() if line.startswith("| ")]
QUALITY = ("resnet_100_16", "resnet_30_16", "neural_10_16")


def result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def row(start: str) -> str:
    """What the only row of the table that begins so says."""
    (found,) = [line for line in TABLE if line.startswith(f"| {start}")]
    return found


def differences(opponent: str, *files: str) -> list[str]:
    """Search minus an opponent, with its standard error, as the table has them."""
    found = [result(f"quality_{name}")[opponent]["search_minus_this"] for name in files]
    return [f"{one['points']:+.1f} ± {one['standard_error']:.1f}".replace("-", "−") for one in found]


def test_the_table_is_short_and_names_files_that_exist() -> None:
    assert len(TABLE) - 2 <= 8
    for name in re.findall(r"`([\w*]+\.json)`", "".join(TABLE)):
        assert list(RESULTS.glob(name)), name


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_names_result_files_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, after in re.findall(r"benchmarks/results/([a-z][\w*]+\.\w+)`([^.]*)", text):
        assert list(RESULTS.glob(re.sub("[A-Z]+", "*", name))) or "are in the history" in after, name


def test_kept_budgets() -> None:
    outcomes = [run["outcome"] for run in result("budgets_kept")["runs"]]
    met, refused, missed = (outcomes.count(name) for name in ("met", "refused", "missed"))
    assert len(outcomes) == 30
    assert f"{met} met, {refused} refused before training, {missed} missed" in row("Are budgets kept?")


def test_budgets_of_own_models() -> None:
    found, said = result("own_model_budgets"), row("Do budgets hold for own models?")
    held = sum(one["met"] and one["certified"] for one in found["results"])
    assert f"{held} of {found['n']} met, certified and exported" in said
    together = max((one["budgets"] for one in found["results"]), key=len)
    names = [budget.partition("<=")[0].partition("(")[0].replace("_", " ") for budget in together]
    assert all(name in said for name in names)


def test_latency_budgets() -> None:
    found = result("latency_budgets")
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (said,) = [line for line in page.splitlines() if line.startswith("| Do latency budgets hold?")]
    refused = found["n"] - found["searched"]
    assert found["refused_exactly_those_below_the_smallest"]
    assert f" {found['n']} short searches" in said
    assert f"the {refused} below the smallest refused, the other {found['certificates_hold']} certified" in said
    assert f"all {found['remeasured_hold']} hold when measured again" in said


def test_exports_and_models() -> None:
    found = result("export_agreement")
    largest = max(one["largest_difference"] for one in found["results"])
    (bound,) = re.findall(r"within ([\d.e-]+),", row("Do exported networks agree"))
    assert largest <= float(bound) < 1.1 * largest
    assert not any(one["predictions_differ"] for one in found["results"])
    models = result("own_models")["results"]
    compared = [one["equal_to_extracted"] for one in models if "equal_to_extracted" in one]
    assert not any("refused" in one for one in models)
    said = row("Which models can be converted?")
    assert f"? {len(models)}, " in said
    assert f"{min(compared)} random architectures of each of {len(compared)} small ones" in said


def test_search_against_random_networks() -> None:
    said = row("Search − random networks of the same cost")
    assert re.findall(r"[+−][\d.]+ ± [\d.]+", said) == differences("random", *QUALITY)
    assert {result(f"quality_{name}")["search"]["n"] for name in QUALITY} == {5}


def test_the_price_of_a_search() -> None:
    walls = {
        epochs: [result(path.stem)["wall_over_training"]["mean"] for path in RESULTS.glob(f"quality_*_{epochs}.json")]
        for epochs in (16, 64)
    }
    said = row("Whole search")
    for epochs, text in ((16, "at 16 epochs"), (64, "at 64")):
        ends = dict.fromkeys(f"{wall:.2f}" for wall in (min(walls[epochs]), max(walls[epochs])))
        assert f"{' to '.join(ends)} {text}" in said


SEEDS = {2: "two", 3: "three", 5: "five"}
TIMED = ("resnet_30_16", "resnet_30_64", "neural_10_16", "neural_10_64")


def test_search_against_random_networks_with_the_same_seconds() -> None:
    said = row("Search − random networks that train")
    assert re.findall(r"[+−][\d.]+ ± [\d.]+", said) == differences("timed", *TIMED)
    a, b, c, d = (SEEDS[result(f"quality_{name}")["timed"]["n"]] for name in TIMED)
    assert f"({a}, {b}; {c}, {d} seeds)" in said


TRAINED = ("ours, taught", "ours", "magnitude", "taylor", "fastnas", "uniform", "random", "scratch")
"""The columns of the page's table of trained models."""


def accuracies(part: str, contestant: str, *limits: float) -> str:
    """Mean test accuracies in percent at some limits, of three seeds each."""
    rows = {entry["limit"]: entry["rows"][contestant]["test"] for entry in result("trained")[part]}
    assert {rows[limit]["n"] for limit in limits} == {3}, "the row says three seeds"
    return ", ".join(f"{rows[limit]['mean']:.1f}" for limit in limits) + " %"


def test_a_trained_model_against_other_tools() -> None:
    said, macs, times = row("A trained ResNet-20 made to fit"), (0.5, 0.3, 0.15), (0.6, 0.4, 0.3)
    names = {"ours, taught": "ours", "magnitude": "Torch-Pruning", "fastnas": "FastNAS", "uniform": "uniform widths"}
    for name, called in names.items():
        assert f"{called} {accuracies('macs', name, *macs)}" in said.partition("of the time")[0]
    for name in ("ours, taught", "magnitude", "uniform"):
        assert f"{names[name]} {accuracies('latency', name, *times)}" in said.partition("of the time")[2]


def test_the_page_has_every_number_of_the_trained_models() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for part, unit in (("macs", "multiply-adds"), ("latency", "time")):
        for entry in result("trained")[part]:
            cells = []
            for name in TRAINED:
                test = entry["rows"].get(name, {}).get("test")
                spread = f" ± {test['std']:.1f}" if test and test["n"] > 1 else ""
                cells.append(f"{test['mean']:.1f}{spread} ({test['n']})" if test else "–")
            assert f"| {100 * entry['limit']:g} % of the {unit} | {' | '.join(cells)} |" in page
