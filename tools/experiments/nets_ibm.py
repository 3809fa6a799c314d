"""The networks of IBM's experiments."""

import math

import torch
import torch.nn.functional as F
from recorder import train
from torch import nn


class VDSR(nn.Module):
    """Kim and others 2016, after the PyTorch code of twtygqyy that IBM used."""

    def __init__(self):
        super().__init__()
        widths = [1, *[64] * 19, 1]
        self.layers = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in zip(widths, widths[1:]))

    def forward(self, x):
        y = x
        for layer in self.layers[:-1]:
            y = F.relu_(layer(y))
        return self.layers[-1](y) + x


def vdsr(recorder, size):
    batch, side = size

    def loss(model):
        x, target = (torch.zeros(batch, 1, side, side) for _ in range(2))
        return F.mse_loss(model(x), target, reduction="sum") / batch

    train(recorder, VDSR(), loss, states=1, clip=0.4)


class Block3D(nn.Module):
    """Convolution, keras_contrib's InstanceNormalization and Keras 2.1's LeakyReLU, an operation a kernel."""

    def __init__(self, i, o, kernel=3, stride=1):
        super().__init__()
        self.convolution = nn.Conv3d(i, o, kernel, stride, kernel // 2)
        self.gamma, self.beta = (nn.Parameter(torch.empty(1, o, 1, 1, 1)) for _ in range(2))

    def forward(self, x):
        x = self.convolution(x)
        mean = x.mean((2, 3, 4), keepdim=True)
        deviation = (x - mean).square().mean((2, 3, 4), keepdim=True).sqrt() + 1e-3
        x = (x - mean) / deviation
        x = x * self.gamma + self.beta
        return F.relu(x) - F.relu(-x) * 0.3


class Isensee(nn.Module):
    """Isensee and others 2017, after isensee2017_model of ellisdg's 3DUnetCNN: BraTS has 4 images and 3 labels."""

    DEPTH, LEVELS, FILTERS, LABELS = 5, 3, 16, 3

    def __init__(self):
        super().__init__()
        width = [self.FILTERS << level for level in range(self.DEPTH)]
        ups = range(self.DEPTH - 1)
        self.into = nn.ModuleList(Block3D(width[k - 1] if k else 4, width[k], stride=2 if k else 1) for k in range(self.DEPTH))
        self.context = nn.ModuleList(nn.ModuleList(Block3D(each, each) for _ in range(2)) for each in width)
        self.up = nn.ModuleList(Block3D(width[k + 1], width[k]) for k in ups)
        self.wide = nn.ModuleList(Block3D(2 * width[k], width[k]) for k in ups)
        self.narrow = nn.ModuleList(Block3D(width[k], width[k], kernel=1) for k in ups)
        self.labels = nn.ModuleList(nn.Conv3d(width[k], self.LABELS, 1) for k in range(self.LEVELS))

    def forward(self, x):
        outputs = []
        for into, (first, second) in zip(self.into, self.context):
            x = into(x)
            dropped = first(x) * torch.zeros(1, x.shape[1], 1, 1, 1)
            x = x + second(dropped)
            outputs.append(x)
        found = None
        for k in reversed(range(self.DEPTH - 1)):
            x = self.up[k](F.interpolate(x, scale_factor=2))
            x = self.narrow[k](self.wide[k](torch.cat([outputs[k], x], 1)))
            if k < self.LEVELS:
                found = self.labels[k](x) if found is None else F.interpolate(found, scale_factor=2) + self.labels[k](x)
        return torch.sigmoid(found)


def unet3d(recorder, side):
    def loss(model):
        y = model(torch.zeros(1, 4, side, side, side))
        truth = torch.zeros_like(y)
        space = (2, 3, 4)
        return -(2 * (y * truth).sum(space) / (y.sum(space) + truth.sum(space) + 1e-5)).mean()

    train(recorder, Isensee(), loss, states=2)


def googlenet(recorder, batch):
    """Szegedy and others 2015, the deploy net of BVLC's GoogLeNet: ReLU in place, a concat a module."""
    kept = []  # a blob is never freed

    def blob(y):
        kept.append(y)
        return y

    def convolution(x, o, kernel=1, stride=1):
        weight = blob(torch.empty(o, x.shape[1], kernel, kernel))
        return F.relu_(blob(F.conv2d(x, weight, stride=stride, padding=kernel // 2)))

    def layer(name, x, side):
        """With a second blob: what the maximum was, or the scale."""
        y, second = (blob(torch.empty(*x.shape[:2], side, side)) for _ in range(2))
        recorder.kernel(name, [x], [y, second])
        return y

    def pool(x, stride=2):
        return layer("max_pool", x, math.ceil((x.shape[2] + (2 if stride == 1 else 0) - 3) / stride) + 1)

    def normalised(x):
        return layer("lrn", x, x.shape[2])

    def module(x, one, reduce3, three, reduce5, five, projected):
        return blob(torch.cat([convolution(x, one), convolution(convolution(x, reduce3), three, 3),
                               convolution(convolution(x, reduce5), five, 5), convolution(pool(x, 1), projected)], 1))

    with torch.no_grad():
        x = blob(torch.zeros(batch, 3, 1200, 1200))
        x = normalised(pool(convolution(x, 64, 7, 2)))
        x = pool(normalised(convolution(convolution(x, 64), 192, 3)))
        for after, *widths in ((0, 64, 96, 128, 16, 32, 32), (1, 128, 128, 192, 32, 96, 64), (0, 192, 96, 208, 16, 48, 64),
                               (0, 160, 112, 224, 24, 64, 64), (0, 128, 128, 256, 24, 64, 64), (0, 112, 144, 288, 32, 64, 64),
                               (1, 256, 160, 320, 32, 128, 128), (0, 256, 160, 320, 32, 128, 128),
                               (0, 384, 192, 384, 48, 128, 128)):
            x = module(x, *widths)
            x = pool(x) if after else x
