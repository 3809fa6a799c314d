"""Trains a network with those of TensorFlow's kernels that come as PTX: sums, differences and products, element by element."""

import hashlib
import os

import numpy as np
import tensorflow as tf

(gpu,) = tf.config.list_physical_devices("GPU")
# Else TensorFlow keeps 225 MiB and more of the GPU free, which is all of a small one.
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=64)])

layers, width, steps = 16, 1 << 16, int(os.environ.get("TRAIN_STEPS", 3))
rate, kept = 0.01, 0.9
rng = np.random.default_rng(8)


def step(weights, moments, x, y):
    """Of TensorFlow's tensors or of NumPy's arrays. Returns what the network is off by."""
    inputs, sums = [x], []
    for scale, shift in weights:
        z = inputs[-1] * scale + shift
        sums.append(z)
        inputs.append(z - z * z * z * (1 / 6))
    off = back = inputs[-1] - y
    for layer in reversed(range(layers)):
        back = back * (1 - sums[layer] * sums[layer] * 0.5)
        gradient, back = [back * inputs[layer], back], back * weights[layer][0]
        for i in range(2):
            moments[layer][i] = kept * moments[layer][i] + gradient[i]
            weights[layer][i] = weights[layer][i] - rate * moments[layer][i]
    return off


weights = [[rng.normal(size=width, loc=mean, scale=0.05).astype(np.float32) for mean in (1, 0)] for _ in range(layers)]
zeros = [[np.zeros_like(w) for w in layer] for layer in weights]
batches = [rng.uniform(-1, 1, width).astype(np.float32) for _ in range(steps)]
want = [[[w.astype(np.float64) for w in layer] for layer in values] for values in (weights, zeros)]
with tf.device("GPU:0"):
    got = [[[tf.identity(tf.constant(w)) for w in layer] for layer in values] for values in (weights, zeros)]
    for number, x in enumerate(batches, 1):
        off = step(*got, tf.constant(x), tf.constant(x / 2)).numpy()
        right = step(*want, x.astype(np.float64), x.astype(np.float64) / 2)
        np.testing.assert_allclose(off, right, atol=1e-4)
        print(f"step {number}: loss {float(np.mean(off**2))!r}", flush=True)
digest = hashlib.sha256()
for got_array, want_array in zip(sum(sum(got, []), []), sum(sum(want, []), [])):
    digest.update(got_array.numpy().tobytes())
    np.testing.assert_allclose(got_array.numpy(), want_array, atol=1e-4)
print("parameters", digest.hexdigest())
