"""Conformance suites for people who write their own space, cost or data set.

Each function runs the rules of its kind on your object and raises `AssertionError` with a sentence that says which rule
is broken. Call them from a test of yours:

    from budgetnet.testing import check_cost, check_space

    def test_my_space():
        check_space(my_builder, width=2)

    def test_my_cost():
        check_cost(my_cost, my_builder(width=2))

Nothing in budgetnet imports this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from budgetnet.costs import CostFactory, Meter, bind
from budgetnet.data import IGNORE, Augmentation, DataSet, Split
from budgetnet.errors import UserError
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.supernet import SuperNetwork

SAMPLES = 8
"""Random architectures that a check tries besides the full and the named ones."""

TASKS = ("classification", "segmentation")


def check_space(builder: Callable[..., SuperNetwork], **arguments: Any) -> None:
    """Checks a builder of super networks, called with these arguments. Choose small ones: networks are run and trained.

    The rules: two calls build the same graph and shapes; named architectures connect the input to the output; an
    example's output depends on no other example and on no random number in eval mode; an architecture inside the super
    network is the extracted network, in eval and in train mode; a dropped edge gets no gradient and keeps its state;
    several architectures in one batch have the outputs and gradients that they have alone; the extracted network holds
    no class of budgetnet; if you pass `classes`, that many outputs come first.
    """
    net = _build(builder, arguments)
    again = _build(builder, arguments)
    _require(
        again.graph == net.graph and again.shapes == net.shapes,
        "two calls with equal arguments must build the same graph and shapes, since architecture files name edges; "
        "take nothing in the builder from chance or from earlier calls",
    )
    _require(
        "classes" not in arguments or net.shapes.output[:1] == (arguments["classes"],),
        f"classes={arguments.get('classes')} was asked for but the output of one example has shape "
        f"{net.shapes.output}; let the head give that many",
    )
    for name, architecture in net.named.items():
        _require(
            architecture.graph == net.graph and architecture.connected,
            f"the named architecture {name!r} must be one of this graph and connect its source to its sink",
        )
    _check_json(net.graph)
    _check_examples_are_independent(net)
    for architecture in _architectures(net):
        _check_extraction(net, architecture)
    _check_groups(net)


def check_cost(cost: str | CostFactory, net: SuperNetwork, tolerance: float = 0.0) -> None:
    """Checks a cost (its text, or a factory called with the super network) on architectures of a super network.

    The rules: a finite number that is not negative; the same for an architecture whatever was evaluated before it and
    however many are evaluated at once, up to the relative `tolerance` (only for what is measured) unless the cost says
    `stochastic`; the super network, its mode and torch's random numbers are left as they were; `unit` is a text.
    """
    before = _snapshot(net)
    first, second = _bind(cost, net), _bind(cost, net)
    _require(isinstance(first.unit, str), f"the unit of {first.name} must be a text such as 'J', not {first.unit!r}")
    _require(
        isinstance(first.stochastic, bool),
        f"`stochastic` of {first.name} must be True or False, not {first.stochastic!r}",
    )
    gates = torch.stack([architecture.live().gates() for architecture in _architectures(net)])
    batch = _examples(net, 2)
    together = _evaluate(first, gates, batch)
    _require(
        all(math.isfinite(value) and value >= 0 for value in together),
        f"{first.name} must be a finite number that is not negative for every connected architecture; "
        f"it gave {min(together)} to {max(together)}",
    )
    if not first.stochastic:
        alone = [_evaluate(second, row[None], batch)[0] for row in gates.flip(0)][::-1]
        for one, other in zip(together, alone, strict=True):
            _require(
                math.isclose(one, other, rel_tol=max(tolerance, 1e-9)),
                f"{first.name} gave {one} and then {other} for one architecture: it must not depend on what was "
                "evaluated before or beside it; set stochastic = True on the cost if it is random",
            )
    changed = [name for name, value in _snapshot(net).items() if not torch.equal(value, before[name])]
    changed = [name for name in changed if not (first.stochastic and name == RANDOM)]
    _require(not changed, f"{first.name} changed {', '.join(changed[:3])}: a cost must leave the super network alone")


def check_dataset(dataset: DataSet) -> None:
    """Checks a data set in memory.

    The rules: a known task and distinct class names; training and validation examples that are not the same memory;
    as many targets as inputs, of one shape and type in every split; uint8 images or finite floats; int64 class numbers
    in range, N for classification and N×H×W (255 is ignored) for segmentation; more than one class to learn; an
    augmentation that keeps shapes and types and follows its generator.
    """
    _require(isinstance(dataset, DataSet), f"a data set is a budgetnet.data.DataSet, not a {type(dataset).__name__}")
    _require(bool(dataset.name), "a data set needs a name, since results are reported under it")
    _require(dataset.task in TASKS, f"the task is {dataset.task!r}; it must be {' or '.join(TASKS)}")
    names = dataset.classes
    _require(
        len(names) >= 2 and len(set(names)) == len(names) and all(isinstance(n, str) and n for n in names),
        f"`classes` must hold two or more different names, not {names!r:.80}",
    )
    splits = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    for name, split in splits.items():
        if split is not None:
            _check_split(dataset, name, split)
    learnt = {int(label) for label in dataset.train.targets.flatten().bincount().nonzero()} - {IGNORE}
    _require(len(learnt) >= 2, "the training targets hold a single class: there is nothing to learn")
    _require(
        not _overlap(dataset.train.inputs, dataset.validation.inputs),
        "training and validation share memory: some examples are in both; hold validation examples out of training",
    )
    _check_augmentation(dataset)


def _require(rule: bool, sentence: str) -> None:
    # Not an assert statement: the rules must hold under `python -O` as well.
    if not rule:
        raise AssertionError(sentence)


def _build(builder: Callable[..., SuperNetwork], arguments: dict[str, Any]) -> SuperNetwork:
    try:
        net = builder(**arguments)
    except UserError as error:
        raise AssertionError(f"the builder refused its arguments: {error}") from error
    _require(isinstance(net, SuperNetwork), f"a builder returns a SuperNetwork, not a {type(net).__name__}")
    return net


def _architectures(net: SuperNetwork) -> Iterator[Architecture]:
    """The full one, the named ones, and random ones from sparse to dense, each connected."""
    yield net.graph.full
    yield from net.named.values()
    for i in range(SAMPLES):
        gamma = EdgeDistribution(net.graph)
        gamma.logits.data = torch.randn(len(net.graph.edges), generator=_generator(i)) + i / 2 - 2
        yield gamma.mode()


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _examples(net: SuperNetwork, count: int) -> Tensor:
    """Random inputs; small class numbers where the input is not a floating-point one."""
    if net.input_dtype.is_floating_point:
        return torch.randn((count, *net.input_shape), generator=_generator(0)).to(net.input_dtype)
    return torch.randint(0, 2, (count, *net.input_shape), generator=_generator(0)).to(net.input_dtype)


def _check_json(graph: Graph) -> None:
    architecture = graph.full
    _require(
        Architecture.from_json(graph, architecture.to_json()) == architecture,
        "the full architecture must survive a JSON file; use plain text for the names of edges",
    )


def _check_examples_are_independent(net: SuperNetwork) -> None:
    net.eval()
    x = _examples(net, 3)
    with torch.no_grad():
        together, again = net(x), net(x)
        alone = torch.cat([net(x[i : i + 1]) for i in range(len(x))])
    _require(
        torch.equal(together, again),
        "two runs of one input must give the same output in eval mode; draw random numbers only in training",
    )
    _require(
        _close(together, alone),
        "in eval mode an example's output must not depend on the others in its batch, since groups of examples run "
        "under different architectures; normalise over each example, or by running statistics",
    )


def _check_extraction(net: SuperNetwork, architecture: Architecture) -> None:
    state = {name: value.clone() for name, value in net.state_dict().items()}
    for training in (False, True):
        twin = extract(net.train(training), architecture)
        own = [type(m).__name__ for m in twin.modules() if type(m).__module__.partition(".")[0] == "budgetnet"]
        _require(not own, f"an extracted network must run without budgetnet, but holds its {', '.join(own)}")
        x = _examples(net, 4)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            inside = net(x, architecture)
            torch.manual_seed(0)
            alone = twin(x)
        _require(
            _close(inside, alone),
            f"{architecture!r} gives other outputs inside the super network than extracted from it, in "
            f"{'train' if training else 'eval'} mode; keep nothing in a module between two calls",
        )
        net.zero_grad()
        if inside.requires_grad:
            inside.float().square().mean().backward()
        _check_dead_edges(net, architecture, state)
        net.load_state_dict(state)
    net.zero_grad()


def _check_dead_edges(net: SuperNetwork, architecture: Architecture, state: dict[str, Tensor]) -> None:
    live = architecture.live()
    for i, edge in enumerate(net.graph.edges):
        if edge.name in live:
            continue
        module = net.edge_modules[i]
        _require(
            all(p.grad is None or not bool(p.grad.any()) for p in module.parameters())
            and all(torch.equal(v, state[f"edge_modules.{i}.{k}"]) for k, v in module.state_dict().items()),
            f"edge {edge.name!r} was dropped but got a gradient or changed its state; "
            "give each edge parameters and buffers of its own",
        )


def _check_groups(net: SuperNetwork) -> None:
    """Outputs and gradients of several architectures in one batch are those of the architectures one by one."""
    net.eval()
    gates = torch.stack([architecture.gates() for architecture in _architectures(net)])
    x = _examples(net, 2 * len(gates))
    together, gradients = _run_with_gradients(net, [(x, gates)])
    alone, separate = _run_with_gradients(net, [(x[2 * i : 2 * i + 2], row) for i, row in enumerate(gates)])
    _require(
        _close(together, alone),
        "several architectures in one batch must each give what they give alone; "
        "let no module look at how many examples it gets",
    )
    for name, gradient in gradients.items():
        _require(
            _close(gradient, separate[name]),
            f"the gradient of {name} over several architectures in one batch must be the sum of those that they have "
            "alone; check the backward pass of your own autograd functions",
        )


def _run_with_gradients(net: SuperNetwork, runs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, dict[str, Tensor]]:
    """The outputs of these runs, and the gradients of their summed squares by all parameters and by the examples."""
    net.zero_grad()
    inputs = [x.clone().requires_grad_(x.is_floating_point()) for x, _ in runs]
    output = torch.cat([net(x, gates) for x, (_, gates) in zip(inputs, runs, strict=True)])
    if output.requires_grad:
        output.float().square().sum().backward()  # type: ignore[no-untyped-call]
    gradients = {name: _gradient(parameter) for name, parameter in net.named_parameters()}
    net.zero_grad()
    return output.detach(), {**gradients, "the input": torch.cat([_gradient(x) for x in inputs])}


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.clone()


def _close(one: Tensor, other: Tensor) -> bool:
    scale = 1 + float(other.detach().abs().max())
    return one.shape == other.shape and bool(((one - other).detach().abs() <= 1e-4 * scale).all())


def _bind(cost: str | CostFactory, net: SuperNetwork) -> Meter:
    try:
        return bind(cost, net)
    except UserError as error:
        raise AssertionError(f"the cost cannot be made for {net.name}: {error}") from error


def _evaluate(meter: Meter, gates: Tensor, batch: Tensor) -> list[float]:
    try:
        values: list[float] = meter.evaluate(gates, batch).tolist()
    except UserError as error:
        raise AssertionError(str(error)) from error
    return values


RANDOM = "torch's random state"


def _snapshot(net: SuperNetwork) -> dict[str, Tensor]:
    """Everything that a cost could change by accident."""
    modes = {f"the mode of {name or 'the network'}": torch.tensor(m.training) for name, m in net.named_modules()}
    needs = {f"requires_grad of {name}": torch.tensor(p.requires_grad) for name, p in net.named_parameters()}
    state = {f"the values of {name}": value.detach().clone() for name, value in net.state_dict().items()}
    return {**modes, **needs, **state, RANDOM: torch.get_rng_state()}


def _check_split(dataset: DataSet, name: str, split: Split) -> None:
    inputs, targets = split.inputs, split.targets
    _require(len(inputs) > 0, f"the {name} split is empty; give it examples" + " or None" * (name == "test"))
    _require(len(inputs) == len(targets), f"{name} has {len(inputs)} inputs and {len(targets)} targets")
    _require(
        inputs.shape[1:] == dataset.input_shape and inputs.dtype == dataset.train.inputs.dtype,
        f"{name} inputs are {tuple(inputs.shape[1:])} {inputs.dtype}, training inputs {dataset.input_shape} "
        f"{dataset.train.inputs.dtype}; make the splits alike",
    )
    _require(
        inputs.dtype == torch.uint8 or inputs.is_floating_point(),
        f"{name} inputs are {inputs.dtype}; use uint8 for images or a floating-point type",
    )
    _require(
        inputs.dtype != torch.uint8 or inputs.dim() == 4,
        f"{name} inputs are uint8 of shape {tuple(inputs.shape)}; uint8 is for images N×C×H×W",
    )
    _require(bool(inputs.isfinite().all()), f"{name} inputs hold NaN or infinite values")
    _check_targets(dataset, name, split)


def _check_targets(dataset: DataSet, name: str, split: Split) -> None:
    targets = split.targets
    _require(targets.dtype == torch.int64, f"{name} targets are {targets.dtype}; give class numbers as int64")
    maps = dataset.task == "segmentation"
    expected = (len(targets), *split.inputs.shape[-2:]) if maps else (len(targets),)
    _require(
        tuple(targets.shape) == expected,
        f"{name} targets have shape {tuple(targets.shape)}; {dataset.task} on these inputs needs {expected}",
    )
    counted = targets[targets != IGNORE] if maps else targets
    lowest, highest = (int(counted.min()), int(counted.max())) if counted.numel() else (0, 0)
    _require(
        lowest >= 0 and highest < len(dataset.classes),
        f"{name} targets go from {lowest} to {highest}; {len(dataset.classes)} classes are numbered from 0",
    )


def _overlap(one: Tensor, other: Tensor) -> bool:
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    spans = [(t.storage_offset(), t.storage_offset() + t.numel()) for t in (one, other)]
    return max(start for start, _ in spans) < min(stop for _, stop in spans)


def _check_augmentation(dataset: DataSet) -> None:
    augmentation: Augmentation = dataset.augmentation
    few = dataset.train.take(4)
    before = few.inputs.clone()
    try:
        (inputs, targets), again = (augmentation(few.inputs, few.targets, _generator(1)) for _ in range(2))
    except UserError as error:
        raise AssertionError(f"the augmentation does not fit the inputs: {error}") from error
    _require(
        inputs.shape == few.inputs.shape and inputs.dtype == few.inputs.dtype and targets.shape == few.targets.shape,
        f"the augmentation turns {tuple(few.inputs.shape)} {few.inputs.dtype} into {tuple(inputs.shape)} "
        f"{inputs.dtype}; it must keep shapes and types",
    )
    _require(
        torch.equal(inputs, again[0]) and torch.equal(targets, again[1]),
        "the augmentation must draw from its generator alone, so that a run can be resumed exactly",
    )
    _require(torch.equal(few.inputs, before), "the augmentation wrote into the data set; return new tensors")
