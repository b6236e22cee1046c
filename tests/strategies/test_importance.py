"""Importance against finite differences of gates, and against what dropping a unit does where the loss is linear."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from budgetnet import from_model
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.importance import Place, gate_gradients, gated, measure, taylor, unit_gradients
from budgetnet.training.tasks import Task
from tests.models import BasicBlock, ResNet

STEP = 1e-3


@pytest.fixture(scope="module")
def images() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(6, 3, 12, 12, dtype=torch.float64), torch.randint(5, (6,))


@pytest.fixture
def net() -> SuperNetwork:
    torch.manual_seed(1)
    model = ResNet([BasicBlock(4, 4), BasicBlock(4, 6, 2)], 4, 6).double().eval()
    return from_model(model, torch.zeros(2, 3, 12, 12, dtype=torch.float64), slices=2)


def losses(net: SuperNetwork, x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return F.cross_entropy(net(x), y, reduction="none")


def scaled(net: SuperNetwork, bundle: int, blocks: list[int], factor: float) -> None:
    """Scales what the second convolution reads of some blocks: another way to set their gate."""
    region = net.edge_modules[bundle]
    assert isinstance(region, Region)
    (reader,) = [m for n, m in region.body.named_modules() if n.endswith("conv2")]
    with torch.no_grad():
        reader.weight[:, blocks] *= factor


def test_gate_gradients_of_blocks_are_finite_differences_by_example(
    net: SuperNetwork, images: tuple[Tensor, Tensor]
) -> None:
    found = gate_gradients(net.eval(), Task(), images)
    bundles = [number for number, operation in enumerate(net.graph.operations) if operation.bundle]
    assert len(bundles) == 2
    for number in bundles:
        for block in (0, 3):
            scaled(net, number, [block], 1 + STEP)
            up = losses(net, *images)
            scaled(net, number, [block], (1 - STEP) / (1 + STEP))
            down = losses(net, *images)
            scaled(net, number, [block], 1 / (1 - STEP))
            assert torch.allclose(found[number, 0][:, block].double(), (up - down) / (2 * STEP), atol=1e-5)


def test_the_gate_of_a_branch_is_on_its_whole_output(net: SuperNetwork, images: tuple[Tensor, Tensor]) -> None:
    found = gate_gradients(net.eval(), Task(), images)
    for number, operation in enumerate(net.graph.operations):
        if operation.bundle or bool(net.graph.fixed[operation.edges[0]]):
            continue
        sides = []
        for factor in (1 + STEP, 1 - STEP):
            handle = net.edge_modules[number].register_forward_hook(lambda m, i, o, factor=factor: o * factor)
            sides.append(losses(net, *images))
            handle.remove()
        assert torch.allclose(found[number, 0][:, 0].double(), (sides[0] - sides[1]) / (2 * STEP), atol=1e-5)


def test_a_unit_is_one_gate_on_all_of_its_blocks(net: SuperNetwork, images: tuple[Tensor, Tensor]) -> None:
    number = next(n for n, operation in enumerate(net.graph.operations) if operation.bundle)
    region = net.edge_modules[number]
    assert isinstance(region, Region)
    blocks, axis = gate_gradients(net.eval(), Task(), images)[number, 0], region.axes[0]
    order = torch.tensor([3, 1, 0, 2])
    units = unit_gradients(blocks, order, axis)
    scaled(net, number, [3, 1], 1 + STEP)
    up = losses(net, *images)
    scaled(net, number, [3, 1], (1 - STEP) / (1 + STEP))
    assert torch.allclose(units[:, 0].double(), (up - losses(net, *images)) / (2 * STEP), atol=1e-5)


def test_units_are_filled_by_importance_and_the_network_computes_the_same(
    net: SuperNetwork, images: tuple[Tensor, Tensor]
) -> None:
    before, mode = net.eval()(images[0]), net.training
    found = measure(net, Task(), [images, images])
    assert net.training == mode
    found.arrange(net)
    assert torch.allclose(net(images[0]), before)
    again = gate_gradients(net, Task(), images)
    for place in found.orders:
        importance = taylor(again[place])
        assert torch.equal(importance, importance.sort(descending=True).values), "the best block comes first"
        operation = net.graph.operations[place[0]]
        region = net.edge_modules[place[0]]
        assert isinstance(region, Region)
        by_unit = taylor(unit_gradients(again[place], torch.arange(region.axes[0].blocks), region.axes[0]))
        assert torch.allclose(found.edges[list(operation.axes[0])], by_unit)
    assert bool((found.edges[net.graph.fixed] == 0).all())
    assert bool((found.edges[~net.graph.fixed] > 0).all())


def test_where_the_loss_is_linear_importance_is_what_dropping_a_unit_does() -> None:
    """ℓ = output of a network that is linear in its gates, so that the first order is all there is."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).double().eval()
    x = torch.randn(16, 5, dtype=torch.float64)
    net = from_model(model, x[:2], slices=4)
    task = Task.of(loss=lambda outputs, targets: outputs[:, 0], metric=lambda outputs, targets: outputs[:, 0])
    found = measure(net, task, [(x, torch.zeros(16))])
    found.arrange(net)
    full = net(x)[:, 0]
    for edge, unit in enumerate(net.graph.edges):
        if unit.bundle is not None:
            gates = net.graph.full.gates()
            gates[edge] = False
            change = (net(x, gates)[:, 0] - full).detach().square().mean()
            assert float(found.edges[edge]) == pytest.approx(float(change), rel=1e-4)


