"""Trains a network by IREE's CUDA runtime: iree_step.mlir is one step with momentum, as JAX lowers it."""

import hashlib
import os

import iree.runtime as iree
import numpy as np

layers, width, batch, steps = 6, 384, 64, int(os.environ.get("TRAIN_STEPS", 4))
rng = np.random.default_rng(5)
device = iree.get_device("cuda")
config = iree.Config(device=device)
with open("step.vmfb", "rb") as file:
    step = iree.load_vm_module(iree.VmModule.copy_buffer(config.vm_instance, file.read()), config).main


def forward(weights, x):
    """The inputs of each layer, and the result."""
    inputs = [x]
    for w in weights[:-1]:
        inputs.append(np.tanh(inputs[-1] @ w))
    return inputs, inputs[-1] @ weights[-1]


weights = [rng.normal(size=(width, width), scale=width**-0.5).astype(np.float32) for _ in range(layers)]
momenta = [np.zeros_like(w) for w in weights]
data = [[rng.normal(size=(batch, width)).astype(np.float32) for _ in range(2)] for _ in range(steps)]
state = [iree.asdevicearray(device, values) for values in weights + momenta]
for number, (x, y) in enumerate(data):
    *state, loss = step(*state, x, y)
    # The same by NumPy, in double precision.
    inputs, result = forward([w.astype(np.float64) for w in weights], x)
    gradient = 2 * (result - y) / y.size
    loss = loss.to_host()
    np.testing.assert_allclose(loss, np.mean((result - y) ** 2), rtol=1e-4)
    for i in reversed(range(layers)):
        change = inputs[i].T @ gradient
        gradient = (gradient @ weights[i].T) * (1 - inputs[i] ** 2)
        momenta[i] = 0.9 * momenta[i] + change
        weights[i] = weights[i] - 0.1 * momenta[i]
    print(f"step {number}: loss {float(loss)!r}", flush=True)
digest = hashlib.sha256()
for got, want in zip(state, weights + momenta):
    got = got.to_host()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)
    digest.update(got.tobytes())
print("parameters", digest.hexdigest())
