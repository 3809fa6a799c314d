"""JAX: a jitted training step with donated buffers."""

import os

import result

options = result.parse(__doc__)

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
try:
    import jax
    import jax.numpy as jnp
    import numpy
except Exception as problem:  # a broken installation raises more than ImportError
    result.unavailable(f"jax: {type(problem).__name__}: {problem}")

WIDTH = 2048
BATCH = 1024


def main():
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError as problem:
        result.unavailable(f"jax: finds no CUDA device: {problem}")
    if options.probe:
        result.available(jax.__version__)
    layers = max(2, (options.mib << 20) // (4 * WIDTH * WIDTH * 4 + 2 * BATCH * WIDTH * 4))
    keys = jax.random.split(jax.random.PRNGKey(7), layers)
    weights = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5 for key in keys]
    moments = [(jnp.zeros_like(w), jnp.zeros_like(w)) for w in weights]

    def loss_of(values, x, y):
        for w in values:
            x = jax.nn.gelu(x @ w)
        return jnp.mean((x - y) ** 2)

    def step(values, moments, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(values, x, y)
        moments = [(0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g) for (m, v), g in zip(moments, gradients)]
        values = [w - 1e-4 * m / (jnp.sqrt(v) + 1e-8) for w, (m, v) in zip(values, moments)]
        return values, moments, loss

    step = jax.jit(step, donate_argnums=(0, 1))
    timed = result.Steps()
    for i in range(options.steps):
        random = numpy.random.default_rng(1000 + i)
        x = random.standard_normal((BATCH, WIDTH), dtype=numpy.float32)
        weights, moments, loss = step(weights, moments, x, 0.5 * numpy.roll(x, 1, axis=1))
        timed.done(loss)
    stats = device.memory_stats() or {}
    timed.report("jax", jax.__version__, device.device_kind, result.digest(numpy.asarray(w) for w in weights),
                 stats.get("peak_bytes_in_use", 0))


if __name__ == "__main__":
    main()
