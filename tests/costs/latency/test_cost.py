"""`latency`: its statistics by hand on made-up times, and the life of the cost on a small network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from budgetnet.costs import bind, latency, latency_p95
from budgetnet.costs.base import Cost
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.latency import timing
from budgetnet.costs.latency.cost import Effort, Latency
from budgetnet.costs.latency.runtimes import Runtime
from budgetnet.costs.latency.timing import Series
from budgetnet.errors import UserError
from budgetnet.export.folding import fold
from budgetnet.export.onnx_graph import to_onnx
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import resnet_fabric

latency_module = sys.modules["budgetnet.costs.latency.cost"]


def series(network: list[float], reference: list[float], disturbed: list[bool] | None = None) -> Series:
    flags = disturbed or [False] * len(network)
    return Series(np.array(network), np.array(reference), np.array(flags), np.array(network) / 10)


def small() -> SuperNetwork:
    return resnet_fabric(width=1, channels=4, groups=2, classes=3, input_shape=(1, 8, 8))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few networks and short series: what is tested here does not depend on how well they are known."""
    monkeypatch.setattr(Runtime, "samples", 5)
    for effort in ("FIT", "CANDIDATE", "CERTIFY"):
        monkeypatch.setattr(latency_module, effort, Effort(0.02, 2))
    monkeypatch.setattr(latency_module, "PATIENCE", 0.2)


def test_the_statistics_of_a_series_by_hand() -> None:
    times = series([2.0, 9.0, 4.0, 6.0, 30.0], [1.0, 3.0, 2.0, 2.0, 10.0])
    assert float(timing.ratio(times)) == 3.0  # of 2, 3, 2, 3, 3
    assert float(timing.quiet(times)) == pytest.approx(1.4)  # between the smallest, 1, and the next, 2
    assert float(timing.latency(times)) == pytest.approx(4.2)
    assert float(timing.p95(times)) == pytest.approx(9 + 0.8 * 21)


def test_a_machine_that_slows_down_for_most_of_the_time_changes_nothing() -> None:
    generator = np.random.default_rng(0)
    slow = np.where(generator.random(200) < 0.8, 1 + 3 * generator.random(200), 1.0)
    calm, busy = series([0.006] * 200, [0.002] * 200), series([*(0.006 * slow)], [*(0.002 * slow)])
    assert float(timing.latency(busy)) == pytest.approx(float(timing.latency(calm))) == pytest.approx(0.006)
    assert float(timing.p95(busy)) > 2 * float(timing.p95(calm))


def test_statistics_of_many_resamples_at_once_are_those_of_each() -> None:
    generator = np.random.default_rng(1)
    times = series([*generator.random(30)], [*generator.random(30)])
    index = generator.integers(30, size=(7, 30))
    for statistic in (timing.ratio, timing.quiet, timing.latency, timing.p95):
        together = statistic(times.at(index))
        assert together.tolist() == [float(statistic(times.at(row))) for row in index]


def test_the_interval_of_a_constant_is_a_point_and_that_of_noise_covers_the_truth() -> None:
    assert timing.interval(series([3.0] * 40, [2.0] * 40), timing.latency) == (3.0, 3.0)
    generator = np.random.default_rng(2)
    covered = 0
    for trial in range(100):
        noise = np.exp(0.1 * generator.standard_normal(80))
        low, high = timing.interval(series([*(5 * noise)], [1.0] * 80), timing.ratio, seed=trial)
        assert low <= float(np.median(5 * noise)) <= high
        covered += low <= 5 <= high
    assert covered >= 88


def test_neighbours_are_redrawn_together() -> None:
    blocks = timing._blocks(25, 50, np.random.default_rng(3))
    assert blocks.shape == (50, 25)
    inside = (blocks[:, 1:] - blocks[:, :-1]) % 25 == 1
    assert inside.reshape(50, -1)[:, [i for i in range(24) if i % 5 != 4]].all()


def test_disturbed_pairs_are_left_out_or_counted_by_the_processors_time() -> None:
    calm, loud = [1.0] * timing.PAIRS[0], [100.0] * 30
    flags = [False] * len(calm) + [True] * len(loud)
    whole = series(calm + loud, [1.0] * len(flags), flags)
    assert whole.calm().network.tolist() == calm
    few = whole.at(np.arange(2, len(flags)))
    assert few.calm().network.tolist() == [*calm[2:], *([10.0] * 30)]
    assert len(timing.join([whole, few])) == len(whole) + len(few)


def test_every_run_of_the_network_is_followed_by_runs_of_the_reference() -> None:
    calls: list[str] = []
    found = timing._pairs(lambda: calls.append("n"), lambda: calls.append("r"), 2, range(5, 9), 0.01, timing._timed)
    assert 5 <= len(found) <= 9
    assert re.fullmatch(f"(nrrr?){{{len(found)}}}", "".join(calls)), "one more to warm up after a rest"


