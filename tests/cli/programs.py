"""A program that scripts of tests/cli run and change, and what they expect of it."""

import ctypes
import select
import sys

SIZE = 1 << 19  # bytes of a buffer


def program(count, idle=False):
    """Uses all its buffers, round after round, until it is told to end, or makes no call until then; every byte must be there at the end."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        status = getattr(cuda, name)(*arguments)
        if status != 0:
            sys.exit(f"{name} -> {status}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    buffers = []
    for value in range(count):
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(SIZE))
        call("cuMemsetD8_v2", address, ctypes.c_ubyte(value), ctypes.c_size_t(SIZE))
        buffers.append(address)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], None if idle else 0)[0]:
        for address in buffers:
            call("cuMemcpyDtoDAsync_v2", address, address, ctypes.c_size_t(SIZE), None)
        call("cuCtxSynchronize")
    data = ctypes.create_string_buffer(SIZE)
    for value, address in enumerate(buffers):
        call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(SIZE))
        if data.raw != bytes([value]) * SIZE:
            sys.exit(f"buffer {value} has other bytes")
    print("whole", flush=True)


def expect(condition, what):
    if not condition:
        sys.exit(f"{what}: not so")
