"""CuPy: products, element-wise kernels, reductions and a sort over arrays in its memory pool."""

import result

options = result.parse(__doc__)

try:
    import cupy
except Exception as problem:  # a broken installation raises more than ImportError
    result.unavailable(f"cupy: {type(problem).__name__}: {problem}")

SIDE = 2048


def main():
    try:
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except Exception as problem:
        result.unavailable(f"cupy: finds no CUDA device: {problem}")
    if options.probe:
        result.available(cupy.__version__)
    count = max(3, (options.mib << 20) // (SIDE * SIDE * 4) - 2)
    arrays = [(cupy.arange(SIDE * SIDE, dtype=cupy.float32).reshape(SIDE, SIDE) * (i + 1) % 1009) / 1009 for i in range(count)]
    mix = cupy.ElementwiseKernel("T a, T b", "T c", "c = a * b + (a > b ? 0.25f : 0.5f)", "mix")
    timed = result.Steps()
    for step in range(options.steps):
        for i in range(count):
            left, right = arrays[i], arrays[(i + step + 1) % count]
            if i % 4 == 0:
                arrays[i] = left @ right / SIDE
            elif i % 4 == 1:
                arrays[i] = mix(left, right)
            elif i % 4 == 2:
                arrays[i] = cupy.sort(left, axis=1)
            else:
                left += right.mean(axis=0)
        timed.done(sum(float(a.sum(dtype=cupy.float64)) for a in arrays))
    timed.report("cupy", cupy.__version__, name, result.digest(cupy.asnumpy(a) for a in arrays),
                 cupy.get_default_memory_pool().total_bytes())


if __name__ == "__main__":
    main()
