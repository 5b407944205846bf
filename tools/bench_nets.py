"""The nets that benchmarks run: shapes and costs of nets that people run, weights from a seed.

Speed does not depend on the values of weights as long as nothing overflows, so each net is
initialised to keep its activations near 1, and gives finite values of sensible size in fp16 too.
"""
from __future__ import annotations

import math
from typing import List

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def he(net: nn.Module, slope: float) -> None:
    """Variance-keeping weights for convolutions before a leaky ReLU of that slope."""
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Conv3d, nn.ConvTranspose3d)):
            nn.init.kaiming_normal_(module.weight, a=slope)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class Srvgg(nn.Module):
    """Compact upscaler: a plain stack of 3x3 convolutions with PReLU at input resolution, a pixel
    shuffle at its end, added to the nearest-neighbour picture."""

    def __init__(self, features: int = 64, convs: int = 32, scale: int = 4):
        super().__init__()
        self.scale = scale
        layers: List[nn.Module] = [nn.Conv2d(3, features, 3, padding=1), nn.PReLU(features)]
        for _ in range(convs):
            layers += [nn.Conv2d(features, features, 3, padding=1), nn.PReLU(features)]
        self.body = nn.Sequential(*layers)
        self.tail = nn.Conv2d(features, 3 * scale * scale, 3, padding=1)
        he(self, 0.25)
        nn.init.normal_(self.tail.weight, std=0.02 / math.sqrt(9 * features))
        self.radius = convs + 2

    def forward(self, x: Tensor) -> Tensor:
        detail = F.pixel_shuffle(self.tail(self.body(x)), self.scale)
        return detail + F.interpolate(x, scale_factor=float(self.scale), mode="nearest")


