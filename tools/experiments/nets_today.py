"""Networks of today."""

import torch
import torch.nn.functional as F
from recorder import train
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, i, width, stride):
        super().__init__()
        shapes = (i, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, o, k, step, k // 2, bias=False) for a, o, k, step in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(each) for each in (width, width, 4 * width))
        self.shortcut = None
        if i != 4 * width:
            self.shortcut = nn.Sequential(nn.Conv2d(i, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = x
        for convolution, norm in list(zip(self.convolutions, self.norms))[:2]:
            y = F.relu_(norm(convolution(y)))
        y = self.norms[2](self.convolutions[2](y))
        y += self.shortcut(x) if self.shortcut else x
        return F.relu_(y)


def resnet50(recorder, batch):
    layers, i = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            layers.append(Bottleneck(i, width, stride if k == 0 else 1))
            i = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000)).bfloat16()

    def loss(model):
        images = torch.zeros(batch, 3, 224, 224, dtype=torch.bfloat16)
        return F.cross_entropy(model(images), torch.zeros(batch, dtype=torch.long))

    train(recorder, model, loss, states=2)  # the weight in 32 bits and its momentum


def causal_attention(q, k, v, causal=True):
    """Of (batch, length, heads, width), as one kernel."""
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[0].transpose(1, 2)


class GPTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)) for each in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(causal_attention(q, k, v).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class GPT(nn.Module):
    """Radford and others 2019, GPT-2 XL, its vocabulary filled up to a multiple of 128."""

    def __init__(self, width=1600, heads=25, layers=48, words=50304, length=1024):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.zeros(tokens.shape[1], dtype=torch.long))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


def gpt2xl(recorder, batch):
    def loss(model):
        tokens, targets = (torch.zeros(batch, 1024, dtype=torch.long) for _ in range(2))
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    train(recorder, GPT().bfloat16(), loss, states=3)  # the weight in 32 bits and Adam's two


class Residual(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, each) for each in (i, o))
        self.convolutions = nn.ModuleList(nn.Conv2d(a, o, 3, padding=1) for a in (i, o))
        self.time = nn.Linear(1280, o)
        self.shortcut = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, time, _):
        y = self.convolutions[0](F.silu(self.norms[0](x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.convolutions[1](F.silu(self.norms[1](y)))


class Transformer(nn.Module):
    """Attention within the image and to the text, and a gated layer."""

    def __init__(self, width, heads=8, text=768):
        super().__init__()
        self.heads = heads
        self.norm, self.norms = nn.GroupNorm(32, width), nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.into, self.out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.attend = nn.ModuleList(nn.ModuleList([nn.Linear(width, width, bias=False), nn.Linear(source, width, bias=False),
                                                   nn.Linear(source, width, bias=False), nn.Linear(width, width)])
                                    for source in (width, text))
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, _, text):
        y = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        for norm, (q, k, v, out), source in zip(self.norms, self.attend, (None, text)):
            z = norm(y)
            source = z if source is None else source
            heads = (each.unflatten(-1, (self.heads, -1)) for each in (q(z), k(source), v(source)))
            y = y + out(causal_attention(*heads, causal=False).flatten(-2))
        z, gate = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(z * F.gelu(gate))
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


class Resample(nn.Module):
    def __init__(self, width, up):
        super().__init__()
        self.up, self.convolution = up, nn.Conv2d(width, width, 3, 1 if up else 2, 1)

    def forward(self, x, *_):
        return self.convolution(F.interpolate(x, scale_factor=2) if self.up else x)


class Diffusion(nn.Module):
    """Rombach and others 2022, the U-Net of Stable Diffusion 1.5."""

    def __init__(self, widths=(320, 640, 1280, 1280), blocks=2):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(320, 1280), nn.SiLU(), nn.Linear(1280, 1280))
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.up, skips, last = nn.ModuleList(), nn.ModuleList(), [widths[0]], len(widths) - 1
        width = widths[0]
        for level, o in enumerate(widths):
            for _ in range(blocks):
                self.down.append(nn.ModuleList([Residual(width, o), *([Transformer(o)] if level < last else [])]))
                width = o
                skips.append(o)
            if level < last:
                self.down.append(nn.ModuleList([Resample(o, up=False)]))
                skips.append(o)
        self.middle = nn.ModuleList([Residual(width, width), Transformer(width), Residual(width, width)])
        for level, o in reversed(list(enumerate(widths))):
            for block in range(blocks + 1):
                parts = [Residual(width + skips.pop(), o), *([Transformer(o)] if level < last else [])]
                self.up.append(nn.ModuleList([*parts, *([Resample(o, up=True)] if level and block == blocks else [])]))
                width = o
        self.last = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, x, time, text):
        time, x = self.time(time), self.first(x)
        skips = [x]
        for parts in self.down:
            for part in parts:
                x = part(x, time, text)
            skips.append(x)
        for part in self.middle:
            x = part(x, time, text)
        for parts in self.up:
            x = torch.cat([x, skips.pop()], 1)
            for part in parts:
                x = part(x, time, text)
        return self.last(x)


def diffusion(recorder, batch):
    def loss(model):
        x, time, text, noise = (torch.zeros(batch, *shape, dtype=torch.bfloat16)
                                for shape in ((4, 64, 64), (320,), (77, 768), (4, 64, 64)))
        return F.mse_loss(model(x, time, text), noise)

    train(recorder, Diffusion().bfloat16(), loss, states=3)


class Llama(nn.Module):
    """Touvron and others 2023, the 7e9 weights."""

    def __init__(self, width=4096, heads=32, layers=32, inner=11008, words=32000):
        super().__init__()
        self.heads = heads

        def linear(i, o):
            return nn.Linear(i, o, bias=False)

        self.words, self.head = nn.Embedding(words, width), linear(width, words)
        self.layers = nn.ModuleList(nn.ModuleList([linear(width, 3 * width), linear(width, width), linear(width, 2 * inner),
                                                   linear(inner, width)]) for _ in range(layers))

    def forward(self, tokens, cache):
        x = self.words(tokens)
        for k, (qkv, out, up, down) in enumerate(self.layers):
            q, *new = (each.unflatten(-1, (self.heads, -1)) for each in qkv(x).chunk(3, -1))
            old = cache[k] or [each[:, :0] for each in new]
            cache[k] = [torch.cat(pair, 1) for pair in zip(old, new)]
            x = x + out(causal_attention(q, *cache[k]).flatten(-2))
            y, gate = up(x).chunk(2, -1)
            x = x + down(F.silu(gate) * y)
        return self.head(x[:, -1])


def decode(recorder, batch, prompt=1024, words=3):
    model = Llama().bfloat16()
    recorder.begin(model.parameters())
    with torch.no_grad():
        cache = [None] * len(model.layers)
        for length in (prompt, *[1] * words):
            model(torch.zeros(batch, length, dtype=torch.long), cache)
        cache.clear()
        recorder.sweep()
