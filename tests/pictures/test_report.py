"""The report: what it says, what it refuses to run, and that no string from a run becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from budgetnet.budgets.budget import parse
from budgetnet.costs import bind
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture
from budgetnet.pictures.report import report, write_report
from budgetnet.pictures.report.breakdown import breakdowns
from budgetnet.pictures.report.charts import BASELINE, BUDGET, OVER, WITHIN, altair, spike_limit
from budgetnet.pictures.report.limits import limits
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.numbers import duration
from budgetnet.pictures.report.page import inert_json
from budgetnet.pictures.report.series import thin, timeline
from budgetnet.pictures.report.views import make_view
from budgetnet.records.folder import find_runs, read_run
from budgetnet.records.records import Record, read
from budgetnet.spaces import build
from tests.random_graphs import examples
from tests.run_folders import CLASSES, SHAPE, SPACE, make_run

EVIL = "<script>alert('1')</script>\"&"
FILES = [
    "config.json",
    "records.jsonl",
    "archive.jsonl",
    "architecture.json",
    "summary.json",
    "certificate.json",
    "data.json",
    "graph.json",
]
QUESTIONS = (
    "Is the budget met?",
    "How good is it?",
    "What was kept?",
    "Where does the cost go?",
    "What would more or less budget buy?",
    "How did it learn?",
    "How do I use it?",
    "How was it made?",
)


class Page(HTMLParser):
    """The text that a reader sees, the tags with their attributes, and the contents of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self._words: list[str] = []
        self.text = text
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        elif "style" not in self._open[-1:]:
            self._words.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self._words).split())

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script reads."""
        value: dict[str, Any] = json.loads(self.scripts[0])
        return value


@pytest.fixture(scope="module")
def networks() -> Networks:
    """Builds the super network of these tests once."""
    return Networks()


@pytest.fixture(scope="module")
def page(run: Path, networks: Networks) -> Page:
    """The report of the first run."""
    return Page(report([run], networks))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "first")


def change(path: Path, name: str, /, **values: Any) -> None:
    content = json.loads((path / name).read_text())
    (path / name).write_text(json.dumps({**content, **values}))


def test_the_answer_comes_first(run: Path, page: Page) -> None:
    summary = json.loads((run / "summary.json").read_text())
    budget = summary["budgets"][0]
    assert f"{budget['value'] / 1e3:.1f}k of at most {budget['maximum'] / 1e3:.1f}k macs" in page.words
    assert "reaches 85.3 % accuracy on test data" in page.words
    assert "certificate holds" in page.words
    order = [page.words.index(part) for part in ("fits its budget", *QUESTIONS)]
    assert order == sorted(order)
    assert "budgetnet search --budget 'macs<=50%'" in page.words


def test_one_file_with_everything_inside(page: Page) -> None:
    addresses = [
        value for _, attrs in page.tags for key, value in attrs.items() if key in ("src", "href", "action", "data")
    ]
    assert addresses
    assert all(value is not None and value.startswith(("data:", "#")) for value in addresses)
    assert "@import" not in page.text
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 3, "data, the chart library once, and our own"
    policy = next(attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    for script in page.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_charts_are_valid_and_have_still_pictures(page: Page) -> None:
    charts = page.data["charts"]
    assert len(charts) >= 5
    for spec in charts.values():
        assert altair().Chart.from_dict(spec, validate=True)
    stills = [attrs for tag, attrs in page.tags if tag == "img"]
    assert len(stills) == len(charts)
    for attrs in stills:
        assert attrs["alt"]
        assert base64.b64decode((attrs["src"] or "").partition(",")[2]).startswith(b"<svg")
    assert set(page.data["configs"]) == {"light", "dark"}


def test_every_value_of_the_records_is_in_the_charts(run: Path, page: Page) -> None:
    """Those of the network alone, and of the distribution; shared weights have no score that could be compared."""
    records, whole = read(run / "records.jsonl")
    assert whole
    specs = page.data["charts"].values()
    shown = {
        round(row["value"], 3)
        for spec in specs
        for table in spec["datasets"].values()
        for row in table
        if "value" in row
    }
    for name in ("validation_loss", "validation_accuracy", "entropy", "mode_cost/macs"):
        phases = ("finish",) if name.startswith("validation") else ("search",)
        values = [r.values[name] for r in records if r.kind == "epoch" and r.phase in phases and name in r.values]
        assert values
        assert {round(float(f"{value:.5g}"), 3) for value in values} <= shown, name
    values = [record.values["loss"] for record in records if record.kind == "step"]
    assert {round(float(f"{value:.5g}"), 3) for value in values} <= shown


def test_slider_frames_are_the_recorded_probabilities(run: Path, page: Page) -> None:
    records, _ = read(run / "records.jsonl")
    recorded = [record.values["probabilities"] for record in records if "probabilities" in record.values]
    slider = page.data["sliders"]["run-0"]
    assert [shot["p"] for shot in slider["shots"]] == [[round(1000 * p) for p in row] for row in recorded]
    net = build(SPACE, SHAPE, CLASSES)
    found = Architecture.from_json(net.graph, (run / "architecture.json").read_text())
    assert slider["found"] == [int(edge.name in found) for edge in net.graph.edges]


def test_strings_of_a_run_are_text(tmp_path: Path) -> None:
    parent = tmp_path / "<b>'bold'&"
    path = make_run(parent / '<script>alert("1")<', labels=(EVIL, "b"))
    config = json.loads((path / "config.json").read_text())
    config["config"][EVIL] = EVIL
    config["command"] = EVIL
    config["versions"] = {EVIL: EVIL}
    (path / "config.json").write_text(json.dumps(config))
    summary = json.loads((path / "summary.json").read_text())
    summary["budgets"][0] |= {"cost": EVIL, "unit": EVIL}
    summary["phases"] = {EVIL: 3}
    (path / "summary.json").write_text(json.dumps(summary))
    with (path / "records.jsonl").open("a") as file:
        for racer, loss in ((1, 0.9), (2, 0.8)):
            values = {"racer": racer, "round": 1, "origin": EVIL, "loss": loss, f"cost/{EVIL}": 3.0 + racer}
            file.write(Record("racer", "race", 1, 99, 0.0, values).to_json() + "\n")
    for runs in ([path], [path, make_run(tmp_path / "other")]):
        text = report(runs)
        page = Page(text)
        assert len([tag for tag, _ in page.tags if tag == "script"]) == 3
        assert "b" not in {tag for tag, _ in page.tags}
        assert EVIL.replace("\n", " ") in page.words
        assert '<script>alert("1")<' in page.words
        assert "alert(" not in "".join(page.scripts[1:])
        assert any(
            EVIL in json.dumps(spec, ensure_ascii=False).replace('\\"', '"') for spec in page.data["charts"].values()
        )


def test_characters_that_act_reach_neither_page_nor_charts(tmp_path: Path) -> None:
    """The chart library ends the whole process on some of them, and XML forbids most."""
    acting = "a\x00b\x01\x1b[2J\u202e\x7f\ufffe"
    path = make_run(tmp_path / "run", labels=(acting, "b"))
    change(path, "config.json", command=acting)
    summary = json.loads((path / "summary.json").read_text())
    summary["budgets"][0] |= {"cost": acting, "unit": acting, "text": acting}
    change(path, "summary.json", budgets=summary["budgets"], phases={acting: 3})
    with (path / "records.jsonl").open("a") as file:
        racer = {"racer": 1, "round": 1, "origin": acting, "loss": 1.0, f"cost/{acting}": 3.0}
        file.write(Record("racer", "race", 1, 2, 0.0, racer).to_json() + "\n")
        line = Record("epoch", acting, 1, 2, 0.0, {"loss": 1.0, f"cost/{acting}": 1.0}).to_json()
        file.write(f"{line}\n")
    text = report([path, make_run(tmp_path / "other", epochs=4)])
    assert "a\ufffdb" in text
    assert not {"\x00", "\x01", "\x1b", "\u202e", "\ufffe"} & set(Page(text).words)
    for spec in Page(text).data["charts"].values():
        assert not {"\x00", "\x01", "\x1b", "\u202e"} & set(json.dumps(spec, ensure_ascii=False))
        assert "\\u0000" not in json.dumps(spec)


@given(st.dictionaries(st.text(max_size=9), st.lists(st.text(max_size=9) | st.integers(), max_size=4), max_size=4))
@examples(100)
def test_embedded_json_holds_no_markup_and_reads_back(value: object) -> None:
    text = inert_json([value, "</script><!--<script>\u2028"])
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text)[0] == value


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_no_reason_to_fail(name: str, run: Path, networks: Networks, tmp_path: Path) -> None:
    for file in FILES:
        if file != name and (run / file).exists():
            os.link(run / file, tmp_path / file)
    view = make_view([read_run(tmp_path)], networks).runs[0]
    words = " ".join([view.answer.state, view.answer.sentence, *view.answer.warnings])
    assert ("not finished" in words) == (name == "summary.json")
    assert ("records are incomplete" in words) == (name == "records.jsonl")
    assert ("budget met, no certificate" in words) == (name == "certificate.json")


JUNK = ["{", "3", '{"budgets": 3, "config": [], "phases": "x", "classes": {}}', "\udcff\x00"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("junk", JUNK)
def test_junk_in_a_file_is_no_reason_to_fail(
    name: str, junk: str, run: Path, networks: Networks, tmp_path: Path
) -> None:
    for file in FILES:
        if file != name and (run / file).exists():
            os.link(run / file, tmp_path / file)
    (tmp_path / name).write_bytes(junk.encode(errors="surrogateescape"))
    view = make_view([read_run(tmp_path)], networks)
    assert view.runs[0].answer.sentence
    json.dumps([chart.chart.spec for chart in view.charts], allow_nan=False)


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    change(path, "summary.json", test_accuracy=float("nan"), macs="many", seconds=None, validation_accuracy=True)
    with (path / "records.jsonl").open("a") as file:
        line = {"kind": "epoch", "phase": "finish", "epoch": 1, "step": 2, "time": 0}
        file.write(json.dumps({**line, "loss": float("inf"), "accuracy": "high", "probabilities": [None] * 28}) + "\n")
    page = Page(report([path]))
    assert "accuracy on" not in page.words.partition("What was kept?")[0]


def test_a_killed_run_says_so(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", stop_after=9)
    with (path / "records.jsonl").open("a") as file:
        file.write('{"kind": "epoch", "pha')
    page = Page(report([path]))
    assert "not finished" in page.words
    assert "The records end in phase “search”, epoch 6." in page.words
    assert "The last line is torn" in page.words
    assert page.data["sliders"]["run-0"]["found"] is None
    assert len(page.data["sliders"]["run-0"]["shots"]) == 6


def test_300_epochs_stay_below_3_megabytes(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", "resnet-fabric:width=18,channels=2", epochs=300, steps=20, shape=(3, 8, 8))
    out = write_report([path])
    assert out == path / "report.html"
    assert out.stat().st_size < 3e6
    assert len(Page(out.read_text()).data["sliders"]["run-0"]["shots"]) == 135


def test_several_runs_side_by_side(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b", "c"))]
    for line in ("archive.jsonl", "records.jsonl"):
        (paths[2] / line).write_text("")
    page = Page(report(paths))
    assert "3 runs" in page.words
    chart = page.data["charts"]["comparison-plane-0"]
    points = chart["datasets"]["points"]
    assert {point["name"]: point["kind"] for point in points} == {
        "a": WITHIN,
        "b": WITHIN,
        "c": BASELINE,
    }
    scores = {point["name"]: point["score"] for point in points}
    assert scores == {"a": 0.861, "b": 0.871, "c": 0.881}, "on validation data, whatever was tested"
    tested = {point["name"]: " ".join(point["test"].split()) for point in points}
    assert tested == {"a": "85.3 %", "b": "86.3 %", "c": "87.3 %"}
    assert set(page.data["sliders"]) == {"run-0", "run-1", "run-2"}


def test_runs_on_different_data_are_not_on_one_front(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b", "c"))]
    change(paths[0], "data.json", name="other data")
    change(paths[2], "data.json", metric={"name": "error", "higher_is_better": False})
    view = make_view([read_run(path) for path in paths], Networks())
    assert [placed.chart.title for placed in view.comparison] == [
        "Validation accuracy against macs on other data",
        "Validation accuracy against macs on made-up",
        "Validation error against macs on made-up",
    ]
    shown = [[point["name"] for point in placed.chart.spec["datasets"]["points"]] for placed in view.comparison]
    assert shown == [["a"], ["b"], ["c"]]


def test_equal_names_are_told_apart(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / parent / "run") for parent in ("one", "two")]
    view = make_view([read_run(path) for path in paths], Networks())
    assert [run.name for run in view.runs] == ["one/run", "two/run"]


def test_a_folder_of_runs_is_all_of_them(tmp_path: Path) -> None:
    for name in ("b", "a"):
        make_run(tmp_path / "runs" / name, epochs=4)
    (tmp_path / "runs" / "notes").mkdir()
    assert find_runs([tmp_path / "runs"]) == [tmp_path / "runs" / "a", tmp_path / "runs" / "b"]
    assert find_runs([tmp_path / "runs" / "a", tmp_path / "runs" / "a"]) == [tmp_path / "runs" / "a"]
    with pytest.raises(UserError, match="not a run folder"):
        report([tmp_path])
    with pytest.raises(UserError, match="not a run folder"):
        report([tmp_path / "nowhere"])


def test_nothing_outside_the_folder_is_read(tmp_path: Path, run: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"command": "the secret"}')
    inside = tmp_path / "run"
    inside.mkdir()
    (inside / "config.json").symlink_to(secret)
    (inside / "records.jsonl").write_text("")
    page = Page(report([inside]))
    assert "the secret" not in page.words
    assert "config.json is a symbolic link" in page.words


def test_code_named_in_a_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run folder from elsewhere names a module that lies in the current folder: it must not be imported."""
    (tmp_path / "trap.py").write_text("from pathlib import Path\nPath('sprung').touch()\ndef build(): ...\n")
    monkeypatch.chdir(tmp_path)
    path = make_run(tmp_path / "run", epochs=4)
    config = json.loads((path / "config.json").read_text())
    config["config"] |= {"space": "trap:build", "budgets": ["trap:build<=3"]}
    (path / "config.json").write_text(json.dumps(config))
    page = Page(report([path]))
    assert "only when asked: add --space trap:build" in page.words
    assert not (tmp_path / "sprung").exists()


