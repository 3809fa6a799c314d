"""Triton: a fused element-wise kernel and a tiled product, launched over many buffers."""

import result

options = result.parse(__doc__)

import torch_common as common

try:
    import triton
    import triton.language as tl
except Exception as problem:  # a broken installation raises more than ImportError
    result.unavailable(f"triton: {type(problem).__name__}: {problem}")
import torch

SIDE = 1024


@triton.jit
def fused(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a, b = tl.load(x + at, mask=inside), tl.load(y + at, mask=inside)
    tl.store(x + at, tl.where(a > b, a * 0.5 + b, a + b * 0.25), mask=inside)


@triton.jit
def product(a, b, c, N, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, N, BLOCK):
        inner = k + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * N + inner[None, :])
        right = tl.load(b + inner[:, None] * N + columns[None, :])
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], total / N)


def main():
    common.probe(options)
    common.prepare()
    count = max(3, (options.mib << 20) // (SIDE * SIDE * 4))
    buffers = [torch.randn(SIDE, SIDE, device="cuda") for _ in range(count)]
    timed = result.Steps()
    for step in range(options.steps):
        for i in range(count):
            x, y, z = buffers[i], buffers[(i + 1) % count], buffers[(i + 2) % count]
            if i % 3 == 0:
                product[(SIDE // 64, SIDE // 64)](x, y, z, SIDE, BLOCK=64)
            else:
                fused[(SIDE * SIDE // 1024,)](x, y, SIDE * SIDE, BLOCK=1024)
        timed.done(sum(b.sum().item() for b in buffers))
    timed.report("triton", triton.__version__, torch.cuda.get_device_name(),
                 result.digest(b.cpu().numpy() for b in buffers), torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
