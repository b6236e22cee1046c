"""Certificates: every budget by its own evidence, the verdict, the files, and measuring again from a run or a file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from budgetnet.budgets.budget import Budget, parse, parse_all
from budgetnet.budgets.certificate import Certificate, certify, file_checksums
from budgetnet.costs import Cost, FunctionCost, Meter, macs, params, size
from budgetnet.costs.evidence import Evidence
from budgetnet.errors import UserError
from budgetnet.export.files import sha256
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.records.environment import environment
from budgetnet.runs.stored import open_stored
from tests import stored_runs
from tests.small_runs import refused, run_cli


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return stored_runs.make_run(tmp_path_factory.mktemp("run"))


def test_a_certificate_holds_what_the_issue_of_it_says() -> None:
    net = stored_runs.network()
    architecture = net.named["resnet-8"]
    exact = macs(net)(architecture)
    budgets = parse_all([f"macs<={exact}", "peak_memory<=1GB"], net)
    certificate = json.loads(
        json.dumps(certify(net, architecture, budgets, checksums={"file": "abc"}, environment=environment()).to_json())
    )
    assert list(certificate) == ["holds", "budgets", "machine", "versions", "checksums"]
    assert certificate["holds"] is True
    assert certificate["checksums"] == {"file": "abc"}
    assert certificate["versions"]["torch"] == torch.__version__
    first, second = certificate["budgets"]
    assert {"cost", "maximum", "measured", "upper_bound", "how", "holds"} <= set(first)
    assert (first["cost"], first["maximum"], first["measured"], first["upper_bound"]) == ("macs", exact, exact, exact)
    assert first["how"]["method"] == "exact, counted on the network"
    assert (first["extracted"], first["exported"]) == (exact, None)
    assert second["upper_bound"] == max(second["how"]["analysis"], second["how"]["real_run"])


def test_both_forms_of_the_network_are_in_the_certificate_of_a_latency() -> None:
    net = stored_runs.network()
    budgets = parse_all(["latency<=10s", "latency_p95(runtime=eager)<=10s", "file_size<=1GB"], net)
    onnx, eager, file = certify(net, net.named["resnet-8"], budgets, environment=environment()).budgets
    for entry, judged in ((onnx, "exported"), (eager, "extracted")):
        assert getattr(entry, judged) == entry.measured
        assert 0 < (entry.extracted or 0) < 10
        assert 0 < (entry.exported or 0) < 10
    assert (file.extracted, file.exported) == (None, file.measured)


def test_a_cost_that_the_network_itself_exceeds_does_not_hold() -> None:
    """The network is counted, not believed: here it is larger than the architecture that it is said to be."""
    net = stored_runs.network()
    small, full = net.named["resnet-8"], net.graph.full
    for name, cost in (("macs", macs(net)), ("params", params(net)), ("size", size(net))):
        budgets = parse_all([(name, cost(small))], net)
        assert certify(net, small, budgets, environment=environment()).holds
        [entry] = certify(net, small, budgets, network=extract(net, full), environment=environment()).budgets
        assert entry.measured == cost(full)
        assert not entry.holds


def test_one_budget_that_does_not_hold_spoils_the_certificate() -> None:
    net = stored_runs.network()
    exact = macs(net)(net.graph.full)
    certificate = certify(
        net, net.graph.full, parse_all([f"macs<={exact - 1}", "size<=1GB"], net), environment=environment()
    )
    assert [entry.holds for entry in certificate.budgets] == [False, True]
    assert certificate.holds is False
    text = certificate.show()
    assert text.count("does not hold") == 2
    assert text.endswith("the certificate does not hold")


def limit(function: Callable[..., float], maximum: float, **options: object) -> Budget:
    net = stored_runs.network()
    return Budget("made up", Meter(FunctionCost(net.graph, function, "cost", **options)), maximum)  # type: ignore[arg-type]


def test_bounds_decide_not_values() -> None:
    """A random cost whose mean is within the budget, but not its bound; and a bound that is no number."""
    net = stored_runs.network()
    values = iter([0.0, 1.0] * 10_000)
    mean = limit(lambda _: next(values), 0.51, stochastic=True)
    [entry] = certify(net, net.graph.full, [mean], environment=environment()).budgets
    assert entry.measured == 0.5 < 0.51 < entry.upper_bound
    assert not entry.holds

    class Unknown(Cost):
        def __call__(self, architecture: Architecture, batch: object = None) -> float:
            return 0.0

        def certify(self, deliverable: object, maximum: float) -> Evidence:
            return Evidence(0.0, float("nan"))

    assert not certify(
        net, net.graph.full, [Budget("made up", Meter(Unknown(net.graph)), 1.0)], environment=environment()
    ).holds


def test_a_cost_of_the_batch_is_measured_over_the_batches() -> None:
    net = stored_runs.network()
    batches = [torch.full((2,), value) for value in (1.0, 2.0, 3.0)]
    budget = limit(lambda architecture, batch: float(batch.sum()), 100.0)
    [entry] = certify(net, net.graph.full, [budget], batches=batches, environment=environment()).budgets
    assert entry.measured == 4.0
    assert entry.upper_bound > 4.0
    assert entry.how["samples"] == 3


def test_a_certificate_survives_its_file_and_is_the_format_of_the_version_before() -> None:
    """The keys and their order are those of certificates that were written as dictionaries."""
    net = stored_runs.network()
    certificate = certify(net, net.graph.full, parse_all(["macs<=1G", "steps(2)<=99"], net), environment=environment())
    value = json.loads(json.dumps(certificate.to_json()))
    assert list(value) == ["holds", "budgets", "machine", "versions", "checksums"]
    names = "cost text unit maximum measured upper_bound extracted exported how holds"
    assert [list(entry) for entry in value["budgets"]] == [names.split()] * 2
    assert Certificate.from_json(value) == certificate
    assert Certificate.from_json({**value, "of a later version": 1}) == certificate


OLD: dict[str, object] = {
    "holds": True,
    "budgets": [
        {
            "cost": "macs",
            "text": "macs<=60%",
            "unit": "macs",
            "maximum": 100,
            "measured": 80.0,
            "upper_bound": 80.0,
            "extracted": 80.0,
            "exported": None,
            "how": {"network": "extracted", "method": "exact, counted on the network"},
            "holds": True,
        }
    ],
    "machine": {"processor": "some processor", "cores": 2, "accelerator": None},
    "versions": {"torch": "2.13.0"},
    "checksums": {"weights.safetensors": "ab"},
}


def changed(path: str, value: object) -> dict[str, object]:
    """A certificate of the version before, with one field changed."""
    made: dict[str, object] = copy.deepcopy(OLD)
    place: Any = made
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    for key in way:
        place = place[key]
    place[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("holds", "yes", "holds is a text, not true or false"),
        ("budgets", {}, "budgets is an object with fields, not a list"),
        ("budgets.0", 3, r"budgets\[0\] is a whole number"),
        ("budgets.0.cost", None, r"budgets\[0\]\.cost is null, not a text"),
        ("budgets.0.maximum", "much", r"budgets\[0\]\.maximum is a text, not a number"),
        ("budgets.0.measured", -1.0, r"budgets\[0\]\.measured is -1, not a number from 0"),
        ("budgets.0.measured", float("nan"), r"budgets\[0\]\.measured is nan"),
        ("budgets.0.upper_bound", [], r"budgets\[0\]\.upper_bound is a list, not a number"),
        ("budgets.0.exported", "big", r"budgets\[0\]\.exported is a text"),
        ("budgets.0.how", "so", r"budgets\[0\]\.how is a text"),
        ("budgets.0.holds", 1, r"budgets\[0\]\.holds is a whole number, not true or false"),
        ("versions", [], "versions is a list"),
        ("versions.torch", 2, r"versions\.torch is a whole number"),
        ("checksums.weights", 7, r"checksums\.weights is a whole number, not a text"),
        ("machine", 0, "machine is a whole number"),
    ],
)
def test_a_wrong_field_of_a_certificate_is_named(path: str, value: object, words: str) -> None:
    assert Certificate.from_json(OLD).budgets[0].maximum == 100
    with pytest.raises(UserError, match=f"^c.json: {words}"):
        Certificate.from_json(changed(path, value), "c.json")


def test_what_a_certificate_says_cannot_act_on_a_terminal() -> None:
    shown = Certificate.from_json(changed("budgets.0.cost", "\x1b[2Jmacs\n\n")).show()
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 3


def test_the_network_that_is_certified_is_left_as_it_was() -> None:
    net = stored_runs.network()
    network = extract(net, net.graph.full).train()
    before = copy.deepcopy(network.state_dict())
    certify(
        net,
        net.graph.full,
        parse_all(["peak_memory<=1GB", "file_size<=1GB"], net),
        network=network,
        environment=environment(),
    )
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_checksums_are_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_checksums([tmp_path / "a"]) == {"a": known} == {"a": sha256(b"abc")}


def test_a_run_is_measured_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_cli(capsys, "certify", run, "--json")
    again, before = json.loads(out), json.loads((run / "certificate.json").read_text())
    assert (code, err) == (0, "")
    for entry, old in zip(again["budgets"], before["budgets"], strict=True):
        assert {key: entry[key] for key in ("cost", "maximum", "measured")} == {
            key: old[key] for key in ("cost", "maximum", "measured")
        }
    assert again["checksums"]["weights.safetensors"] == sha256((run / "weights.safetensors").read_bytes())
    code, out, _ = run_cli(capsys, "certify", run)
    assert code == 0
    assert "the certificate holds" in out


def test_a_budget_that_does_not_hold_is_exit_code_1(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run_cli(capsys, "certify", run, "--budget", "macs<=1", "--budget", "params<=1M")
    assert (code, err) == (1, "")
    assert "does not hold: macs <= 1" in out
    assert "holds: params <= 1.000M" in out


def test_a_model_file_is_measured_itself(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.onnx"
    assert run_cli(capsys, "export", run, "-o", file)[0] == 0
    code, out, _ = run_cli(capsys, "certify", file, "--json")
    found = json.loads(out)
    assert code == 0
    assert [entry["cost"] for entry in found["budgets"]] == ["macs", "size"]
    assert found["checksums"]["model.onnx"] == sha256(file.read_bytes())
    code, out, _ = run_cli(capsys, "certify", file, "--json", "--budget", "file_size<=1MB", "--budget", "latency<=60s")
    size, latency = json.loads(out)["budgets"]
    assert code == 0
    assert size["measured"] >= file.stat().st_size
    assert latency["how"]["network"] == "exported"
    assert latency["measured"] <= latency["upper_bound"] < 60
    assert run_cli(capsys, "certify", file, "--budget", "file_size<=1kB")[0] == 1


def test_weights_that_were_not_certified_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored_runs.make_run(tmp_path / "run")
    weights = bytearray((folder / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(bytes(weights))
    assert "not what its certificate was made for" in refused(capsys, "certify", folder)
    (folder / "certificate.json").unlink()
    (folder / "weights.safetensors").write_bytes(b"nothing of the kind")
    assert "the weights in" in refused(capsys, "export", folder, "-o", tmp_path / "a.onnx")


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no finished run" in refused(capsys, "certify", tmp_path)
    assert "there is no" in refused(capsys, "certify", tmp_path / "absent")


def test_a_network_of_ones_own_is_given_from_python(tmp_path: Path) -> None:
    folder = stored_runs.make_run(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["config"]["space"] = "own"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="of a network of your own, and has no structure"):
        open_stored(folder)
    stored = open_stored(folder, stored_runs.network(seed=9))
    limits = [parse(pair, stored.net) for pair in stored.limits]
    assert certify(stored.net, stored.architecture, limits, environment=environment()).holds
