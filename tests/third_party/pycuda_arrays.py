"""Arrays, generated kernels, memory pools, pointers in memory and a second context through PyCUDA."""

import numpy as np
import pycuda.autoinit
import pycuda.cumath as cumath
import pycuda.driver as driver
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule
from pycuda.elementwise import ElementwiseKernel
from pycuda.reduction import ReductionKernel
from pycuda.scan import ExclusiveScanKernel, InclusiveScanKernel
from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool

n, count = 300000, 12
rng = np.random.default_rng(2)
host = [rng.integers(-9, 10, n).astype(np.float32) for _ in range(count)]
device = [gpuarray.to_gpu(x) for x in host]
combine = ElementwiseKernel("float a, float *x, float b, float *y, float *z", "z[i] = a * x[i] + b * y[i]", "combine")
shape = {"block": (256, 1, 1), "grid": ((n + 255) // 256, 1)}


def arithmetic():
    sums = [2 * a + b for a, b in zip(device, device[1:] + device[:1])]
    for i in range(count):
        np.testing.assert_array_equal(sums[i].get(), 2 * host[i] + host[(i + 1) % count])
    out = [gpuarray.empty_like(x) for x in device]
    for i in range(count):
        combine(np.float32(3), device[i], np.float32(-2), device[(i + 5) % count], out[i])
    for i in range(count):
        np.testing.assert_array_equal(out[i].get(), 3 * host[i] - 2 * host[(i + 5) % count])
    np.testing.assert_allclose(cumath.sin(device[0]).get(), np.sin(host[0]), rtol=1e-5, atol=1e-6)


def reductions_and_scans():
    dot = ReductionKernel(np.float64, neutral="0", reduce_expr="a + b", map_expr="(double)x[i] * y[i]",
                          arguments="float *x, float *y")
    for i in range(count):
        assert dot(device[i], device[(i + 1) % count]).get() == host[i].astype(np.float64) @ host[(i + 1) % count]
    inclusive = InclusiveScanKernel(np.int32, "a + b")
    exclusive = ExclusiveScanKernel(np.int32, "a + b", neutral="0")
    for x in host[:4]:
        x = x.astype(np.int32)
        sums = np.cumsum(x, dtype=np.int32)
        np.testing.assert_array_equal(inclusive(gpuarray.to_gpu(x)).get(), sums)
        np.testing.assert_array_equal(exclusive(gpuarray.to_gpu(x)).get(), sums - x)


def pools():
    on_device, on_host, stream = DeviceMemoryPool(), PageLockedMemoryPool(), driver.Stream()
    for _ in range(4):
        arrays = [gpuarray.to_gpu_async(x, allocator=on_device.allocate, stream=stream) for x in host[:6]]
        results = [on_host.allocate((n,), np.float32) for _ in arrays]
        for array, result in zip(arrays, results):
            combine(np.float32(1), array, np.float32(1), array, array, stream=stream)
            array.get_async(stream, result)
        stream.synchronize()
        for x, result in zip(host, results):
            np.testing.assert_array_equal(result, 2 * x)
        del arrays, array, results, result
    on_device.stop_holding()
    on_host.stop_holding()


def pointers_in_memory():
    module = SourceModule("""
        __constant__ float *table[8];
        __constant__ float weights[4];
        __global__ void weigh(float *out, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            float sum = 0;
            if (i < n) { for (int j = 0; j < 8; j++) sum += table[j][i] * weights[j % 4]; out[i] = sum; }
        }
        __global__ void raise(float **rows, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) for (int j = 0; j < 8; j++) rows[j][i] += j;
        }""")
    addresses = np.array([int(x.gpudata) for x in device[:8]], np.uint64)
    driver.memcpy_htod(module.get_global("table")[0], addresses)
    driver.memcpy_htod(module.get_global("weights")[0], np.array([1, 2, 3, 4], np.float32))
    out = gpuarray.empty(n, np.float32)
    others = [gpuarray.zeros(n, np.float32) + 1 for _ in range(8)]
    module.get_function("weigh")(out, np.int32(n), **shape)
    np.testing.assert_array_equal(out.get(), sum(host[j] * (j % 4 + 1) for j in range(8)))
    module.get_function("raise")(gpuarray.to_gpu(addresses), np.int32(n), **shape)
    for j in range(8):
        np.testing.assert_array_equal(device[j].get(), host[j] + j)
    assert all((x.get() == 1).all() for x in others)


def contexts():
    second = pycuda.autoinit.device.make_context()
    x = gpuarray.to_gpu(host[0])
    np.testing.assert_array_equal((x + 1).get(), host[0] + 1)
    del x
    second.pop()
    second.detach()
    np.testing.assert_array_equal(device[9].get(), host[9])


def host_memory():
    module = SourceModule("""
        __global__ void twice(float *x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] *= 2;
        }""")
    managed = driver.managed_empty(n, np.float32, mem_flags=driver.mem_attach_flags.GLOBAL)
    mapped = driver.pagelocked_empty(n, np.float32, mem_flags=driver.host_alloc_flags.DEVICEMAP)
    managed[:], mapped[:] = 5, 7
    module.get_function("twice")(managed, np.int32(n), **shape)
    module.get_function("twice")(np.intp(mapped.base.get_device_pointer()), np.int32(n), **shape)
    pycuda.autoinit.context.synchronize()
    assert (managed == 10).all() and (mapped == 14).all()


for part in arithmetic, reductions_and_scans, pools, pointers_in_memory, contexts, host_memory:
    part()
    print(part.__name__, "right", flush=True)
