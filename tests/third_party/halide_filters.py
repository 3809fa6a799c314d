"""Filters over many images through Halide's CUDA backend: results stay on the GPU and are the next filter's input."""

import halide as hl
import numpy as np

side, count = 512, 12
target = hl.get_host_target().with_feature(hl.TargetFeature.CUDA)
x, y, xi, yi = (hl.Var(name) for name in ("x", "y", "xi", "yi"))
source = hl.ImageParam(hl.Float(32), 2)
second = hl.ImageParam(hl.Float(32), 2)


def on_gpu(function):
    function.gpu_tile(x, y, xi, yi, 16, 16)
    function.compile_jit(target)
    return function


edges = hl.BoundaryConditions.repeat_edge(source)
row, blur = hl.Func("row"), hl.Func("blur")
row[x, y] = edges[x - 1, y] + edges[x, y] + edges[x + 1, y]
blur[x, y] = row[x, y - 1] + row[x, y] + row[x, y + 1]
row.compute_at(blur, x).gpu_threads(x, y)
on_gpu(blur)
difference = hl.Func("difference")
difference[x, y] = source[x, y] - 2 * second[x, y]
on_gpu(difference)
sums, column = hl.Func("sums"), hl.RDom([(0, side)])
sums[x] = 0.0
sums[x] += source[x, column.x]
sums.gpu_tile(x, xi, 64)
sums.update().gpu_tile(x, xi, 64)
sums.compile_jit(target)


def blurred(image):
    padded = np.pad(image, ((0, 0), (1, 1)), mode="edge")
    padded = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    padded = np.pad(padded, ((1, 1), (0, 0)), mode="edge")
    return padded[:-2] + padded[1:-1] + padded[2:]


def realize(function, *images):
    for parameter, image in zip((source, second), images):
        parameter.set(image)
    return function.realize([side, side], target)


rng = np.random.default_rng(4)
host = [rng.integers(0, 8, (side, side)).astype(np.float32) for _ in range(count)]
images = [hl.Buffer(image) for image in host]

softened = [realize(blur, image) for image in images]
for image, want in zip(softened, host):
    image.copy_to_host()
    np.testing.assert_array_equal(np.asarray(image), blurred(want))
print("blur right", flush=True)

changed = [realize(difference, softened[i], images[(i + 1) % count]) for i in range(count)]
twice = [realize(blur, image) for image in changed]
for i, image in enumerate(twice):
    image.copy_to_host()
    want = blurred(blurred(host[i]) - 2 * host[(i + 1) % count])
    np.testing.assert_array_equal(np.asarray(image), want)
print("chain right", flush=True)

for image, want in zip(images, host):
    source.set(image)
    total = sums.realize([side], target)
    total.copy_to_host()
    np.testing.assert_array_equal(np.asarray(total), want.sum(0))
print("sums right", flush=True)
