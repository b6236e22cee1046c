"""The conformance suites pass for everything that is registered, and fail for examples that break one rule each."""

from __future__ import annotations

import inspect
import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from budgetnet.costs import COSTS
from budgetnet.costs.latency.cost import Effort
from budgetnet.data import IGNORE, Augmentation, DataSet, Split, load
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES
from budgetnet.testing import check_cost, check_dataset, check_space
from tests.random_graphs import SMALL_SPACES, small_space

COST_ARGUMENTS = {"machines": "2"}
"""Values for parameters of registered costs that have no default."""

MEASURED = 0.9
"""The relative difference between two measurements that a busy machine may show."""

SMALLEST = {
    "resnet-fabric": {"width": 1, "groups": 2},
    "neural-fabric": {"width": 2, "scales": 2},
}
"""Changes that make a small space smaller still, for costs that export or time many networks."""

TRIANGLE = [Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("skip", "x", "z")]


@pytest.mark.parametrize("name", SPACES)
def test_every_registered_space_follows_the_rules(name: str) -> None:
    check_space(SPACES[name], **SMALL_SPACES.get(name, {}), classes=3)


def test_the_segmentation_fabric_follows_the_rules() -> None:
    arguments = {**SMALL_SPACES["neural-fabric"], "task": "segmentation", "width": 2, "classes": 2}
    check_space(SPACES["neural-fabric"], **arguments)


def cost_text(name: str, placement: Path) -> str:
    parameters = list(inspect.signature(COSTS[name].factory).parameters.values())[1:]
    needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    values = {**COST_ARGUMENTS, "placement": placement}
    missing = [parameter for parameter in needed if parameter not in values]
    assert not missing, f"the cost {name} needs {missing[0]}: add a value to COST_ARGUMENTS so that it is tested"
    return f"{name}({','.join(f'{p}={values[p]}' for p in needed)})"


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("space", SPACES)
def test_every_registered_cost_follows_the_rules_in_every_space(
    cost: str, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = cost in ("latency", "latency_p95", "file_size")
    monkeypatch.setattr(sys.modules[Effort.__module__], "FIT", Effort(0.02, 1))
    net = small_space(space, **SMALLEST.get(space, {}) if exported else {})
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps({"cloud": [net.graph.sink]}))
    exact = cost in ("macs", "params", "size", "steps")
    check_cost(cost_text(cost, placement), net, tolerance=0.0 if exact else MEASURED)


def test_the_embedded_data_set_follows_the_rules() -> None:
    check_dataset(load("embedded:limit=200"))


def chain(**modules: nn.Module) -> SuperNetwork:
    """x → y → z with a skip; the edges that are not given are linear, the skip is an identity."""
    chosen = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "skip": nn.Identity(), **modules}
    return SuperNetwork(Graph(TRIANGLE), chosen, input_shape=(3,))


class Remember(nn.Module):
    """Adds what it saw last."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        before, self.last = self.last, x.detach().mean()
        return x if x.is_meta or (isinstance(before, Tensor) and before.is_meta) else x + before


class Ask(nn.Module):
    """Multiplies by a function of its input, on real tensors only."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return x if x.is_meta else x * self.function(x)


