"""Networks extracted from converted models: folded, and exported as one, they compute the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

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