class DenseBlock(nn.Module):
    """Five convolutions, each of which sees the results of all before it."""

    def __init__(self, features: int, growth: int):
        super().__init__()
        self.conv1 = nn.Conv2d(features, growth, 3, padding=1)
        self.conv2 = nn.Conv2d(features + growth, growth, 3, padding=1)
        self.conv3 = nn.Conv2d(features + 2 * growth, growth, 3, padding=1)
        self.conv4 = nn.Conv2d(features + 3 * growth, growth, 3, padding=1)
        self.conv5 = nn.Conv2d(features + 4 * growth, features, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.leaky_relu(self.conv1(x), 0.2)
        b = F.leaky_relu(self.conv2(torch.cat([x, a], 1)), 0.2)
        c = F.leaky_relu(self.conv3(torch.cat([x, a, b], 1)), 0.2)
        d = F.leaky_relu(self.conv4(torch.cat([x, a, b, c], 1)), 0.2)
        return x + 0.2 * self.conv5(torch.cat([x, a, b, c, d], 1))


class Rrdb(nn.Module):
    def __init__(self, features: int, growth: int):
        super().__init__()
        self.blocks = nn.Sequential(*(DenseBlock(features, growth) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.2 * self.blocks(x)


class RrdbNet(nn.Module):
    """Residual in residual dense blocks, then two doublings with a convolution after each."""

    def __init__(self, blocks: int = 23, features: int = 64, growth: int = 32):
        super().__init__()
        self.head = nn.Conv2d(3, features, 3, padding=1)
        self.trunk = nn.Sequential(*(Rrdb(features, growth) for _ in range(blocks)))
        self.after = nn.Conv2d(features, features, 3, padding=1)
        self.up1 = nn.Conv2d(features, features, 3, padding=1)
        self.up2 = nn.Conv2d(features, features, 3, padding=1)
        self.full = nn.Conv2d(features, features, 3, padding=1)
        self.tail = nn.Conv2d(features, 3, 3, padding=1)
        he(self, 0.2)
        for module in self.modules():
            if isinstance(module, DenseBlock):  # blocks start near the identity
                module.conv5.weight.data.mul_(0.1)
        nn.init.normal_(self.tail.weight, std=0.05 / math.sqrt(9 * features))
        nn.init.constant_(self.tail.bias, 0.5)
        # 15 convolutions a block, two around the trunk; those behind the doublings reach a half,
        # a quarter, a quarter and a quarter of an input pixel, from the far side of one.
        self.radius = 15 * blocks + 2 + 2

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        x = x + self.after(self.trunk(x))
        x = F.leaky_relu(self.up1(F.interpolate(x, scale_factor=2.0, mode="nearest")), 0.2)
        x = F.leaky_relu(self.up2(F.interpolate(x, scale_factor=2.0, mode="nearest")), 0.2)
        return self.tail(F.leaky_relu(self.full(x), 0.2))


def two_convs(i: int, o: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.1),
        nn.Conv3d(o, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.1))


class Up(nn.Module):
    """Doubles, joins what the way down had at that resolution, two convolutions."""

    def __init__(self, i: int, o: int):
        super().__init__()
        self.grow = nn.ConvTranspose3d(i, o, 2, 2)
        self.join = two_convs(2 * o, o)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.join(torch.cat([skip, self.grow(x)], 1))


class UNet3d(nn.Module):
    """[N,1,Z,Y,X] -> [N,classes,Z,Y,X] logits; extents are multiples of 2^(levels - 1)."""

    def __init__(self, widths: tuple = (32, 32, 64, 128, 256), classes: int = 3):
        super().__init__()
        self.first = two_convs(1, widths[0])
        self.pool = nn.MaxPool3d(2)
        self.down = nn.ModuleList(two_convs(i, o) for i, o in zip(widths, widths[1:]))
        self.up = nn.ModuleList(Up(o, i) for i, o in zip(widths[-2::-1], widths[:0:-1]))
        self.out = nn.Conv3d(widths[0], classes, 1)
        he(self, 0.1)
        self.multiple = 2 ** (len(widths) - 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skips = [x]
        for down in self.down:
            x = down(self.pool(x))
            skips.append(x)
        level = len(skips) - 2
        for up in self.up:
            x = up(x, skips[level])
            level -= 1
        return self.out(x)


def norm(channels: int, groups: int) -> nn.GroupNorm:
    return nn.GroupNorm(min(groups, channels // 2), channels, eps=1e-6)


class ResBlock2d(nn.Module):
    def __init__(self, i: int, o: int, groups: int):
        super().__init__()
        self.norm1, self.conv1 = norm(i, groups), nn.Conv2d(i, o, 3, padding=1)
        self.norm2, self.conv2 = norm(o, groups), nn.Conv2d(o, o, 3, padding=1)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Attention2d(nn.Module):
    """One head over all positions."""

    def __init__(self, channels: int, groups: int):
        super().__init__()
        self.norm = norm(channels, groups)
        self.q, self.k, self.v, self.out = (nn.Linear(channels, channels) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        flat = self.norm(x).flatten(2).transpose(1, 2).unsqueeze(1)
        seen = F.scaled_dot_product_attention(self.q(flat), self.k(flat), self.v(flat))
        return x + self.out(seen.squeeze(1)).transpose(1, 2).reshape(n, c, h, w)


class Double2d(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class VaeDecoder(nn.Module):
    """[N,4,Y,X] latents -> [N,3,8Y,8X]: widths from the latents' resolution to the picture's,
    three residual blocks at each, attention over the latents."""

    def __init__(self, widths: tuple = (512, 512, 256, 128), blocks: int = 3, groups: int = 32):
        super().__init__()
        top = widths[0]
        layers: List[nn.Module] = [
            nn.Conv2d(4, 4, 1), nn.Conv2d(4, top, 3, padding=1), ResBlock2d(top, top, groups),
            Attention2d(top, groups), ResBlock2d(top, top, groups)]
        before = top
        for level, width in enumerate(widths):
            for _ in range(blocks):
                layers.append(ResBlock2d(before, width, groups))
                before = width
            if level + 1 < len(widths):
                layers.append(Double2d(width))
        layers += [norm(before, groups), nn.SiLU(), nn.Conv2d(before, 3, 3, padding=1)]
        self.layers = nn.Sequential(*layers)
        he(self, 1.0)
        nn.init.normal_(layers[-1].weight, std=0.3 / math.sqrt(9 * before))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ResBlock3d(nn.Module):
    def __init__(self, channels: int, groups: int):
        super().__init__()
        self.norm1, self.conv1 = norm(channels, groups), nn.Conv3d(channels, channels, 3, padding=1)
        self.norm2, self.conv2 = norm(channels, groups), nn.Conv3d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(h)))


class LeafEncoder(nn.Module):
    """[N,1,8,8,8] leaves of a voxel tree -> [N,latent,2,2,2], what a codebook then replaces."""

    def __init__(self, widths: tuple = (32, 64, 128), latent: int = 64, groups: int = 8):
        super().__init__()
        a, b, c = widths
        self.layers = nn.Sequential(
            nn.Conv3d(1, a, 3, padding=1), norm(a, groups), nn.SiLU(),
            nn.Conv3d(a, b, 3, stride=2, padding=1), ResBlock3d(b, groups), norm(b, groups),
            nn.SiLU(), nn.Conv3d(b, c, 3, stride=2, padding=1), ResBlock3d(c, groups),
            norm(c, groups), nn.SiLU(), nn.Conv3d(c, latent, 1))
        he(self, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
