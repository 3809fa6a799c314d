"""Sums over all pairs of points by PyKeOps, on PyTorch's tensors: kernels that it writes for a formula, by NVRTC."""

import hashlib
import pathlib

import torch
from keopscore.binders.nvrtc.Gpu_link_compile import Gpu_link_compile

# PTX in place of native code, for which its compiler is compiled anew, once.
Gpu_link_compile.low_level_code_prefix = "ptx_"
if not pathlib.Path("as_ptx").exists():
    Gpu_link_compile.compile_jit_compile_dll()
    pathlib.Path("as_ptx").touch()

from pykeops.torch import Genred

count, points, width = 16, 1024, 64
torch.manual_seed(3)
clouds = [torch.randn(points, 3) for _ in range(count)]
signals = [torch.randn(points, width) for _ in range(count)]
blur = Genred("Exp(-SqDist(x, y)) * b", ["x = Vi(3)", "y = Vj(3)", f"b = Vj({width})"], reduction_op="Sum", axis=1)


def right(cloud, other, signal):
    return torch.exp(-(torch.cdist(cloud.double(), other.double()) ** 2)) @ signal.double()


on_gpu = [x.cuda() for x in clouds]
first = [blur(x, on_gpu[i - 1], s.cuda(), backend="GPU_1D") for i, (x, s) in enumerate(zip(on_gpu, signals))]
second = [blur(x, x, first[i - 1], backend="GPU_1D") for i, x in enumerate(on_gpu)]
digest = hashlib.sha256()
for i in range(count):
    got = first[i].cpu()
    torch.testing.assert_close(got.double(), right(clouds[i], clouds[i - 1], signals[i]), rtol=1e-3, atol=1e-3)
    got_after = second[i].cpu()
    torch.testing.assert_close(got_after.double(), right(clouds[i], clouds[i], first[i - 1].cpu()), rtol=1e-3, atol=1e-2)
    digest.update(got.numpy().tobytes() + got_after.numpy().tobytes())
print("sums", digest.hexdigest())
