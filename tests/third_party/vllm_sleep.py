"""vLLM's allocator of its sleep mode by itself: its C extension and the Python over that, as the wheel has them. The rest of
vLLM, of which they take a logger and little else, is left away."""

import ctypes
import logging
import sys
import types


def module(name, **names):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(names)


def find_loaded_library(name):
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if name in line)


class CudaRTLibrary:
    def __init__(self):
        self.library = ctypes.CDLL("libcudart.so.13")

    def cudaMemcpy(self, to, source, size):
        default = 4
        done = self.library.cudaMemcpy(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), default)
        assert done == 0, done


module("vllm.logger", init_logger=logging.getLogger)
module("vllm.platforms", current_platform=types.SimpleNamespace(is_rocm=lambda: False))
module("vllm.utils")
module("vllm.utils.system_utils", find_loaded_library=find_loaded_library)
module("vllm.utils.torch_utils", PIN_MEMORY=True)
module("vllm.distributed")
module("vllm.distributed.device_communicators")
module("vllm.distributed.device_communicators.cuda_wrapper", CudaRTLibrary=CudaRTLibrary)

from vllm.device_allocator.cumem import CuMemAllocator  # noqa: E402


class Saver:
    """With the names that torch_memory_saver has."""

    def __init__(self):
        self.allocator = CuMemAllocator.get_instance()
        self.asleep = set()

    def region(self, tag, enable_cpu_backup=False):
        return self.allocator.use_memory_pool(tag)

    def pause(self, tag):
        # All sleeps at once; what is none of the weights loses its contents.
        if not self.asleep:
            self.allocator.sleep("weights")
        self.asleep.add(tag)

    def resume(self, tag):
        self.allocator.wake_up([tag])
        self.asleep.discard(tag)


saver = Saver()
