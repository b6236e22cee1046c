"""Quantised files: their size, their operators, their outputs, and what calibration changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import fx

from budgetnet.costs import file_size
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.latency.meter.screening import screen
from budgetnet.errors import UserError
from budgetnet.export.description import Description
from budgetnet.export.formats import FORMATS, pack_onnx
from budgetnet.export.int8 import quantise
from budgetnet.export.models import open_model
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import resnet_fabric

SHAPE = (3, 16, 16)
DESCRIPTION = Description("resnet-fabric:width=1,channels=16", "{}", SHAPE, tuple("abcdefghij"))


@pytest.fixture(scope="module")
def net() -> SuperNetwork:
    torch.manual_seed(0)
    return resnet_fabric(width=1, channels=16, groups=3, classes=10, input_shape=SHAPE)


@pytest.fixture(scope="module")
def network(net: SuperNetwork) -> fx.GraphModule:
    return extract(net, net.graph.full).eval()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return 255 * torch.rand(64, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def files(network: fx.GraphModule, images: torch.Tensor) -> tuple[bytes, bytes]:
    return pack_onnx(network, DESCRIPTION), pack_onnx(network, DESCRIPTION, [images[:32]])


def test_weights_are_int8_with_a_scale_for_each_channel(files: tuple[bytes, bytes]) -> None:
    model = onnx.load_from_string(files[1])
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = {name: value for name, value in tensors.items() if value.ndim == 4}
    assert weights
    for name, value in weights.items():
        assert value.dtype == np.int8
        node = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input[0] == name)
        assert tensors[node.input[1]].shape == (len(value),)
    assert not any(node.domain for node in model.graph.node)
    screen(files[1])


def test_the_file_is_a_third_of_the_size_or_less_and_says_what_it_is(
    files: tuple[bytes, bytes], tmp_path: Path
) -> None:
    assert len(files[1]) < len(files[0]) / 3
    for data, precision in zip(files, ("fp32", "int8"), strict=True):
        path = tmp_path / f"{precision}.onnx"
        path.write_bytes(data)
        assert open_model(path).description.precision == precision


def test_outputs_are_close_to_those_of_float32(files: tuple[bytes, bytes], images: torch.Tensor) -> None:
    fp32, int8 = (FORMATS["onnx"].load(data, "file")[1](images[32:]) for data in files)
    assert 0 < float((fp32 - int8).abs().max()) < 0.05 * float(fp32.abs().max())
    assert float((fp32.argmax(1) == int8.argmax(1)).float().mean()) > 0.85


def test_calibration_on_other_inputs_makes_another_file(
    network: fx.GraphModule, files: tuple[bytes, bytes], images: torch.Tensor
) -> None:
    """Ranges that were seen on dark images cut off bright ones."""
    dark = pack_onnx(network, DESCRIPTION, [images[:32] / 100])
    fp32, int8, worse = (FORMATS["onnx"].load(data, "file")[1](images[32:]) for data in (*files, dark))
    assert float((fp32 - worse).abs().mean()) > 2 * float((fp32 - int8).abs().mean())


def test_the_cost_of_an_int8_file_is_its_bytes(
    net: SuperNetwork, network: fx.GraphModule, files: tuple[bytes, bytes]
) -> None:
    cost = file_size(net, "int8")
    found = cost.certify(
        Deliverable(net.graph.full, network, lambda: files[0], final=True, pack_int8=lambda: files[1]), 1e9
    )
    assert (found.value, found.how["precision"]) == (len(files[1]), "int8")
    exported = cost.evidence(net.graph.full).value
    assert float(cost.evaluate(net.graph.full.gates()[None])[0]) == pytest.approx(exported, rel=0.02)
    smallest = cost.smallest()
    assert cost(smallest) == pytest.approx(cost.evidence(smallest).value, rel=0.06)
    assert file_size(net).evidence(smallest).value > cost.evidence(smallest).value


def test_what_cannot_be_quantised_is_a_sentence(
    network: fx.GraphModule, net: SuperNetwork, images: torch.Tensor
) -> None:
    with pytest.raises(UserError, match="cannot quantise"):
        quantise(b"nonsense", [images[:2].numpy()])
    with pytest.raises(UserError, match="fp32 or int8"):
        file_size(net, "int4")
    bare = Deliverable(net.graph.full, network, lambda: b"")
    with pytest.raises(UserError, match="needs training data"):
        file_size(net, "int8").certify(bare, 1.0)