def test_a_run_over_its_budget_is_red(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b"))]
    summary = json.loads((paths[1] / "summary.json").read_text())
    summary["budgets"][0]["met"] = False
    change(paths[1], "summary.json", budgets=summary["budgets"])
    chart = make_view([read_run(path) for path in paths], Networks()).comparison[0].chart
    scale = next(layer["encoding"]["color"] for layer in chart.spec["layer"] if "color" in layer["encoding"])["scale"]
    colours = dict(zip(scale["domain"], scale["range"], strict=True))
    assert colours[OVER] == BUDGET != colours[WITHIN]
    assert dict(chart.key) == {WITHIN: "k-circle", OVER: "k-cross"}
    assert "For a curve over budgets" not in Page(report(paths)).words, "the page has it"
    assert "does not fit its budget" in Page(report(paths)).words


def test_seeds_give_a_spread(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    other = make_run(tmp_path / "other", epochs=4)
    (spread,) = make_view([read_run(path) for path in (*paths, other)], Networks()).spreads
    assert (spread.count, " ".join(spread.validation.split())) == (3, "87.1 % ± 1.0 %")


def test_the_race_is_told_by_candidate(run: Path, page: Page) -> None:
    view = make_view([read_run(run)], Networks()).runs[0]
    assert view.race is not None
    assert view.race.rounds == ["loss after 1 epochs", "loss after 2 epochs"]
    rows = [(row.place, row.number, row.proposed, row.losses, row.won) for row in view.race.rows]
    assert rows == [
        ("1", 2, "a sample of Γ", ["0.7", "0.5"], True),
        ("2", 3, "the search", ["0.8", "0.6"], False),
        ("3", 1, "Γ's mode", ["0.9", "–"], False),
    ]
    assert "candidate 2, a sample of Γ, won: its loss was 0.5, that of the next best 0.6" in page.words
    plane = page.data["charts"]["run-0-plane-0"]["datasets"]
    assert sorted(point["score"] for point in plane["points"]) == [0.7, 0.8, 0.9], "after equally long trainings"
    assert [point["score"] for point in plane["front"]] == [0.9, 0.7]
    assert view.quality is not None
    assert [(row.name, row.loss) for row in view.quality.rows] == [
        ("the network found", "0.7"),
        ("the 2 losers", "0.8 to 0.9"),
    ]


def test_a_share_has_its_standard_error(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    change(path, "summary.json", examples={"validation": 400, "test": 1000})
    words = Page(report([path])).words
    assert "± 1.1 points (standard error, 1,000 examples)" in words, (0.853 * 0.147 / 1000) ** 0.5
    change(path, "data.json", metric={"name": "mae", "higher_is_better": False, "format": ".3g"})
    summary = json.loads((path / "summary.json").read_text())
    summary |= {"metric": {"name": "mae", "higher_is_better": False, "format": ".3g"}, "test_mae": 1.25}
    summary |= {"validation_mae": 1.5}
    (path / "summary.json").write_text(json.dumps(summary))
    words = Page(report([path])).words
    assert "reaches mae 1.25 on test data" in words
    assert "lower is better" in words
    assert "accuracy" not in words.partition("How did it learn?")[0]


def test_spikes_are_cut_off_and_said() -> None:
    assert spike_limit([1.0] * 7 + [90.0]) is None or spike_limit([1.0] * 7 + [90.0]) < 90
    assert spike_limit([1.0, 2.0]) is None
    assert spike_limit([float(i) for i in range(20)]) is None
    limit = spike_limit([1.0, 1.1, 1.2, 1.3, 1.2, 1.1, 1.0, 1.4, 1.3, 60.0])
    assert limit is not None
    assert 1.4 < limit < 60


def test_no_chart_mixes_two_scales(page: Page) -> None:
    """Shared weights and a network alone never share a chart; nor do learning rates of different things."""
    shared, alone = {"warm-up", "search"}, {"race", "finish"}
    for spec in page.data["charts"].values():
        phases = {row["phase"] for row in spec["datasets"].get("rows", [])}
        assert not (phases & shared and phases & alone)


@pytest.mark.parametrize(("name", "count"), [("macs", 3), ("params", 4), ("size", 5)])
def test_breakdown_adds_up(name: str, count: int) -> None:
    net = build("resnet-fabric:width=3,channels=4", (3, 16, 16))
    meter = bind(name, net)
    gates = torch.rand(len(net.graph.edges), generator=torch.Generator().manual_seed(count)) < 0.8
    architecture = net.graph.architecture(gates)
    table = next(breakdowns(architecture, {name: meter}, None))
    assert sum(part.value for part in table.parts) == pytest.approx(meter(architecture))
    named = {part.name for part in table.parts} & set(net.graph.index)
    assert named == {edge.name for edge in architecture.live()}


def test_limits_of_an_unfinished_run_come_from_its_configuration(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", budgets=("macs<=50%", "steps(2)<=25"), stop_after=3)
    net = build(SPACE, SHAPE, CLASSES)
    found = limits(read_run(path), Networks().of(read_run(path))[0])
    assert [(limit.cost, limit.maximum) for limit in found] == [
        ("macs", parse("macs<=50%", net).maximum),
        ("steps(2)", 25.0),
    ]
    assert all(limit.met is None and limit.value is None for limit in found)


@given(st.lists(st.integers(), max_size=60), st.integers(2, 20))
@examples(200)
def test_thinning_keeps_the_ends_and_the_order(items: list[int], most: int) -> None:
    numbered = list(enumerate(items))
    kept = thin(numbered, most)
    assert len(kept) == min(len(items), most)
    assert kept == sorted(kept)
    assert not items or (kept[0], kept[-1]) == (numbered[0], numbered[-1])
    gaps = {b[0] - a[0] for a, b in pairwise(kept)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_places_on_the_time_axis() -> None:
    """Half an epoch of warm-up, one and a half of search, a choice without epochs, and an unfinished finish."""
    records = [
        Record("phase", "warm-up", 0, 0, 0, {"epochs": 0.5, "steps": 5}),
        Record("epoch", "warm-up", 1, 5, 0, {"loss": 3.0}),
        Record("phase", "search", 0, 0, 0, {"epochs": 1.5, "steps": 15}),
        Record("step", "search", 1, 3, 0, {"loss": 2.0}),
        Record("epoch", "search", 2, 15, 0, {"loss": 1.0}),
        Record("phase", "choose", 0, 0, 0, {"steps": 9}),
        Record("candidate", "choose", 1, 4, 0, {"validation_loss": 1.0}),
        Record("phase", "finish", 0, 0, 0, {"epochs": 4, "steps": 40}),
        Record("step", "finish", 1, 7, 0, {"loss": 0.5}),
    ]
    time = timeline(records)
    assert [(round(place, 3), record.kind) for place, record in time.moments if record.values.get("loss")] == [
        (0.5, "epoch"),
        (0.8, "step"),
        (2.0, "epoch"),
        (2.7, "step"),
    ]
    assert [(row["phase"], row["start"], row["end"]) for row in time.phases] == [
        ("warm-up", 0.0, 0.5),
        ("search", 0.5, 2.0),
        ("finish", 2.0, 2.7),
    ]


def test_nothing_is_overwritten_unasked(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("precious")
    with pytest.raises(UserError, match="--force"):
        write_report([run], out)
    assert out.read_text() == "precious"
    write_report([run], out, force=True)
    assert "fits its budget" in Page(out.read_text()).words


def test_durations_for_people() -> None:
    assert [duration(s) for s in (None, 0.4, 119, 120, 3600 * 3 + 60 * 20)] == [
        "–",
        "0 s",
        "119 s",
        "2 min",
        "3 h 20 min",
    ]


def test_a_slider_that_cannot_move_is_not_shown(page: Page) -> None:
    sliders = [attrs for tag, attrs in page.tags if "data-slider" in attrs]
    assert len(sliders) == 1
    assert "hidden" in sliders[0], "until the script is there"
