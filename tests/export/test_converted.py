"""Networks extracted from converted models: folded, and exported as one, they compute the same."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from budgetnet.export.folding import fold
from budgetnet.export.onnx_graph import to_onnx
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.spaces.from_model import from_model
from tests.models import MODELS

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("name", ["resnet", "encoder"])
def test_an_exported_network_computes_the_same(name: str) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.running_mean)
    net = from_model(model, inputs(2), slices=4).eval()
    gates = EdgeDistribution(net.graph, 0.5).sample(1, torch.Generator().manual_seed(3), connected=True).gates
    network = extract(net, net.graph.architecture(gates[0]))
    given = net.inputs.tensors(inputs(5))
    with torch.no_grad():
        expected = network(*given)
        folded = fold(network)
        assert torch.allclose(folded(*given), expected, atol=1e-5)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    data = to_onnx(folded, net.input_shape, scaled=name == "resnet").SerializeToString()
    session = onnxruntime.InferenceSession(data)
    names = [value.name for value in session.get_inputs()]
    assert names == (["input"] if name == "resnet" else list(net.inputs.names))
    numbers = [((t + 1) * 127.5 if name == "resnet" else t).numpy() for t in given]
    (found,) = session.run(["logits"], dict(zip(names, numbers, strict=True)))
    assert torch.allclose(torch.from_numpy(found), expected, atol=1e-4)


def test_a_norm_of_tokens_after_a_linear_layer_is_left_alone() -> None:
    """As many tokens as features: only the number of dimensions tells what the norm scales."""
    norm = nn.BatchNorm1d(6)
    torch.nn.init.normal_(norm.running_mean)
    torch.nn.init.uniform_(norm.weight)
    module, x = nn.Sequential(nn.Sequential(nn.Linear(4, 6), norm)).eval(), torch.randn(3, 6, 4)
    assert torch.allclose(fold(module)(x), module(x), atol=1e-6)
    assert torch.allclose(fold(fx.symbolic_trace(module))(x), module(x), atol=1e-6)
