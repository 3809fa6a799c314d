"""Launches and copies on a stream of its own, memory from the device's pool, through cuda.core and cuda.bindings."""

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

n, count = 300000, 12
device = Device()
device.set_current()
stream = device.create_stream()
code = """
extern "C" __global__ void add_multiple(float factor, const float *x, float *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] += factor * x[i];
}"""
program = Program(code, code_type="c++", options=ProgramOptions(arch=f"sm_{device.arch}"))
add_multiple = program.compile("ptx").get_kernel("add_multiple")


def check(result):
    assert result[0] == driver.CUresult.CUDA_SUCCESS, result


host = [np.arange(n, dtype=np.float32) % (i + 3) for i in range(count)]
buffers = [device.allocate(x.nbytes, stream=stream) for x in host]
for x, buffer in zip(host, buffers):
    check(driver.cuMemcpyHtoDAsync(int(buffer.handle), x.ctypes.data, x.nbytes, int(stream.handle)))
shape = LaunchConfig(grid=(n + 255) // 256, block=256)
want = list(host)
for i in list(range(count)) * 2:
    after = (i + 1) % count
    launch(stream, shape, add_multiple, np.float32(2), int(buffers[i].handle), int(buffers[after].handle), np.uint64(n))
    want[after] = want[after] + 2 * want[i]
for x, buffer in zip(want, buffers):
    got = np.empty_like(x)
    check(driver.cuMemcpyDtoHAsync(got.ctypes.data, int(buffer.handle), got.nbytes, int(stream.handle)))
    stream.sync()
    np.testing.assert_array_equal(got, x)
    buffer.close(stream)
stream.sync()
print("launches right")
