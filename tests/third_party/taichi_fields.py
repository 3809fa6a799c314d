"""Fields, arrays, host arrays, a reduction and a gradient through Taichi."""

import numpy as np
import taichi as ti

# A pool that its fields share; arrays are allocations of their own.
ti.init(arch=ti.cuda, device_memory_fraction=0, device_memory_GB=0.01, log_level=ti.ERROR, offline_cache=False)
assert ti.lang.impl.current_cfg().arch == ti.cuda

side = 256
grid, other = ti.field(ti.f32, (side, side)), ti.field(ti.f32, (side, side))
total = ti.field(ti.f32, ())
points, loss = ti.field(ti.f32, 1000, needs_grad=True), ti.field(ti.f32, (), needs_grad=True)
matrix = ti.types.ndarray(dtype=ti.f32, ndim=2)


@ti.kernel
def relax(x: ti.template(), y: ti.template()):
    for i, j in x:
        if 0 < i < side - 1 and 0 < j < side - 1:
            y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


@ti.kernel
def fill(x: matrix, value: ti.f32):
    for i, j in x:
        x[i, j] = value + i - j


@ti.kernel
def add_twice(x: matrix, y: matrix):
    for i, j in x:
        y[i, j] += 2 * x[i, j]


@ti.kernel
def square(x: ti.types.ndarray()):
    for i in x:
        x[i] = x[i] * x[i] + 1


@ti.kernel
def sum_of_squares():
    for i, j in grid:
        total[None] += ti.sin(grid[i, j]) ** 2


@ti.kernel
def sum_of_cubes():
    for i in points:
        loss[None] += points[i] ** 3


def fields():
    want = np.random.default_rng(0).integers(0, 1024, (side, side)).astype(np.float32)
    grid.from_numpy(want)
    other.from_numpy(want)
    for _ in range(6):
        relax(grid, other)
        relax(other, grid)
    for _ in range(12):
        inner = 0.25 * (want[:-2, 1:-1] + want[2:, 1:-1] + want[1:-1, :-2] + want[1:-1, 2:])
        want = want.copy()
        want[1:-1, 1:-1] = inner
    np.testing.assert_allclose(grid.to_numpy(), want, rtol=1e-5)
    sum_of_squares()
    np.testing.assert_allclose(total[None], (np.sin(want.astype(np.float64)) ** 2).sum(), rtol=1e-3)


def arrays():
    n, count = 512, 16
    device = [ti.ndarray(ti.f32, (n, n)) for _ in range(count)]
    want = []
    for value, x in enumerate(device):
        fill(x, value)
        want.append(value + np.arange(n)[:, None] - np.arange(n)[None, :])
    for i in range(count):
        add_twice(device[i], device[(i + 1) % count])
        want[(i + 1) % count] = want[(i + 1) % count] + 2 * want[i]
    for x, y in zip(device, want):
        np.testing.assert_allclose(x.to_numpy(), y.astype(np.float32), rtol=1e-5)


def host_arrays():
    x = np.arange(300000, dtype=np.float32) % 100
    want = x * x + 1
    square(x)
    assert np.array_equal(x, want)


def gradients():
    x = np.linspace(0, 1, 1000, dtype=np.float32)
    points.from_numpy(x)
    with ti.ad.Tape(loss):
        sum_of_cubes()
    np.testing.assert_allclose(points.grad.to_numpy(), 3 * x**2, rtol=1e-4, atol=1e-6)


for part in fields, arrays, host_arrays, gradients:
    part()
    print(part.__name__, "right", flush=True)
