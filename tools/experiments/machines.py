"""The modelled GPUs, and how long a kernel takes on one."""

import dataclasses

GB = 10**9


@dataclasses.dataclass(frozen=True)
class Machine:
    title: str
    gpu: str  # whose clock the simulated GPU has (SIMCUDA_GPU): only the unit in which a kernel's time is given
    memory: int
    flops: dict  # 1e12 a second, by precision
    bandwidth: float  # 1e9 bytes a second
    into: float  # the link, to the GPU and from it
    out: float


# From NVIDIA's data sheets (tools/simcuda/driver/gpus.def names them; P100 and Grace-Hopper have theirs), without
# sparsity. Links: as IBM measured on the V100; half of the 80 GB/s that IBM gives for the P100's NVLink; 85 % of the data
# sheet elsewhere.
V100 = {"gpu": "v100", "memory": 16 << 30, "flops": {"f32": 15.7, "bf16": 125}, "bandwidth": 900}
P100 = {"gpu": "v100", "memory": 16 << 30, "flops": {"f32": 10.6, "bf16": 21.2}, "bandwidth": 732}
MACHINES = {
    "v100-pcie3": Machine("V100, PCIe 3", **V100, into=10.9, out=11.7),
    "v100-nvlink2": Machine("V100, NVLink 2", **V100, into=64.4, out=60.4),
    "p100-pcie3": Machine("P100, PCIe 3", **P100, into=10.9, out=11.7),
    "p100-nvlink1": Machine("P100, NVLink 1", **P100, into=40, out=40),
    "rtx4090-pcie4": Machine("RTX 4090, PCIe 4", "rtx4090", 24 << 30, {"f32": 82.6, "bf16": 165}, 1008, 27, 27),
    "h100-pcie5": Machine("H100, PCIe 5", "h100", 80 << 30, {"f32": 67, "bf16": 989}, 3350, 54, 54),
    "gh200-c2c": Machine("Grace-Hopper, NVLink-C2C", "h100", 96 << 30, {"f32": 67, "bf16": 989}, 4000, 382, 382),
}

CONTEXT = 448 << 20  # what a context takes of the memory
LAUNCH_NS = 3000  # the least that a kernel takes


def kernel_ns(kernel, step, machine, factor=1.0):
    """60 % of the published operations or 80 % of the memory's speed, whichever takes longer."""
    compute = kernel.flops / (0.6 * machine.flops[step.precision]) / 1e3
    memory = kernel.bytes / (0.8 * machine.bandwidth)
    return max(compute, memory, LAUNCH_NS) * factor


def step_ms(step, machine, factor=1.0):
    return sum(kernel_ns(kernel, step, machine, factor) for kernel in step.kernels()) / 1e6
