"""Models as people write them, in plain torch and tiny: what `from_model` is tried on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.shortcut(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + identity)


class ResNet(nn.Module):
    def __init__(self, blocks: Sequence[nn.Module], stem: int, features: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, stem, 3, 1, 1, bias=False), nn.BatchNorm2d(stem)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(features, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


def resnet_for(input_shape: Sequence[int], classes: int, width: int = 4) -> nn.Module:
    """A ResNet for some data, as the command line builds it."""
    blocks = [BasicBlock(width, width), BasicBlock(width, 2 * width, 2)]
    model = ResNet(blocks, width, 2 * width)
    model.conv1 = nn.Conv2d(input_shape[0], width, 3, 1, 1, bias=False)
    model.fc = nn.Linear(2 * width, classes)
    return model


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        self.use_res_connect = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *(
                [nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
                * (expand > 1)
            ),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


def mobilenet_v2() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(inplace=True),
        InvertedResidual(8, 6, 1, 1),
        InvertedResidual(6, 8, 2, 3),
        InvertedResidual(8, 8, 1, 3),
        InvertedResidual(8, 8, 1, 3),
        nn.Conv2d(8, 16, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.0),
        nn.Linear(16, 5),
    )


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.fc2(F.relu(self.fc1(F.adaptive_avg_pool2d(x, 1)))))


class ExcitedBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.expand, self.bn1 = nn.Conv2d(channels, 3 * channels, 1), nn.BatchNorm2d(3 * channels)
        self.se = SqueezeExcite(3 * channels)
        self.project, self.bn2 = nn.Conv2d(3 * channels, channels, 1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bn2(self.project(self.se(F.silu(self.bn1(self.expand(x))))))


def excited() -> nn.Module:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)]
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), ExcitedBlock(8), ExcitedBlock(8), *head)


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(8, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(12, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d((2, 2)),
        nn.Flatten(),
        nn.Linear(8 * 2 * 2, 16),
        nn.ReLU(True),
        nn.Linear(16, 5),
    )


class DoubleConv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = DoubleConv(3, 6), DoubleConv(6, 8), DoubleConv(8, 10)
        self.up2, self.join2 = nn.ConvTranspose2d(10, 8, 2, 2), DoubleConv(16, 8)
        self.up1, self.join1 = nn.ConvTranspose2d(8, 6, 2, 2), DoubleConv(12, 6)
        self.out = nn.Conv2d(6, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        bottom = self.bottom(F.max_pool2d(two, 2))
        two = self.join2(torch.cat([two, self.up2(bottom)], 1))
        return self.out(self.join1(torch.cat([one, self.up1(two)], 1)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.pwconv1, self.pwconv2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))).permute(0, 3, 1, 2)


class ChannelNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight[:, None, None] * ((x - mean) / torch.sqrt(var + 1e-6)) + self.bias[:, None, None]


def convnext() -> nn.Module:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.LayerNorm(12), nn.Linear(12, 5)]
    return nn.Sequential(
        nn.Conv2d(3, 8, 2, 2),
        ChannelNorm(8),
        ConvNeXtBlock(8),
        ChannelNorm(8),
        nn.Conv2d(8, 12, 2, 2),
        ConvNeXtBlock(12),
        *head,
    )


class SelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(batch, length, dim))


class ViTBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), SelfAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.0), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim: int = 24, heads: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, 4)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, dim)), nn.Parameter(0.1 * torch.randn(1, 17, dim))
        self.blocks = nn.Sequential(*(ViTBlock(dim, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


class Encoder(nn.Module):
    """`nn.TransformerEncoder` with a padding mask."""

    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        x = self.encoder(self.embed(tokens), src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).to(x.dtype)
        return self.head((x * kept).sum(1) / kept.sum(1))


class GatedBlock(nn.Module):
    """Grouped key/value heads with rotary positions, then a gated MLP, as language models have them."""

    def __init__(self, dim: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, dim // heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.q = nn.Linear(dim, dim, bias=False)
        self.k, self.v = (nn.Linear(dim, groups * self.size, bias=False) for _ in range(2))
        self.o = nn.Linear(dim, dim, bias=False)
        self.gate, self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        y = self.norm1(x)
        q = self.turned(self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2), cos, sin)
        k = self.turned(self.k(y).view(batch, length, self.groups, self.size).transpose(1, 2), cos, sin)
        v = self.v(y).view(batch, length, self.groups, self.size).transpose(1, 2)
        times = self.heads // self.groups
        k, v = (
            t[:, :, None]
            .expand(batch, self.groups, times, length, self.size)
            .reshape(batch, self.heads, length, self.size)
            for t in (k, v)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(out.transpose(1, 2).reshape(batch, length, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 32)
        self.blocks = nn.ModuleList(GatedBlock(32, 4, 2) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(32), nn.Linear(32, 20, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        positions = torch.arange(tokens.shape[1])[:, None] * 0.3 ** torch.arange(4)
        angles = torch.cat([positions, positions], -1)
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        return self.head(self.norm(x))


def signals() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 8, 5, 2),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Conv1d(8, 16, 3),
        nn.PReLU(16),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 8, 3),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def table() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 1))


class Recurrent(nn.Module):
    """An LSTM, which cannot be narrowed, with an MLP behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def images(batch: int = 4, side: int = 16) -> Tensor:
    return torch.randn(batch, 3, side, side)


def tokens(batch: int = 4) -> Tensor:
    return torch.randint(0, 20, (batch, 6))


def padding(batch: int = 4) -> Tensor:
    return torch.arange(6)[None] >= torch.randint(2, 7, (batch, 1))


def encoder_with_inputs() -> tuple[nn.Module, dict[str, Tensor]]:
    """A model and example inputs, as the command line takes them."""
    return Encoder(), {"tokens": tokens(2), "padding": padding(2)}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any]]] = {
    "resnet": (lambda: ResNet([BasicBlock(8, 8), BasicBlock(8, 12, 2), BasicBlock(12, 12)], 8, 12), images),
    "bottleneck": (lambda: ResNet([Bottleneck(8, 6), Bottleneck(24, 6), Bottleneck(24, 8, 2)], 8, 32), images),
    "mobilenet": (mobilenet_v2, images),
    "excited": (excited, images),
    "vgg": (vgg, images),
    "unet": (UNet, images),
    "convnext": (convnext, images),
    "vit": (ViT, images),
    "encoder": (Encoder, lambda n: {"tokens": tokens(n), "padding": padding(n)}),
    "encoder-pre": (lambda: Encoder(norm_first=True), lambda n: (tokens(n), padding(n))),
    "gated": (Gated, tokens),
    "signals": (signals, lambda n: torch.randn(n, 2, 30)),
    "table": (table, lambda n: torch.randn(n, 7)),
    "recurrent": (Recurrent, lambda n: torch.randn(n, 5, 4)),
}
"""By name: how to make the model, and inputs for so many examples."""
