"""Checks of a converted model: it computes what the model computes, and smaller architectures what their twins do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from budgetnet.network.describe import work_by_call
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces.from_model import from_model

ARCHITECTURES = 100


@dataclass
class Case:
    """A model as it was, the super network of its twin, and some inputs."""

    model: nn.Module
    shared: nn.Module
    net: SuperNetwork
    inputs: Any

    def reset(self) -> SuperNetwork:
        """The super network with the model's own weights and statistics, and no gradients."""
        self.shared.load_state_dict(self.model.state_dict())
        for module in (self.net, self.model):
            module.zero_grad(set_to_none=True)
        return self.net


def make_case(make: Callable[[], nn.Module], inputs: Callable[[int], Any]) -> Case:
    """A model with batch norm that does something, converted."""
    torch.manual_seed(0)
    shared = make()
    for module in shared.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.running_mean)
    model = copy.deepcopy(shared)
    return Case(model, shared, from_model(shared, inputs(1), slices=4), inputs(8))


def called(model: nn.Module, inputs: Any) -> Tensor:
    """The model's output, or its logits."""
    if isinstance(inputs, dict):
        output = model(**inputs)
    else:
        output = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    return output if isinstance(output, Tensor) else output.logits


def first(inputs: Any, count: int) -> Any:
    """The first examples of some inputs."""
    if isinstance(inputs, dict):
        return {name: tensor[:count] for name, tensor in inputs.items()}
    return tuple(tensor[:count] for tensor in inputs) if isinstance(inputs, tuple) else inputs[:count]


def regions(net: SuperNetwork) -> list[Region]:
    return [module for module in net.edge_modules if isinstance(module, Region)]


def weights(net: SuperNetwork) -> dict[str, nn.Parameter]:
    """The super network's parameters by the name that they have in an extracted network."""
    bodies = [*(region.body for region in regions(net)), *([net.prelude.body] if net.prelude is not None else [])]
    return {name: parameter for body in bodies for name, parameter in body.named_parameters()}


def architectures(net: SuperNetwork, count: int) -> Tensor:
    drawn = EdgeDistribution(net.graph, initial=0.5).sample(count, torch.Generator().manual_seed(1), connected=True)
    return drawn.gates[net.graph.live(drawn.gates).any(1)]


def check_the_full_architecture_is_the_model(found: Case) -> None:
    net, model = found.reset(), copy.deepcopy(found.model)
    with torch.no_grad():
        assert torch.allclose(net.eval()(found.inputs), called(model.eval(), found.inputs), atol=1e-5)
    ours, theirs = net.train()(found.inputs), called(model.train(), found.inputs)
    assert torch.allclose(ours, theirs, atol=1e-4)
    ours.square().mean().backward()
    theirs.square().mean().backward()
    gradients = {name: p.grad for name, p in weights(net).items()}
    for key, parameter in model.named_parameters():
        if key in gradients:
            gradient = gradients[key]
        elif f"{key.rpartition('.')[0]}.part0.weight" in gradients:  # a layer on a concatenation
            parts = [gradients[part] for part in sorted(gradients) if part.startswith(key.rpartition(".")[0] + ".part")]
            gradient = torch.cat([part for part in parts if part.dim() > 1], 1) if key.endswith("weight") else None
        else:
            gradient = dict(found.shared.named_parameters())[key].grad
        if gradient is not None:
            assert torch.allclose(gradient, parameter.grad, atol=1e-4), key
    buffers = dict(found.shared.named_buffers())
    assert all(torch.allclose(buffers[key].double(), b.double(), atol=1e-4) for key, b in model.named_buffers())


def check_batches_have_any_size(found: Case) -> None:
    net, model = found.reset().eval(), copy.deepcopy(found.model).eval()
    row = architectures(net, 1)[0]
    twin = extract(net, net.graph.architecture(row))
    with torch.no_grad():
        for count in (5, 2, 1):
            inputs = first(found.inputs, count)
            assert torch.allclose(net(inputs), called(model, inputs), atol=1e-5), count
            assert torch.allclose(net(inputs, row), called(twin, inputs), atol=1e-5), count


def check_an_architecture_is_its_extracted_twin(found: Case, count: int = ARCHITECTURES) -> None:
    for number, row in enumerate(architectures(found.net, count)):
        net = found.reset().train(number % 2 == 0)
        twin = extract(net, net.graph.architecture(row))
        assert not any(type(module).__module__.startswith("budgetnet") for module in twin.modules())
        ours, theirs = net(found.inputs, row), called(twin, found.inputs)
        assert torch.allclose(ours, theirs, atol=1e-5)
        ours.square().mean().backward()
        theirs.square().mean().backward()
        own = weights(net)
        for key, parameter in twin.named_parameters():
            if parameter.grad is not None:
                one, two = own[key].grad.double().norm(), parameter.grad.double().norm()
                assert float(one) == pytest.approx(float(two), rel=1e-3, abs=1e-5), key


def check_groups_are_what_each_gives_alone(found: Case) -> None:
    net = found.reset().eval()
    gates = architectures(net, 4)
    with torch.no_grad():
        together = net(found.inputs, gates)
        alone = torch.cat([net(found.inputs, row) for row in gates[:, None]]).unflatten(0, (len(gates), 8))
    for i, rows in enumerate(torch.arange(8).tensor_split(len(gates))):
        assert torch.allclose(together[rows], alone[i, rows], atol=1e-5)


def check_groups_are_trained_together(found: Case) -> None:
    """Gradients are those of the groups one by one; without batch norm, which sees other examples together."""
    net = found.reset().train()
    gates = architectures(net, 4)
    net(found.inputs, gates).square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None)
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in net.modules()):
        return
    together = {key: p.grad for key, p in weights(net).items()}
    net.zero_grad(set_to_none=True)
    for rows, row in zip(torch.arange(8).tensor_split(len(gates)), gates, strict=True):
        net(found.inputs, row)[rows].square().sum().backward()
    for key, p in weights(net).items():
        ours, alone = together[key], p.grad
        ours = torch.zeros_like(p) if ours is None else ours
        assert torch.allclose(ours, torch.zeros_like(p) if alone is None else alone, atol=1e-3, rtol=1e-3), key


def check_counts_are_those_of_the_extracted_network(found: Case, count: int = 4) -> None:
    net = found.reset().eval()
    work = work_by_call(net)
    for row in architectures(net, count):
        twin = extract(net, net.graph.architecture(row)).to("meta")
        live = net.graph.live(row[None])[0]
        params = macs = 0.0
        for operation, module, calls in zip(net.graph.operations, net.edge_modules, work, strict=True):
            kept = [live[list(axis)][None] for axis in operation.axes] if operation.bundle else []
            if isinstance(module, Region) and bool(live[list(operation.edges)].any()):
                params += float(module.tensor_counts(numbers).evaluate(kept)[0])
                macs += float(module.call_counts(calls).evaluate(kept)[0])
        assert net.prelude is not None
        params += sum(p.numel() for p in net.prelude.parameters())
        assert params == sum(p.numel() for p in twin.parameters())
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            called(twin, net.inputs.example(1))
        assert macs == pytest.approx(counter.get_total_flops() / 2, rel=1e-9)


def numbers(tensor: Tensor) -> float:
    return float(tensor.numel()) if isinstance(tensor, nn.Parameter) else 0.0
