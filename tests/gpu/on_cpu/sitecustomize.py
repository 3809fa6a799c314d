"""Runs the programs of tests/gpu/frameworks on the CPU, to find errors in them where there is no GPU.

Python imports this by itself in every process that has this folder in PYTHONPATH. What a program asks of a CUDA device
is answered by the CPU: tensors stay where they are, streams do nothing, a captured graph is not replayed. Results say
nothing of a GPU.
"""

import contextlib
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "2")


def answers(value):
    """A function of its own each time: PyTorch's compiler keeps a list of functions, in which none may be twice."""
    return lambda *_, **__: value


class Idle:
    """A stream, or a graph."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, _):
        return answers(None)


def on_cpu(device):
    return "cpu" if str(device).startswith("cuda") else device


def patch_torch():
    import torch
    from torch.overrides import TorchFunctionMode

    class Everywhere(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if "device" in kwargs:
                kwargs["device"] = on_cpu(kwargs["device"])
            return function(*args, **kwargs)

    cuda = torch.cuda
    # The program's own question alone: PyTorch asks it too, and would start CUDA.
    cuda.is_available = lambda: sys._getframe(1).f_globals["__name__"] == "torch_common"
    for name, value in {"get_device_name": "CPU", "max_memory_reserved": 0, "synchronize": None,
                        "set_device": None, "current_stream": Idle(), "stream": contextlib.nullcontext(),
                        "graph": contextlib.nullcontext()}.items():
        setattr(cuda, name, answers(value))
    cuda.Stream = cuda.CUDAGraph = Idle
    for kind, name in ((torch.Tensor, "cuda"), (torch.Tensor, "pin_memory"), (torch.nn.Module, "cuda")):
        setattr(kind, name, lambda self, *_, **__: self)

    autocast, scaler = torch.autocast, torch.amp.GradScaler
    torch.autocast = lambda device, **options: autocast(on_cpu(device), **options)
    torch.amp.GradScaler = lambda device: scaler(on_cpu(device))

    adam, parallel, loader = torch.optim.Adam, torch.nn.parallel.DistributedDataParallel, torch.utils.data.DataLoader
    torch.optim.Adam = lambda *args, capturable=False, **options: adam(*args, **options)
    torch.nn.parallel.DistributedDataParallel = lambda model, device_ids: parallel(model)
    torch.utils.data.DataLoader = lambda *args, pin_memory=False, **options: loader(*args, **options)
    return Everywhere


def patch_jax():
    import jax

    devices = jax.devices
    jax.devices = lambda backend=None: devices("cpu")


def cupy_of_numpy():
    """Stands for CuPy, which has no CPU: NumPy under its name, and what the program uses beside that."""
    import re
    import types

    import numpy

    cupy = types.ModuleType("cupy")
    cupy.__dict__.update(vars(numpy))
    cupy.__name__, cupy.__version__ = "cupy", "NumPy " + numpy.__version__

    def kernel(inputs, outputs, operation, name):
        """Of one expression, with a choice in brackets at most."""
        names = [parameter.split()[-1] for parameter in inputs.split(",")]
        target, expression = operation.split("=")
        assert target.strip() == outputs.split()[-1] and name.isidentifier()
        expression = re.sub(r"\(([^?()]+)\?([^:()]+):([^()]+)\)", r"where(\1, \2, \3)", expression)
        expression = re.sub(r"(\d)f\b", r"\1", expression)
        return lambda *values: eval(expression, {**vars(numpy), **dict(zip(names, values, strict=True))})

    cupy.ElementwiseKernel = kernel
    cupy.asnumpy = numpy.asarray
    cupy.get_default_memory_pool = lambda: types.SimpleNamespace(total_bytes=lambda: 0)
    runtime = types.SimpleNamespace(getDeviceProperties=lambda device: {"name": b"CPU"})
    cupy.cuda = types.SimpleNamespace(runtime=runtime)
    sys.modules["cupy"] = cupy


script = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
# Of processes that a program starts the name is not known yet; they are PyTorch's.
if script.startswith("jax"):
    patch_jax()
elif script.startswith("cupy"):
    with contextlib.suppress(ImportError):
        cupy_of_numpy()
elif script == "torch_memory.py":
    pass  # runs on the simulated GPU itself
elif script.startswith(("torch", "triton")) or script in ("", "-c"):
    with contextlib.suppress(ImportError):
        patch_torch()().__enter__()
