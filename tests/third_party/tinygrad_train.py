"""Trains a small network with tinygrad, the first steps by launches, the others by a graph that is updated."""

import numpy as np
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.optim import Adam

Tensor.manual_seed(3)
rng = np.random.default_rng(0)
images = rng.normal(size=(512, 784)).astype(np.float32)
labels = (images @ rng.normal(size=(784, 10)).astype(np.float32)).argmax(1).astype(np.int32)


class Network:
    def __init__(self):
        self.layers = [nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)


network = Network()
optimizer = Adam(nn.state.get_parameters(network), lr=1e-3)


@TinyJit
def step(x, y):
    optimizer.zero_grad()
    loss = network(x).sparse_categorical_crossentropy(y).backward()
    optimizer.step()
    return loss.realize()


for i in range(16):
    batch = slice(i % 4 * 128, i % 4 * 128 + 128)
    loss = step(Tensor(images[batch]).realize(), Tensor(labels[batch]).realize()).item()
    print(f"step {i}: loss {loss:.4f}", flush=True)
right = (network(Tensor(images)).argmax(1) == Tensor(labels)).mean().item()
print(f"right: {right:.4f}")
