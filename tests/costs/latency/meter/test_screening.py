"""The walk through an ONNX file, against files that the package onnx makes, and with files that it would not make."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from budgetnet.costs.latency import runtimes
from budgetnet.costs.latency.meter.screening import Refused, screen


def tensor(external: bool) -> TensorProto:
    made = numpy_helper.from_array(np.ones(2, np.float32), "w")
    if external:
        entry = made.external_data.add()
        entry.key, entry.value = "location", "weights.bin"
    return made


def graph(nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    return helper.make_graph(nodes, "g", [entry], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])


def in_initializer(external: bool) -> onnx.ModelProto:
    made = graph([helper.make_node("Add", ["x", "w"], ["y"])])
    made.initializer.append(tensor(external))
    return helper.make_model(made)


def in_constant(external: bool) -> onnx.ModelProto:
    return helper.make_model(graph([helper.make_node("Constant", [], ["y"], value=tensor(external))]))


def in_branch_of_a_branch(external: bool) -> onnx.ModelProto:
    inner = graph([helper.make_node("Constant", [], ["y"], value=tensor(external))])
    middle = graph([helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)])
    return helper.make_model(graph([helper.make_node("If", ["x"], ["y"], then_branch=middle, else_branch=middle)]))


def in_sparse(external: bool) -> onnx.ModelProto:
    made = graph([helper.make_node("Relu", ["x"], ["y"])])
    indices = numpy_helper.from_array(np.array([0, 1]), "i")
    made.sparse_initializer.append(helper.make_sparse_tensor(tensor(external), indices, [4]))
    return helper.make_model(made)


PLACES = (in_initializer, in_constant, in_branch_of_a_branch, in_sparse)


@pytest.mark.parametrize("place", PLACES)
def test_external_data_is_found_wherever_it_is(place: object) -> None:
    assert callable(place)
    screen(place(external=False).SerializeToString())
    with pytest.raises(Refused, match="external data"):
        screen(place(external=True).SerializeToString())


def test_a_tensor_that_only_says_that_it_is_elsewhere() -> None:
    model = in_initializer(external=False)
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    with pytest.raises(Refused, match="external data"):
        screen(model.SerializeToString())


def test_two_graphs_in_one_file_are_both_walked() -> None:
    """A reader of protocol buffers merges them."""
    twice = in_initializer(external=True).SerializeToString() + in_initializer(external=False).SerializeToString()
    assert any(t.external_data for t in onnx.load_from_string(twice).graph.initializer)
    with pytest.raises(Refused, match="external data"):
        screen(twice)


def test_operators_of_others_and_functions_are_refused() -> None:
    for domain in ("com.microsoft", "ai.onnx.ml", "mine"):
        with pytest.raises(Refused, match="custom"):
            screen(helper.make_model(graph([helper.make_node("F", ["x"], ["y"], domain=domain)])).SerializeToString())
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("mine", "F", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], opsets)
    model = helper.make_model(graph([helper.make_node("Relu", ["x"], ["y"])]), functions=[function])
    with pytest.raises(Refused, match="functions"):
        screen(model.SerializeToString())
    model = helper.make_model(graph([helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")]))
    screen(model.SerializeToString())


def test_what_the_package_exports_passes_and_no_cut_of_it_does_harm() -> None:
    data = runtimes.reference_file()
    screen(data)
    random = np.random.default_rng(0)
    for end in random.integers(1, len(data) - 1, 20).tolist():
        with pytest.raises(Refused):
            screen(data[:end] + b"\xff" * 12)
    for _ in range(200):
        noise = random.bytes(int(random.integers(0, 300)))
        with pytest.raises(Refused):
            screen(noise + b"\xff" * 12)


def test_a_field_number_of_more_than_32_bits_is_refused() -> None:
    key = (7 << 3 | 2) + (1 << 35)
    written = bytes((key >> 7 * i & 127) | 128 for i in range(5)) + bytes([key >> 35])
    with pytest.raises(Refused):
        screen(in_initializer(external=False).SerializeToString() + written + b"\x00")


def test_graphs_that_lie_too_deep_are_refused() -> None:
    inner = graph([helper.make_node("Relu", ["x"], ["y"])])
    for _ in range(12):
        inner = graph([helper.make_node("If", ["x"], ["y"], then_branch=inner)])
    with pytest.raises(Refused, match="deep"):
        screen(helper.make_model(inner).SerializeToString())
