"""Kernels, streams, callbacks, pinned, mapped and managed memory, reductions, grids that wait for their blocks, and threads
through numba's CUDA target.
numba_kernels.py [part to leave out ...]"""

import math
import sys
import threading

import numpy as np
from numba import cuda, float32, vectorize

TILE = 16


@cuda.jit
def matmul(a, b, out):
    tile_a = cuda.shared.array((TILE, TILE), dtype=float32)
    tile_b = cuda.shared.array((TILE, TILE), dtype=float32)
    x, y = cuda.grid(2)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for step in range(a.shape[1] // TILE):
        tile_a[i, j] = a[x, j + step * TILE]
        tile_b[i, j] = b[i + step * TILE, y]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[i, k] * tile_b[k, j]
        cuda.syncthreads()
    out[x, y] = total


@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] * factor + 1


@cuda.jit
def scale_view(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] * factor + 1


@cuda.jit
def histogram(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i], 1)


@cuda.jit
def double_b(records):
    i = cuda.grid(1)
    if i < records.size:
        records[i].a = records[i].b * 2.0


@cuda.jit
def smooth(a, b, rounds):
    grid = cuda.cg.this_grid()
    for r in range(rounds):
        for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
            if r % 2 == 0:
                b[i] = a[i] * 2 + a[(i + 1) % a.size]
            else:
                a[i] = b[i] * 2 + b[(i + 1) % a.size]
        grid.sync()


@cuda.reduce
def total(a, b):
    return a + b


@vectorize(["float32(float32,float32)"], target="cuda")
def hypotenuse(a, b):
    return math.sqrt(a * a + b * b)


def blocks(n):
    return (n + 255) // 256


rng = np.random.default_rng(1)


side, count = 192, 24
host_matrices = [rng.integers(-4, 5, (side, side)).astype(np.float32) for _ in range(count)]
device_matrices = [cuda.to_device(m) for m in host_matrices]
products = [cuda.device_array((side, side), np.float32) for _ in range(count)]


def matrices():
    for _ in range(2):
        for i in range(count):
            factors = device_matrices[i], device_matrices[(i + 1) % count]
            matmul[(side // TILE, side // TILE), (TILE, TILE)](*factors, products[i])
    for i in range(count):
        want = host_matrices[i] @ host_matrices[(i + 1) % count]
        np.testing.assert_array_equal(products[i].copy_to_host(), want)


def streams():
    lanes = [cuda.stream() for _ in range(4)]
    host = [cuda.pinned_array(200000, dtype=np.float32) for _ in range(8)]
    device = []
    for i, h in enumerate(host):
        h[:] = np.arange(h.size) % 97 + i
        device.append(cuda.to_device(h, stream=lanes[i % 4]))
        scale[blocks(h.size), 256, lanes[i % 4]](device[i], np.float32(2))
    for i, h in enumerate(host):
        scale[blocks(h.size), 256, lanes[i % 4]](device[i], np.float32(3))
        device[i].copy_to_host(h, stream=lanes[i % 4])
    for lane in lanes:
        lane.synchronize()
    for i, h in enumerate(host):
        want = np.arange(h.size) % 97 + i
        np.testing.assert_array_equal(h, (want * 2 + 1) * 3 + 1)


def callbacks():
    lane = cuda.stream()
    done = []
    x = np.ones(200000, np.float32)
    scale[blocks(x.size), 256, lane](cuda.to_device(x, stream=lane), np.float32(2))
    lane.add_callback(lambda stream, status, value: done.append(value), 7)
    lane.synchronize()
    assert done == [7]


def host_memory():
    for make in cuda.mapped_array, cuda.managed_array:
        x = make(50000, dtype=np.float32)
        x[:] = 3
        scale[blocks(x.size), 256](x, np.float32(2))
        cuda.synchronize()
        assert (np.asarray(x) == 7).all()


def reductions():
    x = rng.integers(0, 10, 300000).astype(np.float64)
    assert total(x) == x.sum()
    a, b = rng.random((2, 200000), dtype=np.float32)
    np.testing.assert_allclose(hypotenuse(a, b), np.hypot(a, b), rtol=1e-6)
    x = rng.integers(0, 64, 400000).astype(np.int32)
    counts = cuda.to_device(np.zeros(64, np.int32))
    histogram[blocks(x.size), 256](cuda.to_device(x), counts)
    np.testing.assert_array_equal(counts.copy_to_host(), np.bincount(x, minlength=64))


def records_and_views():
    records = np.zeros(60000, np.dtype([("a", np.float32), ("b", np.int64)], align=True))
    records["b"] = np.arange(records.size)
    device = cuda.to_device(records)
    double_b[blocks(records.size), 256](device)
    assert (device.copy_to_host()["a"] == np.arange(records.size) * 2).all()
    want = np.arange(1000000, dtype=np.float32)
    whole = cuda.to_device(want)
    view = whole[1000:900000:3]
    scale_view[blocks(view.size), 256](view, np.float32(2))
    want[1000:900000:3] = want[1000:900000:3] * 2 + 1
    np.testing.assert_array_equal(whole.copy_to_host(), want)


def grids():
    want = rng.integers(0, 1000, 100000)
    a, b = cuda.to_device(want), cuda.device_array_like(want)
    smooth[8, 128](a, b, 5)
    for _ in range(5):
        want = want * 2 + np.roll(want, -1)
    np.testing.assert_array_equal(b.copy_to_host(), want)


def threads():
    results = {}

    def work(number):
        x = cuda.to_device(np.full(150000, number, np.float32))
        for _ in range(5):
            scale[blocks(x.size), 256](x, np.float32(1))
        results[number] = x.copy_to_host()

    running = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for number in range(6):
        assert (results[number] == number + 5).all()


for part in matrices, streams, callbacks, host_memory, reductions, records_and_views, grids, threads, matrices:
    if part.__name__ not in sys.argv[1:]:
        part()
        print(part.__name__, "right", flush=True)
