"""Shows its environment as JSON, with "child" that of a Python started by it; with "fill" allocates more than the GPU has."""

import ctypes
import json
import os
import subprocess
import sys


def fill():
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    for status in [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
                   cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)]:
        assert status == 0, status
    for _ in range(6):
        status = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20))
        assert status == 0, status


if "fill" in sys.argv:
    fill()
if "child" in sys.argv:
    kept = {name: value for name, value in os.environ.items() if "clean" not in sys.argv or not name.startswith("XLA_")}
    subprocess.run([sys.executable, __file__], env=kept, check=True)
else:
    print(json.dumps(dict(os.environ)))
