"""Triton's kernels on torch's tensors: additions, softmax, and products, each over many tensors.

Products in IEEE precision are chains of multiply-adds; those of bf16, f16 and tf32 are matrix instructions (mma.sync).
"""

import hashlib

import torch
import triton
import triton.language as tl

count, rows, columns = 10, 256, 512


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = at < n
    tl.store(out + at, tl.load(x + at, mask=within) + tl.load(y + at, mask=within), mask=within)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    within = tl.arange(0, BLOCK) < columns
    row = tl.load(x + at, mask=within, other=float("-inf"))
    row = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + at, row / tl.sum(row, axis=0), mask=within)


@triton.jit
def product(a, b, out, K, N, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        at = k + tl.arange(0, BLOCK)
        left = tl.load(a + i[:, None] * K + at[None, :])
        right = tl.load(b + at[:, None] * N + j[None, :])
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(out + i[:, None] * N + j[None, :], total)


def out_of(*shape):
    return torch.empty(shape, device="cuda")


torch.manual_seed(4)
host = [torch.randn(rows, columns) for _ in range(count)]
tensors = [x.cuda() for x in host]
sums, shares, products = [], [], []
for i, x in enumerate(tensors):
    y = tensors[(i + 1) % count]
    sums.append(out_of(rows, columns))
    add[(triton.cdiv(x.numel(), 1024),)](x, y, sums[-1], x.numel(), BLOCK=1024)
for x in sums:
    shares.append(out_of(rows, columns))
    softmax[(rows,)](x, shares[-1], columns, BLOCK=512)
for i, x in enumerate(shares):
    # As columns x rows the tensor is what it is read in another order.
    products.append(out_of(rows, rows))
    product[(rows // 32, rows // 32)](x, tensors[i], products[-1], columns, rows, BLOCK=32, PRECISION="ieee")

# By type: the precision asked for, and the bits of a significand that the matrix instructions take.
MATRIX = {torch.bfloat16: ("ieee", 8), torch.float16: ("ieee", 11), torch.float32: ("tf32", 11)}


def of_one_sign(*shape, along):
    """Of one sign in each row or column that a sum goes along, so that no error hides in what cancels."""
    return torch.rand(shape) * torch.randn(shape).sum(along, keepdim=True).sign()


def in_bits(x, bits):
    """What an instruction that takes so many bits of a float's significand sees of it: it ignores the others."""
    return (x.contiguous().view(torch.int32) & -(1 << (24 - bits))).view(torch.float32)


def check_matrix_product(dtype, digest):
    """Exact products of its inputs, summed in float32 in any order: off by at most K roundings of the sum of the magnitudes."""
    precision, bits = MATRIX[dtype]
    left = of_one_sign(rows, columns, along=1).to(dtype)
    right = of_one_sign(columns, rows, along=0).to(dtype)
    got = out_of(rows, rows)
    made = product[(rows // 32, rows // 32)](left.cuda(), right.cuda(), got, columns, rows, BLOCK=32, PRECISION=precision)
    assert "mma.sync" in made.asm["ptx"], "no matrix instruction"
    got = got.cpu()
    exact_left, exact_right = (in_bits(x.float(), bits).double() for x in (left, right))
    bound = columns * 2.0**-23 * (exact_left.abs() @ exact_right.abs())
    off = (got.double() - exact_left @ exact_right).abs()
    assert bool((off <= bound).all()), f"{dtype}: off by {float((off / bound).max())} of the bound"
    digest.update(got.numpy().tobytes())


digest = hashlib.sha256()
for i in range(count):
    right = torch.softmax((host[i] + host[(i + 1) % count]).double(), dim=1)
    right_product = right @ host[i].view(columns, rows).double()
    for got, want in ((shares[i], right), (products[i], right_product)):
        got = got.cpu()
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)
        digest.update(got.numpy().tobytes())
for kind in MATRIX:
    check_matrix_product(kind, digest)
print("results", digest.hexdigest())
