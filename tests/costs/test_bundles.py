"""Costs of super networks with bundles, chains and fixed edges: exact for every set of units, on extracted networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.certificate import certify
from budgetnet.budgets.feasibility import smallest
from budgetnet.costs import bind, count
from budgetnet.costs.footprints import run_peak
from budgetnet.costs.latency.predictor import error, features, fit
from budgetnet.costs.traffic import place
from budgetnet.errors import UserError
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.environment import environment
from budgetnet.spaces.from_model import from_model
from tests.models import MODELS
from tests.network.test_slices import WIDTH, network
from tests.random_graphs import every_gate_row


@pytest.fixture(scope="module")
def net() -> SuperNetwork:
    return network()


@pytest.fixture(scope="module")
def rows(net: SuperNetwork) -> Tensor:
    """One row for every distinct live architecture."""
    live = net.graph.live(torch.stack([torch.as_tensor(row) for row in every_gate_row(net.graph)]))
    return torch.unique(live[live.any(1)], dim=0)


def architectures(net: SuperNetwork, rows: Tensor) -> list[Architecture]:
    return [net.graph.architecture(row) for row in rows]


def test_multiply_adds_are_those_of_the_extracted_network(net: SuperNetwork, rows: Tensor) -> None:
    found = bind("macs", net).evaluate(rows).tolist()
    for architecture, value in zip(architectures(net, rows), found, strict=True):
        with FlopCounterMode(display=False) as flops:
            extract(net.eval(), architecture)(torch.zeros(1, WIDTH))
        # the fixed skip meets the gated branch in one addition, however many units the branch has
        additions = WIDTH if len(architecture.live()) > 1 else 0
        assert value == flops.get_total_flops() / 2 + additions
        assert value == count(extract(net, architecture), torch.zeros(2, WIDTH)).macs


def test_parameters_and_bytes_are_those_of_the_extracted_network(net: SuperNetwork, rows: Tensor) -> None:
    numbers, sizes = (bind(name, net).evaluate(rows).tolist() for name in ("params", "size"))
    for architecture, number, size in zip(architectures(net, rows), numbers, sizes, strict=True):
        twin = extract(net, architecture)
        assert number == sum(parameter.numel() for parameter in twin.parameters())
        assert size == sum(value.numel() * value.element_size() for value in twin.state_dict().values())


def test_a_bundle_is_one_unit_of_work_whatever_is_kept_of_it(net: SuperNetwork, rows: Tensor) -> None:
    for machines in (1, 2):
        meter = bind(f"steps({machines})", net)
        for architecture, value in zip(architectures(net, rows), meter.evaluate(rows).tolist(), strict=True):
            # the chain, its sum, the gate; the sum at the end and the head; the fixed skip is an identity
            assert value == (5 if len(architecture.live()) > 1 else 2)


def test_the_smallest_is_what_the_fixed_edges_make(net: SuperNetwork, rows: Tensor) -> None:
    for name in ("macs", "params", "size"):
        meter = bind(name, net)
        architecture, exact = smallest(meter)
        assert exact
        assert meter(architecture) == float(meter.evaluate(rows).min())
        assert architecture.live().kept == {"skip"}


def test_a_certificate_counts_the_narrowed_network(net: SuperNetwork) -> None:
    architecture = Architecture(net.graph, frozenset({"skip", "first.1", "second.0", "gate"}))
    budgets = parse_all(["macs<=90%", "params<=90%", "size<=90%", "steps(1)<=100%"], net)
    certificate = certify(net, architecture, budgets, environment=environment())
    assert certificate.holds
    methods = [entry.how["method"] for entry in certificate.budgets]
    assert methods == ["exact, counted on the network"] * 3 + ["exact"]


@pytest.mark.parametrize("batch", [1, 3])
def test_peak_memory_is_that_of_a_real_run_to_the_byte(net: SuperNetwork, rows: Tensor, batch: int) -> None:
    found = bind(f"peak_memory({batch})", net).evaluate(rows).tolist()
    for architecture, value in zip(architectures(net, rows), found, strict=True):
        assert value == run_peak(extract(net.eval(), architecture), torch.zeros(batch, WIDTH))


def test_a_bundle_reads_the_value_that_crosses_once(net: SuperNetwork, rows: Tensor) -> None:
    """Everything but the source is in the cloud: its value crosses, and the output comes back."""
    cost = place(net, {"i", "m", "b"})
    assert set(cost.evaluate(rows).tolist()) == {4.0 * (WIDTH + 2)}
    gated = place(net, {"i", "m"})
    for architecture, value in zip(architectures(net, rows), gated.evaluate(rows).tolist(), strict=True):
        assert value == (4 * (WIDTH + WIDTH) if len(architecture) > 1 else 0)


def test_a_node_within_a_chain_cannot_be_placed_apart(net: SuperNetwork) -> None:
    with pytest.raises(UserError, match="'i' lies within layers that run as one up to 'm'"):
        place(net, {"i"})


def test_the_estimate_of_a_file_follows_the_widths(net: SuperNetwork, rows: Tensor) -> None:
    """Hundreds of bytes of weights beside thousands of structure: what is left of an estimate is the structure."""
    meter = bind("file_size", net)
    chosen = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:2]]
    for architecture, estimate in zip(architectures(net, chosen), meter.evaluate(chosen).tolist(), strict=True):
        assert estimate == pytest.approx(meter.evidence(architecture).value, rel=0.05)


def test_the_predictor_knows_kinds_and_widths_of_bundles(net: SuperNetwork, rows: Tensor) -> None:
    """Times that bend with the width are found again from a few networks; a bundle that is gone costs nothing."""
    counts = features(net)(rows)
    # a fixed skip, the chain and the gate; the constant, two sums and their additions; three ranges of widths
    assert counts.shape[1] == 1 + 3 + 2 * len({(), (WIDTH,), (0,)} - {()}) + 3
    share = bind("macs", net).evaluate(rows).numpy() / bind("macs", net).full
    times = 1 + np.sqrt(share)
    chosen = np.random.default_rng(0).permutation(len(rows))[:12]
    coefficients = fit(counts[chosen], times[chosen], features(net).work)
    assert error(counts @ coefficients, times) < 0.03
    monotone = counts @ coefficients
    assert monotone[rows.all(1).numpy()] == pytest.approx(monotone.max())


def test_int8_files_of_several_inputs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUDGETNET_METER_TARGETS", "http://device:8700")
    make, inputs = MODELS["encoder"]
    converted = from_model(make(), inputs(2))
    for name in ("file_size(precision=int8)", "latency(precision=int8)", "latency(target=http://device:8700)"):
        with pytest.raises(UserError, match="takes one float32 input, and the network takes tokens, padding"):
            bind(name, converted)
