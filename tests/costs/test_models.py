"""Costs of converted models, with narrowed layers and side inputs: against the extracted networks themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from budgetnet.costs import bind
from budgetnet.costs.footprints import run_peak
from budgetnet.costs.traffic import place
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces.from_model import from_model
from tests.models import MODELS


@pytest.fixture(scope="module", params=["resnet", "bottleneck", "convnext", "encoder"])
def net(request: pytest.FixtureRequest) -> SuperNetwork:
    torch.manual_seed(0)
    make, inputs = MODELS[request.param]
    return from_model(make(), inputs(2), slices=3).eval()


def some_rows(net: SuperNetwork, count: int) -> Tensor:
    """Distinct live architectures of every density."""
    generator = torch.Generator().manual_seed(3)
    density = torch.linspace(0.2, 1, 8 * count)[:, None]
    live = net.graph.live(torch.rand(8 * count, len(net.graph.edges), generator=generator) < density)
    rows = live[live.any(1)].unique(dim=0)
    return rows[torch.randperm(len(rows), generator=generator)[:count]]


@pytest.mark.parametrize("batch", [1, 3])
def test_peak_memory_is_that_of_a_real_run_to_the_byte(net: SuperNetwork, batch: int) -> None:
    rows = some_rows(net, 8)
    inputs = net.inputs.tensors(net.inputs.example(batch, "cpu"))
    found = bind(f"peak_memory({batch})", net).evaluate(rows).tolist()
    real = [run_peak(extract(net, net.graph.architecture(row)), *inputs) for row in rows]
    assert found == real
    assert len(set(real)) > 1


def test_all_inputs_and_the_output_cross_where_everything_is_in_the_cloud(net: SuperNetwork) -> None:
    inputs = net.inputs.tensors(net.inputs.example(1, "cpu"))
    with torch.no_grad():
        output = net(net.inputs.example(2, "cpu"))[0]
    everything = sum(value.numel() * value.element_size() for value in (*inputs, output))
    assert place(net, net.graph.nodes)(net.graph.full) == everything
