"""Stands for PyTorch in the test of examples/train.py: as much of it as that uses, over the simulated GPU. A layer copies its weights
onto themselves, and the loss is what they were filled with."""

import ctypes
from types import SimpleNamespace

_cuda = ctypes.CDLL("libcuda.so.1")


def _call(name, *arguments):
    status = getattr(_cuda, name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name} -> {status}")


def _begin():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call("cuInit", 0)
    _call("cuDeviceGet", ctypes.byref(device), 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call("cuCtxSetCurrent", context)


class Tensor:
    def __init__(self, *shape, value=0):
        self.shape, self.value = shape, value
        self.address, self.bytes = ctypes.c_uint64(), ctypes.c_size_t(4 * shape[0] * shape[1])
        _call("cuMemAlloc_v2", ctypes.byref(self.address), self.bytes)
        _call("cuMemsetD8_v2", self.address, ctypes.c_ubyte(value), self.bytes)

    def __del__(self):
        _call("cuMemFree_v2", self.address)

    def data_ptr(self):
        return self.address.value

    def element_size(self):
        return 4

    def stride(self):
        return (self.shape[1], 1)

    def use(self):
        _call("cuMemcpyDtoDAsync_v2", self.address, self.address, self.bytes, None)

    def read(self):
        data = ctypes.create_string_buffer(self.bytes.value)
        _call("cuMemcpyDtoH_v2", data, self.address, self.bytes)
        assert data.raw == bytes([self.value]) * self.bytes.value
        return self.value


class Linear:
    made = 0

    def __init__(self, width, height):
        Linear.made += 1
        self.weight = Tensor(width, height, value=Linear.made)


class Sequential(list):
    def __init__(self, *layers):
        super().__init__(layers)

    def cuda(self):
        return self

    def parameters(self):
        return [layer.weight for layer in self]

    def __call__(self, _data):
        for layer in self:
            layer.weight.use()
        return SimpleNamespace(square=lambda: SimpleNamespace(mean=lambda: Loss(self)))


class Loss:
    def __init__(self, model):
        self.model = model

    def backward(self):
        for layer in reversed(self.model):
            layer.weight.use()

    def item(self):
        return float(sum(layer.weight.read() for layer in self.model))


def _adam(parameters, lr):
    assert lr > 0
    return SimpleNamespace(step=lambda: [each.use() for each in parameters], zero_grad=lambda: None)


def randn(rows, columns, device):
    assert device == "cuda"
    return Tensor(rows, columns)


_begin()
nn = SimpleNamespace(Linear=Linear, Sequential=Sequential)
optim = SimpleNamespace(Adam=_adam)
