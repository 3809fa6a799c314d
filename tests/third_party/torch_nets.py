"""Networks that PyTorch compiles to Triton's kernels alone, and how: its own kernels come as native code, which a simulated GPU
does not run."""

import sys

import torch
import torch._inductor.config as inductor
from torch import nn
from torch._inductor.choices import InductorChoices, register_inductor_choices


class FirstChoice(InductorChoices):
    """One way to compute each product: where there are several, they are timed."""

    def _finalize_template_configs(self, *args, **kwargs):
        return super()._finalize_template_configs(*args, **kwargs)[:1]

    def uuid(self):
        return "first choice"


register_inductor_choices("first choice", FirstChoice)
# The same of sums.
inductor.test_configs.force_filter_reduction_configs = True
inductor.max_autotune_gemm = True
inductor.max_autotune_gemm_backends = "TRITON"
inductor.compile_threads = 1
inductor.triton.autotune_pointwise = False
# Constants would be made by kernels of its own.
inductor.joint_graph_constant_folding = False
torch.manual_seed(5)


class Perceptron(nn.Sequential):
    shape, layers, width = (64, 512), 6, 512

    def __init__(self):
        super().__init__()
        for _ in range(self.layers):
            self.append(nn.Linear(self.width, self.width))
            self.append(nn.Tanh())

    @staticmethod
    def batch():
        return torch.randn(Perceptron.shape), torch.randn(Perceptron.shape)

    def loss(self, x, y):
        return ((self(x) - y) ** 2).mean()


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5 + mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    words, width, heads, layers, shape = 512, 256, 4, 2, (4, 64)

    def __init__(self):
        super().__init__()
        length = self.shape[1]
        self.word, self.place = nn.Embedding(self.words, self.width), nn.Embedding(length, self.width)
        self.blocks = nn.ModuleList([Block(self.width, self.heads) for _ in range(self.layers)])
        self.norm, self.head = nn.LayerNorm(self.width), nn.Linear(self.width, self.words, bias=False)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    @staticmethod
    def batch():
        # No word twice: its gradients would be added in the order in which blocks run.
        sequences, length = Gpt.shape
        text = torch.randperm(Gpt.words)[: sequences * (length + 1)].view(sequences, length + 1)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def loss(self, x, y):
        x = self.word(x) + self.place.weight
        for block in self.blocks:
            x = block(x, self.mask)
        scores = self.head(self.norm(x))
        return nn.functional.cross_entropy(scores.view(-1, self.words), y.view(-1))


def optimizer_of(model):
    """AdamW with its state made on the CPU; each parameter updated by itself, or all by one kernel."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach="apart" not in sys.argv)
    for p in model.parameters():
        zeros = [torch.zeros(p.shape).to(p.device) for _ in range(2)]
        optimizer.state[p] = {"step": torch.tensor(0.0), "exp_avg": zeros[0], "exp_avg_sq": zeros[1]}
    return optimizer
