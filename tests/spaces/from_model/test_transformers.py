"""Models of the `transformers` library, and a real sentence encoder with its own weights, converted."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from budgetnet.network.extract import extract
from budgetnet.spaces.from_model import from_model
from tests.library_models import LIBRARY_MODELS, sentence_encoder
from tests.spaces.from_model import exactness
from tests.spaces.from_model.exactness import Case, architectures, called, make_case

SENTENCES = (
    "A budget is a promise.",
    "The network that is handed back meets the budget, measured on the thing that will run it.",
    "Rain.",
    "Where do the trains to the coast leave on Sunday mornings?",
)


@cache
def case(name: str) -> Case:
    return make_case(*LIBRARY_MODELS[name])


@pytest.mark.parametrize("name", LIBRARY_MODELS)
def test_a_library_model_is_converted_exactly(name: str) -> None:
    found = case(name)
    exactness.check_the_full_architecture_is_the_model(found)
    exactness.check_batches_have_any_size(found)
    exactness.check_an_architecture_is_its_extracted_twin(found, count=4)
    exactness.check_counts_are_those_of_the_extracted_network(found, count=2)
    exactness.check_groups_are_trained_together(found)


@pytest.mark.parametrize("name", ["ResNet", "MobileNetV2", "ViT", "BERT"])
def test_most_of_the_work_can_go(name: str) -> None:
    assert case(name).net.describe().free_share >= 0.8


def test_a_real_sentence_encoder_keeps_its_sentences() -> None:
    model, tokenizer = sentence_encoder()
    words = dict(tokenizer(list(SENTENCES), padding=True, return_tensors="pt"))
    inputs = {name: words[name] for name in ("input_ids", "attention_mask")}
    assert len({int(length) for length in inputs["attention_mask"].sum(1)}) == len(SENTENCES)
    model.eval()
    with torch.no_grad():
        expected = called(model, inputs)
    net = from_model(model, inputs).eval()
    units = [len(bundle) for bundle in net.graph.bundles.values()]
    assert sorted(units) == [8] * 6 + [12] * 6, "6 layers, 12 heads and the channels of an MLP each"
    row = architectures(net, 1)[0]
    twin = extract(net, net.graph.architecture(row))
    with torch.no_grad():
        assert torch.allclose(net(inputs), expected, atol=1e-5)
        assert torch.allclose(net(inputs, row), called(twin, inputs), atol=1e-5)
