"""An MLP of twelve layers through TVM's compiler for CUDA, its weights on the GPU, batch after batch."""

import hashlib

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.support import nvcc

layers, width, batch, batches = 12, 512, 32, 4


@tvm.register_global_func("tvm_callback_cuda_compile", override=True)
def compile_to_ptx(code):
    """TVM's own, but PTX in place of native code."""
    return nvcc.compile_cuda(code, target_format="ptx", compiler="nvrtc")


class Network(nn.Module):
    def __init__(self):
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x):
        for layer in self.layers:
            x = nn.op.relu(layer(x))
        return x


module, parameters = Network().export_tvm(spec={"forward": {"x": nn.spec.Tensor((batch, width), "float32")}})
target = tvm.target.Target.from_device("cuda")
executable = tvm.compile(module, target)
device = tvm.cuda(0)
machine = relax.VirtualMachine(executable, device)

rng = np.random.default_rng(6)
weights = [
    rng.normal(size=p.shape, scale=(2 / width) ** 0.5 if len(p.shape) == 2 else 0.1).astype(np.float32)
    for _, p in parameters
]
on_gpu = [tvm.runtime.tensor(w, device) for w in weights]
inputs = [rng.normal(size=(batch, width)).astype(np.float32) for _ in range(batches)]
results = [machine["forward"](tvm.runtime.tensor(x, device), *on_gpu) for x in inputs]
digest = hashlib.sha256()
for x, result in zip(inputs, results):
    result = result.numpy()
    for w, b in zip(weights[::2], weights[1::2]):
        x = np.maximum(x @ w.T + b, 0)
    np.testing.assert_allclose(result, x, rtol=1e-3, atol=1e-4)
    digest.update(result.tobytes())
    print(f"mean {float(result.mean())!r}")
print("results", digest.hexdigest())
