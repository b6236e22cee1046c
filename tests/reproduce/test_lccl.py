"""LCCL: what it computes and what it costs, each by a second way."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from budgetnet.errors import UserError
from budgetnet.reproduce.lccl import LCCL, Collaborative, mean_macs


def full_macs(depth: int) -> float:
    net = LCCL(depth).to("meta").eval()
    with FlopCounterMode(display=False) as counter:
        net(torch.empty(1, 3, 32, 32, device="meta"))
    return counter.get_total_flops() / 2


def test_a_collaborative_layer_is_a_convolution_times_a_map_of_one_channel() -> None:
    torch.manual_seed(0)
    layer = Collaborative(3, 4, stride=2).eval()
    x = torch.randn(2, 3, 6, 6)
    cheap = (x[:, :, ::2, ::2] * layer.cheap.weight.view(1, 3, 1, 1)).sum(1, keepdim=True)
    normed = cheap / torch.sqrt(torch.tensor(1 + layer.norm.eps))
    expected = F.conv2d(x, layer.wide.weight, stride=2, padding=1) * normed.clamp_min(0)
    torch.testing.assert_close(layer(x), expected)


def test_resnet_20_has_its_published_size_beside_the_cheap_layers() -> None:
    net = LCCL(20)
    cheap = sum(m.cheap.weight.numel() for m in net.modules() if isinstance(m, Collaborative))
    cheap += sum(2 for m in net.modules() if isinstance(m, Collaborative))  # scale and shift of each map
    layers = sum(isinstance(m, torch.nn.Conv2d | torch.nn.Linear) for m in net.modules())
    assert layers - 18 == 20
    # three groups of three blocks: 16, 32 and 64 channels, no projection, one batch norm before each convolution
    convolutions = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    norms = 2 * (7 * 16 + 6 * 32 + 5 * 64 + 64)
    assert sum(p.numel() for p in net.parameters()) - cheap == convolutions + norms + 64 * 10 + 10


def test_the_mean_cost_charges_only_what_the_maps_keep() -> None:
    torch.manual_seed(0)
    net, x = LCCL(8), torch.randn(3, 3, 16, 16)
    counted = mean_macs(net, [x[:2], x[2:]])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net.eval()(x[:1])
    full = counter.get_total_flops() / 2
    zeros: dict[Collaborative, float] = {}
    for layer in _layers(net):
        layer.register_forward_hook(lambda m, i, o: zeros.update({m: float((m.map(i[0]) == 0).sum()) / len(x)}))
    net(x)
    saved = sum(share * layer.wide.weight.numel() for layer, share in zeros.items())
    assert counted == pytest.approx(full - saved)
    assert 0 < saved < full


def _layers(net: LCCL) -> list[Collaborative]:
    return [module for module in net.modules() if isinstance(module, Collaborative)]


def test_with_all_maps_open_the_cost_is_that_of_the_whole_network() -> None:
    net = LCCL(20)
    for layer in _layers(net):
        torch.nn.init.ones_(layer.norm.bias)
        torch.nn.init.zeros_(layer.norm.weight)
    assert mean_macs(net, [torch.randn(2, 3, 32, 32)]) == full_macs(20)
    assert net.training


@pytest.mark.parametrize("depth", [2, 21])
def test_a_depth_that_does_not_fit_is_refused(depth: int) -> None:
    with pytest.raises(UserError, match=r"6n \+ 2"):
        LCCL(depth)


def test_no_image_has_no_mean() -> None:
    with pytest.raises(UserError, match="at least one image"):
        mean_macs(LCCL(8), [])
