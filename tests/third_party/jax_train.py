"""Trains a network with JAX: one compiled step with Adam, its parameters donated."""

import hashlib
import os

import jax
import jax.numpy as jnp
import numpy as np

layers, batch = 8, 32
width, steps = (int(os.environ.get(name, usual)) for name, usual in (("TRAIN_WIDTH", 256), ("TRAIN_STEPS", 3)))
rate, first, second, small = 0.001, 0.9, 0.99, 1e-6
rng = np.random.default_rng(8)


def loss_of(weights, x, y):
    for w in weights[:-1]:
        x = jnp.tanh(x @ w)
    return jnp.mean((x @ weights[-1] - y) ** 2)


def adam(weights, means, squares, gradient, number, sqrt):
    means = [first * m + (1 - first) * g for m, g in zip(means, gradient)]
    squares = [second * v + (1 - second) * g * g for v, g in zip(squares, gradient)]
    scale, bias = rate / (1 - first**number), 1 - second**number
    weights = [w - scale * m / (sqrt(v / bias) + small) for w, m, v in zip(weights, means, squares)]
    return weights, means, squares


def step(weights, means, squares, number, x, y):
    loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
    return *adam(weights, means, squares, gradient, number, jnp.sqrt), loss


def numpy_step(weights, means, squares, number, x, y):
    """The same in double precision."""
    inputs = [x]
    for w in weights[:-1]:
        inputs.append(np.tanh(inputs[-1] @ w))
    off = inputs[-1] @ weights[-1] - y
    back, gradient = 2 * off / off.size, []
    for x, w in zip(reversed(inputs), reversed(weights)):
        gradient.insert(0, x.T @ back)
        back = (back @ w.T) * (1 - x * x)
    return *adam(weights, means, squares, gradient, number, np.sqrt), np.mean(off**2)


weights = [rng.normal(size=(width, width), scale=width**-0.5).astype(np.float32) for _ in range(layers)]
zeros = [np.zeros_like(w) for w in weights]
batches = [[rng.normal(size=(batch, width)).astype(np.float32) for _ in range(2)] for _ in range(steps)]

want = [[x.astype(np.float64) for x in values] for values in (weights, zeros, zeros)]
got = [[jax.device_put(x) for x in values] for values in (weights, zeros, zeros)]
compiled = jax.jit(step, donate_argnums=(0, 1, 2))
for number, (x, y) in enumerate(batches, 1):
    *got, loss = compiled(*got, float(number), x, y)
    *want, right = numpy_step(*want, number, x, y)
    np.testing.assert_allclose(loss, right, rtol=1e-4)
    print(f"step {number}: loss {float(loss)!r}", flush=True)
digest = hashlib.sha256()
for got_array, want_array in zip(sum(got, []), sum(want, [])):
    values = np.asarray(got_array)
    digest.update(values.tobytes())
    # Where a gradient is next to nothing its sign is chance, and Adam's steps are as long as any.
    assert np.mean(np.abs(values - want_array)) < 1e-5, np.abs(values - want_array).mean()
print("parameters", digest.hexdigest())
