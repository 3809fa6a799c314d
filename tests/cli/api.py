"""What lms.api does under the shim ("with"), without it ("without"), and with a trace. Run by api_test.cpp; talks to the driver by ctypes."""

import ctypes
import json
import os
import sys

import lms

MIB = 1 << 20
SIZE = MIB // 2


def expect(condition, what):
    if not condition:
        print(f"{what}: not so")
        sys.exit(1)


def raises(kind, text, call, *arguments):
    try:
        call(*arguments)
    except kind as problem:
        expect(text in str(problem), f"{call.__name__}{arguments} says {problem!r}, with {text!r} in it")
        return
    expect(False, f"{call.__name__}{arguments} raises {kind.__name__}")


class Gpu:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        expect(status == 0, f"{name} -> {status}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def fill(self, address, value, size):
        self.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(size))

    def read(self, address, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw


class Tensor:
    """As PyTorch has them: two-dimensional floats, a row each `pitch` apart."""

    def __init__(self, address, rows, columns, pitch):
        self.shape, self.strides, self.address = (rows, columns), (pitch, 1), address

    def data_ptr(self):
        return self.address

    def element_size(self):
        return 4

    def stride(self):
        return self.strides


class Array:
    """As CuPy and Numba have them."""

    def __init__(self, address, shape, strides=None):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "strides": strides, "typestr": "<f4", "version": 3}


def where(address):
    return next(each for each in lms.snapshot() if each.address == address)


def with_shim():
    expect(lms.present(), "the shim is there")
    expect(lms.snapshot() == [] and lms.stats()["gpus"] == [], "nothing is there yet")
    gpu = Gpu()
    buffers = [gpu.allocate(SIZE) for _ in range(4)]
    for value, address in enumerate(buffers):
        gpu.fill(address, value, SIZE)
    # What unfinished work uses would stay.
    gpu.call("cuCtxSynchronize")
    a, b, c, _ = buffers
    with lms.region("moves"):
        expect(lms.evict(a) and where(a).resident_bytes == 0, "evict of an address")
        expect(lms.prefetch(a, SIZE) and where(a).resident_bytes == SIZE, "prefetch of it")
        expect(lms.pin(Tensor(b, 64, 1024, 2048)), "pin of a tensor")
        expect(where(b).pinned_bytes == SIZE, "all that it spans is pinned")
        expect(not lms.evict(b), "what is pinned stays")
        expect(lms.unpin(Tensor(b, 64, 1024, 2048)) and where(b).pinned_bytes == 0, "unpin")
        expect(lms.pin(Array(c, (256,))) and 0 < where(c).pinned_bytes < SIZE, "pin of a part, by an array")
        expect(lms.unpin(Array(c, (16, 16), (64, 4))), "unpin of the same, by strides")
        expect(not lms.pin(Array(c, (0, 4))), "of an empty array there is nothing to do")

    @lms.region("decorated")
    def paused():
        expect(lms.pause() and all(each.resident_bytes == 0 for each in lms.snapshot()), "pause")
        expect(lms.resume() and all(each.resident_bytes == SIZE for each in lms.snapshot()), "resume")

    paused()
    expect(lms.limit(MIB) and lms.stats()["gpus"][0]["resident_bytes"] <= MIB, "limit")
    expect(lms.limit(0) and lms.stats()["gpus"][0]["budget_bytes"] > MIB, "no limit")
    small = gpu.allocate(1000)
    expect(not lms.pin(small, 1000), "small memory never moves")
    raises(ValueError, f"pin of {SIZE + 1}", lms.pin, a, SIZE + 1)
    raises(ValueError, "no such pin", lms.unpin, a)
    raises(lms.NoRoom, "room", lms.pin, gpu.allocate(8 * MIB))
    raises(MemoryError, "room", lms.prefetch, gpu.allocate(8 * MIB))
    wrong()
    for value, address in enumerate(buffers):
        expect(gpu.read(address, SIZE) == bytes([value]) * SIZE, "every byte")
    print(json.dumps(lms.stats()))


def wrong():
    """Told with the shim and without."""
    raises(TypeError, "not str", lms.pin, "a")
    raises(TypeError, "not list", lms.prefetch, [1])
    raises(TypeError, "not NoneType", lms.evict, None)
    raises(TypeError, "not bool", lms.unpin, True)
    raises(ValueError, "size of -1", lms.pin, 4096, -1)
    raises(ValueError, "size of 0", lms.pin, 4096, 0)
    raises(ValueError, "size of 1.5", lms.pin, 4096, 1.5)
    raises(ValueError, "no memory", lms.pin, 0)
    raises(ValueError, "no memory", lms.pin, 1 << 64)
    raises(ValueError, "negative strides", lms.pin, Array(4096, (4,), (-4,)))
    raises(ValueError, "limit of -1", lms.limit, -1)
    raises(ValueError, "limit of '4G'", lms.limit, "4G")
    try:
        with lms.region(3):
            expect(False, "a region has a name")
    except TypeError as problem:
        expect("not int" in str(problem), "it says so")


def without_shim():
    expect(not lms.present() and lms.stats() == {} and lms.snapshot() == [], "no shim")
    for call in (lms.pin, lms.unpin, lms.prefetch, lms.evict):
        expect(call(Tensor(4096, 2, 2, 2)) is False, "without a shim nothing is done")
    expect(lms.limit(5) is False and lms.pause() is False and lms.resume() is False, "nor here")
    with lms.region("nothing"):
        wrong()


def trace():
    rows = lms.load_trace(sys.argv[2])
    if os.environ.get("EXPECT_FRAME"):
        expect(type(rows).__module__ == "pandas", "a frame")
        return
    names = {row["what"] for row in rows if row["event"] == "region"}
    expect(names == {"moves", "decorated"}, f"regions {names}")
    moves = [row for row in rows if row["event"] == "move out"]
    expect(all(row["end_ns"] >= row["begin_ns"] and row["gpu"] == 0 for row in moves), "moves")
    # What nothing has written since it came in goes without a copy.
    expect(any(row["bytes"] > 0 for row in moves) and any(row["bytes"] == 0 for row in moves), "moves with bytes and without")
    raises(ValueError, "no trace of lmsshim", lms.load_trace, __file__)
    raises(ValueError, "No such file", lms.load_trace, "/nowhere/at/all")


{"with": with_shim, "without": without_shim, "trace": trace}[sys.argv[1]]()