def test_a_network_masked_by_gates_computes_what_the_architecture_computes(
    net: SuperNetwork, images: tuple[Tensor, Tensor]
) -> None:
    net.eval()
    x, _ = images
    graph = net.graph
    for seed in range(4):
        row = torch.rand(len(graph.edges), generator=torch.Generator().manual_seed(seed)) < 0.6
        row |= graph.fixed

        def values(place: Place, row: Tensor = row) -> Tensor:
            operation, module = graph.operations[place[0]], net.edge_modules[place[0]]
            units = row[list(operation.axes[place[1]])].float()
            if operation.bundle:
                assert isinstance(module, Region)
                units = units.repeat_interleave(torch.tensor(module.axes[place[1]].sizes))
            return units.expand(len(x), -1).clone()

        with gated(net, len(x), values), torch.no_grad():
            masked = net(x)
        with torch.no_grad():
            assert torch.allclose(masked, net(x, row[None]), atol=1e-6)


def test_a_network_that_is_asked_for_its_own_outputs_has_the_importance_of_what_its_parts_change(
    net: SuperNetwork,
) -> None:
    """There every gradient of the loss is zero."""
    net.eval()
    torch.manual_seed(2)
    x = torch.randn(64, 3, 12, 12, dtype=torch.float64)
    with torch.no_grad():
        own = net(x)
    found = measure(net, Task(loss=lambda outputs, targets: (outputs - targets).square().sum(1)), [(x, own)])
    number = next(n for n, operation in enumerate(net.graph.operations) if operation.bundle)
    order = found.orders[number, 0].tolist()
    for unit, edge in enumerate(net.graph.operations[number].axes[0]):
        blocks = order[unit * 2 : unit * 2 + 2]
        scaled(net, number, blocks, 1 + STEP)
        with torch.no_grad():
            up = net(x)
        scaled(net, number, blocks, (1 - STEP) / (1 + STEP))
        with torch.no_grad():
            change = (up - net(x)) / (2 * STEP)
        scaled(net, number, blocks, 1 / (1 - STEP))
        exact = float(change.square().sum(1).mean())
        assert float(found.edges[edge]) == pytest.approx(exact, rel=0.5), "by one draw of signs an example"
        assert exact > 0
    assert float(measure(net, Task(), [(x, torch.randint(5, (64,)))]).edges.max()) > 0, "labels have a loss"
