"""Weights and a cache in memory that torch_memory_saver, or vLLM's sleep mode, maps, gives back and maps again at the same
addresses, with training between, as engines do that share a GPU with a trainer. memory_saver_rounds.py HOOK | vllm"""

import hashlib
import sys

import torch
import triton
import triton.language as tl

if sys.argv[1] == "vllm":
    from vllm_sleep import saver
else:
    from torch_memory_saver import torch_memory_saver as saver

    saver.hook_mode = sys.argv[1]

count, size, rounds = 3, 5 << 19, 3


@triton.jit
def blend(x, y, out, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = at < n
    tl.store(out + at, tl.load(x + at, mask=within) * scale + tl.load(y + at, mask=within), mask=within)


def blended(x, y, scale, out):
    blend[(triton.cdiv(size, 4096),)](x, y, out, size, scale, BLOCK=4096)
    return out


torch.manual_seed(9)
# What the GPU holds, and the same by the CPU. A scale that is a power of two makes the two equal bit for bit.
host = [torch.randn(size) for _ in range(count)]
with saver.region(tag="weights", enable_cpu_backup=True):
    weights = [x.cuda() for x in host]
with saver.region(tag="cache"):
    cache = [torch.empty(size, device="cuda") for _ in range(count)]
digest = hashlib.sha256()
for number in range(rounds):
    for i in range(count):
        blended(weights[i], weights[i - 1], 0.5, cache[i])
    for i in range(count):
        assert torch.equal(cache[i].cpu(), host[i] * 0.5 + host[i - 1]), (number, i)
    addresses = [x.data_ptr() for x in weights + cache]
    saver.pause("cache")
    saver.pause("weights")

    steps = [torch.randn(size) for _ in range(2 * count)]
    on_gpu = [x.cuda() for x in steps]
    for i in range(count):
        blended(on_gpu[i], on_gpu[count + i], -0.25, on_gpu[i])
    updates = [x.cpu() for x in on_gpu[:count]]
    for got, a, b in zip(updates, steps, steps[count:]):
        assert torch.equal(got, a * -0.25 + b), number
    del on_gpu
    torch.cuda.empty_cache()

    saver.resume("weights")
    saver.resume("cache")
    assert addresses == [x.data_ptr() for x in weights + cache]
    for i in range(count):
        blended(weights[i], blended(updates[i].cuda(), updates[i - 1].cuda(), 0.5, cache[i]), 1.0, weights[i])
        host[i] = host[i] + (updates[i] * 0.5 + updates[i - 1])
        got = weights[i].cpu()
        assert torch.equal(got, host[i]), (number, i)
        digest.update(got.numpy().tobytes())
    print(f"round {number}: mean {host[0].mean().item()!r}", flush=True)
print("weights", digest.hexdigest())
