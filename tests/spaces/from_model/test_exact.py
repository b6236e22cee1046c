"""A converted model computes what the model computes, and every smaller architecture what its twin computes."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from tests.models import MODELS
from tests.spaces.from_model import exactness
from tests.spaces.from_model.exactness import Case, make_case, regions


@cache
def case(name: str) -> Case:
    return make_case(*MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_the_full_architecture_is_the_model(name: str) -> None:
    exactness.check_the_full_architecture_is_the_model(case(name))


@pytest.mark.parametrize("name", MODELS)
def test_batches_have_any_size(name: str) -> None:
    exactness.check_batches_have_any_size(case(name))


@pytest.mark.parametrize("name", MODELS)
def test_an_architecture_is_its_extracted_twin(name: str) -> None:
    exactness.check_an_architecture_is_its_extracted_twin(case(name))


@pytest.mark.parametrize("name", MODELS)
def test_groups_are_what_each_gives_alone(name: str) -> None:
    exactness.check_groups_are_what_each_gives_alone(case(name))


@pytest.mark.parametrize("name", MODELS)
def test_groups_are_trained_together(name: str) -> None:
    exactness.check_groups_are_trained_together(case(name))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "recurrent"])
def test_counts_are_those_of_the_extracted_network(name: str) -> None:
    exactness.check_counts_are_those_of_the_extracted_network(case(name))


def test_what_is_found() -> None:
    """Bundles by model: an axis for every hidden layer, heads and key/value groups as units."""
    net = case("gated").net
    attention = [units for name, units in net.graph.bundles.items() if name.endswith(".q")]
    assert [len(units) for units in attention] == [2, 2]
    assert {len(units) for name, units in case("vit").net.graph.bundles.items() if name.endswith("qkv")} == {3}
    assert {len(units) for name, units in case("encoder").net.graph.bundles.items() if "in_proj" in name} == {2}
    assert len(case("vgg").net.graph.operations) == 1
    assert len(case("bottleneck").net.graph.chains) == 3
    assert "lstm" in [edge.name for edge in case("recurrent").net.graph.edges if edge.fixed]
    for name in ("resnet", "mobilenet", "vit", "encoder"):
        assert any(not edge.fixed and edge.bundle is None for edge in case(name).net.graph.edges), name


@pytest.mark.parametrize("name", ["vgg", "encoder", "gated", "mobilenet"])
def test_ordering_the_blocks_of_a_converted_model_keeps_its_output(name: str) -> None:
    found = case(name)
    net = found.reset().eval()
    with torch.no_grad():
        before = net(found.inputs)
        for region in regions(net):
            for number, axis in enumerate(region.axes):
                region.order(number, torch.randperm(axis.blocks, generator=torch.Generator().manual_seed(0)))
        assert torch.allclose(net(found.inputs), before, atol=1e-5)
    found.reset()