class PerBatch(torch.autograd.Function):
    """A product whose backward pass divides the weight's gradient by the number of examples."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return gradient * weight, (gradient * x).mean(0)


class WrongGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = PerBatch.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return output


def changing() -> Callable[[], SuperNetwork]:
    counter = itertools.count()

    def builder() -> SuperNetwork:
        name = f"edge{next(counter)}"
        return SuperNetwork(Graph([Edge(name, "x", "y")]), {name: nn.Linear(3, 3)}, input_shape=(3,))

    return builder


def misnamed() -> SuperNetwork:
    net = chain()
    net.named["broken"] = Architecture(net.graph, frozenset({"a"}))
    return net


def shared_buffer() -> SuperNetwork:
    """Two edges whose statistics are one tensor, tied behind the back of the constructor."""
    net = chain(a=nn.BatchNorm1d(3), skip=nn.BatchNorm1d(3))
    net.edge_modules[2].running_mean = net.edge_modules[0].running_mean
    return net


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        (changing(), "same graph"),
        (misnamed, "'broken'"),
        (lambda: 3, "returns a SuperNetwork, not a int"),
        (lambda: chain(a=nn.Linear(4, 4)), "refused its arguments"),
        (lambda: chain(a=Ask(lambda x: torch.rand(()))), "two runs of one input"),
        (lambda: chain(a=Ask(lambda x: x.mean(0, keepdim=True))), "depend on the others"),
        (lambda: chain(a=Ask(lambda x: x.std(0) if len(x) > 1 else 1)), "depend on the others"),
        (lambda: chain(a=Remember()), "two runs of one input"),
        (lambda: chain(a=WrongGradient()), "gradient of edge_modules.0.weight"),
        (shared_buffer, "'a' was dropped|'skip' was dropped"),
    ],
)
def test_a_space_that_breaks_a_rule_is_found(builder: Callable[[], SuperNetwork], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_space(builder)


def test_a_space_that_ignores_the_number_of_classes_is_found() -> None:
    with pytest.raises(AssertionError, match="classes=7 was asked for"):
        check_space(lambda classes: chain(), classes=7)


def test_dropout_and_integer_inputs_are_within_the_rules() -> None:
    check_space(lambda: chain(a=nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), b=nn.Dropout(0.3)))
    graph = Graph(TRIANGLE)
    modules = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "skip": nn.Identity()}
    stem = nn.Sequential(nn.Embedding(5, 3), nn.Flatten())
    check_space(lambda: SuperNetwork(graph, modules, input_shape=(1,), input_dtype=torch.int64, stem=stem))


def made(function: Callable[..., Any], **attributes: Any) -> Callable[[SuperNetwork], Callable[..., Any]]:
    def factory(_net: SuperNetwork) -> Callable[..., Any]:
        return function

    for name, value in attributes.items():
        setattr(factory, name, value)
    return factory


def counting() -> Callable[[SuperNetwork], Callable[..., float]]:
    calls = itertools.count(1)
    return made(lambda architecture: float(next(calls)))


def spoiling(change: Callable[[SuperNetwork], object]) -> Callable[[SuperNetwork], Callable[..., float]]:
    def factory(net: SuperNetwork) -> Callable[..., float]:
        def cost(architecture: Architecture) -> float:
            change(net)
            return 1.0

        return cost

    return factory


def zero_weights(net: SuperNetwork) -> None:
    for parameter in net.parameters():
        parameter.data.zero_()


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (made(lambda architecture: -1.0), "not negative"),
        (made(lambda architecture: float("nan")), "finite"),
        (made(lambda architecture: {}["x"]), "raised KeyError"),
        (made(lambda architecture: 1.0, unit=3), "`unit` of"),
        (made(lambda architecture: 1.0, stochastic="yes"), "`stochastic`"),
        (counting(), "must not depend on what was evaluated before"),
        (spoiling(lambda net: net.train(False)), "changed the mode"),
        (spoiling(lambda net: net.requires_grad_(False)), "changed requires_grad"),
        (spoiling(zero_weights), "changed the values"),
        (spoiling(lambda net: torch.rand(1)), "random state"),
        ("no-such-cost", "cannot be made"),
    ],
)
def test_a_cost_that_breaks_a_rule_is_found(cost: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_cost(cost, chain().train())


def test_random_and_input_dependent_costs_are_within_the_rules() -> None:
    check_cost(made(lambda architecture: float(torch.rand(())), stochastic=True), chain())
    check_cost(made(lambda architecture, batch: len(architecture) * len(batch)), chain())


def data_set(**changes: Any) -> DataSet:
    images = torch.arange(10 * 3 * 4 * 4).reshape(10, 3, 4, 4).to(torch.uint8)
    labels = torch.arange(10) % 2
    good = DataSet(
        "mine",
        "classification",
        ("cat", "dog"),
        Split(images[:6], labels[:6]),
        Split(images[6:8], labels[6:8]),
        Split(images[8:], labels[8:]),
        Augmentation(crop=1, flip=True),
    )
    return replace(good, **changes)


def segmentation(maps: Tensor) -> DataSet:
    images = torch.zeros(4, 3, 4, 4, dtype=torch.uint8)
    split = Split(images, maps)
    return data_set(task="segmentation", train=split, validation=Split(images.clone(), maps), test=None)


MAPS = torch.arange(64).reshape(4, 4, 4) % 2
FLOATS = Split(torch.randn(6, 5), torch.arange(6) % 2)


class Noisy(Augmentation):
    def __call__(self, inputs: Tensor, targets: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return inputs + torch.randint(0, 255, inputs.shape).to(torch.uint8), targets


class Shrinking(Augmentation):
    def __call__(self, inputs: Tensor, targets: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return inputs[..., 1:], targets


class Writing(Augmentation):
    def __call__(self, inputs: Tensor, targets: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return inputs.fill_(3), targets


def test_good_data_sets_follow_the_rules() -> None:
    check_dataset(data_set())
    check_dataset(data_set(test=None))
    held_out = Split(FLOATS.inputs + 1, FLOATS.targets)
    check_dataset(data_set(train=FLOATS, validation=held_out, test=None, augmentation=Augmentation()))
    ignored = MAPS.clone()
    ignored[0, 0] = IGNORE
    check_dataset(segmentation(ignored))


GOOD = data_set()


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ([1, 2], "is a budgetnet.data.DataSet, not a list"),
        (data_set(name=""), "needs a name"),
        (data_set(task="detection"), "'detection'"),
        (data_set(classes=("cat",)), "two or more different names"),
        (data_set(classes=("cat", "cat")), "two or more different names"),
        (data_set(test=Split(GOOD.train.inputs[:0], GOOD.train.targets[:0])), "test split is empty"),
        (data_set(validation=Split(GOOD.train.inputs[:3].clone(), GOOD.train.targets[:2])), "3 inputs and 2 targets"),
        (data_set(validation=Split(GOOD.train.inputs[..., :3].clone(), GOOD.train.targets)), "make the splits alike"),
        (data_set(validation=Split(GOOD.train.inputs.float(), GOOD.train.targets)), "make the splits alike"),
        (data_set(train=Split(GOOD.train.inputs.int(), GOOD.train.targets)), "torch.int32"),
        (data_set(train=Split(GOOD.train.inputs[:, 0], GOOD.train.targets)), "uint8 is for images"),
        (data_set(train=Split(FLOATS.inputs / 0, FLOATS.targets)), "NaN or infinite"),
        (data_set(train=Split(GOOD.train.inputs, GOOD.train.targets.int())), "as int64"),
        (data_set(train=Split(GOOD.train.inputs, MAPS[:1].expand(6, 4, 4))), "needs \\(6,\\)"),
        (data_set(train=Split(GOOD.train.inputs, GOOD.train.targets + 1)), "from 1 to 2; 2 classes"),
        (data_set(train=Split(GOOD.train.inputs, GOOD.train.targets - 1)), "from -1 to 0"),
        (data_set(train=Split(GOOD.train.inputs, GOOD.train.targets * 0)), "single class"),
        (replace(GOOD, validation=Split(GOOD.train.inputs[4:], GOOD.train.targets[4:])), "share memory"),
        (segmentation(MAPS + 1), "from 1 to 2"),
        (segmentation(MAPS[:, :2]), "needs \\(4, 4, 4\\)"),
        (data_set(augmentation=Noisy()), "generator alone"),
        (data_set(augmentation=Shrinking()), "keep shapes and types"),
        (data_set(augmentation=Writing()), "wrote into the data set"),
        (data_set(train=FLOATS, validation=Split(FLOATS.inputs + 1, FLOATS.targets), test=None), "does not fit"),
    ],
)
def test_a_data_set_that_breaks_a_rule_is_found(dataset: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_dataset(dataset)