def test_every_round_prepares_both_anew() -> None:
    made: list[str] = []

    def preparation(name: str) -> Callable[[], timing.Run]:
        return lambda: made.append(name) or (lambda: sum(range(1000)))  # type: ignore[func-returns-value]

    found = timing.interleave(preparation("network"), preparation("reference"), seconds=0.02, rounds=3)
    assert made == ["network", "reference"] * 3
    assert timing.PAIRS[0] <= len(found) <= timing.PAIRS[1] + 3
    assert (found.network > 0).all()
    assert (found.reference > 0).all()


@pytest.mark.parametrize("runtime", ["onnx", "eager"])
def test_a_cost_predicts_measures_and_remembers_exactly(runtime: str) -> None:
    net = small()
    cost = latency(net, runtime=runtime)
    assert isinstance(cost, Cost)
    assert cost.measured
    random_state, threads = torch.get_rng_state(), torch.get_num_threads()
    gates = torch.stack([net.graph.full.gates(), cost.smallest().gates()])
    predicted = cost.evaluate(gates)
    evidence = cost.evidence(net.graph.full)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == threads
    assert predicted.dtype == torch.float64
    assert 0 < predicted[1] < predicted[0]
    assert predicted[0] > cost(net.graph.full), "a bound has a margin"
    assert 0 < evidence.value < evidence.upper_bound
    assert evidence.cautious >= max(evidence.upper_bound, evidence.value * (1 + latency_module.HEADROOM[0]))
    assert cost.evidence(net.graph.full) == evidence
    again = latency(small(), runtime=runtime)
    again.load_state_dict(json.loads(json.dumps(cost.state_dict())))
    assert again.evaluate(gates).tolist() == predicted.tolist()
    assert again.evidence(net.graph.full) == evidence
    assert again.state_dict() == cost.state_dict()


def test_a_refresh_measures_fresh_samples_and_says_how_far_off_it_was() -> None:
    net = small()
    cost = latency(net)
    rows = torch.rand(12, len(net.graph.edges), generator=torch.Generator().manual_seed(0)) < 0.7
    live = net.graph.live(rows)
    known = len((cost.evaluate(live[:1]), cost.state_dict()["ratios"])[1])
    found = cost.refresh(live)
    assert found["error"] >= 0
    assert found["refitted"] == float(found["error"] > latency_module.TOLERATED)
    assert len(cost.state_dict()["ratios"]) == known + found["measured"]
    assert cost.refresh(torch.zeros_like(live)) == {}


def test_a_certificate_measures_what_is_handed_over() -> None:
    net = small()
    network = extract(net, net.graph.full).eval()
    packed: list[bytes] = []

    def pack() -> bytes:
        packed.append(to_onnx(fold(network), net.input_shape, scaled=True).SerializeToString())
        return packed[0]

    deliverable = Deliverable(net.graph.full, network, pack)
    for runtime, files in (("eager", 0), ("onnx", 1)):
        cost = latency(net, runtime=runtime)
        generous, hopeless = cost.certify(deliverable, 60.0), cost.certify(deliverable, 1e-12)
        assert len(packed) == files
        assert 0 < generous.value <= generous.upper_bound < 60
        assert hopeless.upper_bound > 1e-12
        assert generous.how["network"] == ("exported" if files else "extracted")
        assert generous.how["samples"] >= timing.PAIRS[0]
        assert generous.how["interval"][1] == generous.upper_bound
        assert cost.state_dict()["coefficients"] is None, "a certificate never uses the predictor"


def test_the_95th_percentile_is_that_of_all_runs() -> None:
    cost = latency_p95(small(), runtime="eager")
    assert isinstance(cost, Latency)
    times = series([*map(float, range(1, 101))], [1.0] * 100, [True] * 100)
    assert cost._judge(times).value == pytest.approx(np.quantile(np.arange(1, 101), 0.95))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("latency(runtime=tensorrt)", ["'tensorrt'", "onnx, eager, compile"]),
        ("latency(batch=0)", ["batch=0", "1 or more"]),
        ("latency_p95(threads=-1)", ["threads=-1"]),
        ("latency(batch=one)", ["batch of latency", "'one'"]),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        bind(text, small())
    assert all(word in str(error.value) for word in words)


def test_without_onnx_runtime_the_extra_is_named() -> None:
    code = """
import sys
sys.modules["onnxruntime"] = None
from budgetnet.costs import bind
from budgetnet.errors import UserError
from budgetnet.spaces import resnet_fabric
net = resnet_fabric(width=1, channels=2, groups=2, input_shape=(1, 8, 8))
try:
    bind("latency", net)(net.graph.full)
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "onnxruntime" in done.stdout
    assert "pip install 'budgetnet[export]'" in done.stdout
