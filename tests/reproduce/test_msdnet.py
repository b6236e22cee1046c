"""MSDNet against the published numbers: multiply-adds and parameters of every exit, for CIFAR and for ImageNet."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from budgetnet.errors import UserError
from budgetnet.reproduce.msdnet import IMAGE_NET, MSDNet, Settings, exit_losses

CIFAR, LARGE = (1, 3, 32, 32), (1, 3, 224, 224)


@pytest.fixture(scope="module")
def cifar() -> MSDNet:
    return MSDNet().to("meta").eval()


@pytest.fixture(scope="module")
def image_net() -> MSDNet:
    return MSDNet(IMAGE_NET).to("meta").eval()


def macs(module: nn.Module, shape: tuple[int, ...]) -> float:
    """Millions of multiply-adds, by torch's own counter."""
    with FlopCounterMode(display=False) as counter:
        module(torch.empty(shape, device="meta"))
    return counter.get_total_flops() / 2e6


def params(module: nn.Module) -> float:
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


def other_operations(module: nn.Module, shape: tuple[int, ...]) -> float:
    """Millions of what the published count adds to multiply-adds: activations, pooled values and biases."""
    total = 0

    def note(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal total
        total += output.numel() * window[type(layer)]

    window = {nn.ReLU: 1, nn.AvgPool2d: 4, nn.MaxPool2d: 9, nn.Linear: 1}
    handles = [child.register_forward_hook(note) for child in module.modules() if type(child) in window]
    module(torch.empty(shape, device="meta"))
    for handle in handles:
        handle.remove()
    return total / 1e6


def test_multiply_adds_up_to_every_exit_of_the_cifar_network(cifar: MSDNet) -> None:
    anytime = [round(macs(cifar.up_to(i), CIFAR), 1) for i in range(11)]
    assert anytime == [15.0, 25.2, 37.4, 51.6, 61.7, 73.5, 87.1, 99.4, 109.4, 121.0, 134.0]
    alone = [round(macs(cifar.up_to(i, all_exits=False), CIFAR), 2) for i in range(11)]
    published = [15.0, 21.7, 29.5, 38.3, 44.8, 52.1, 60.4, 66.4, 72.3, 78.9, 86.1]
    assert alone == pytest.approx(published, abs=0.0501)


def test_parameters_of_the_cifar_network(cifar: MSDNet) -> None:
    assert round(params(cifar.up_to(0)), 2) == 0.42
    assert round(params(cifar.up_to(9)), 2) == 4.84


def test_the_same_arithmetic_gives_the_published_imagenet_numbers(image_net: MSDNet) -> None:
    prefixes = [image_net.up_to(i) for i in range(5)]
    # the publication's counter adds activations, pooling and biases to the multiply-adds
    operations = [round(macs(prefix, LARGE) + other_operations(prefix, LARGE), 2) for prefix in prefixes]
    assert operations == [615.69, 1436.39, 2283.21, 2967.42, 3253.79]
    assert [round(params(prefix), 2) for prefix in prefixes] == [8.76, 20.15, 31.73, 41.86, 62.31]


def test_an_exit_alone_computes_what_the_whole_network_computes_there() -> None:
    torch.manual_seed(0)
    net = MSDNet(Settings(exits=3, base=2, step=1, channels=4, growth=2)).eval()
    x = torch.randn(2, 3, 32, 32)
    logits = net(x)
    assert logits.shape == (3, 2, 10)
    for i in range(3):
        torch.testing.assert_close(net.up_to(i)(x), logits[i])
        torch.testing.assert_close(net.up_to(i, all_exits=False)(x), logits[i])


def test_the_loss_is_the_sum_of_cross_entropies_over_the_exits() -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(3, 5, 4), torch.randint(4, (5,))
    by_hand = [sum(-logits[e, i].log_softmax(0)[targets[i]] for e in range(3)) for i in range(5)]
    torch.testing.assert_close(exit_losses(logits, targets), torch.stack(by_hand))


def test_a_network_without_an_exit_is_refused() -> None:
    with pytest.raises(UserError, match="at least one exit"):
        MSDNet(Settings(exits=0))
