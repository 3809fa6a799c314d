"""PyTorch's tensor IPC: a process works on tensors that another one made on the same GPU."""

import result

options = result.parse(__doc__)

import torch_common as common  # first: it says where there is no torch
import torch

WORDS = 4 << 20  # of a tensor


def child(tensors, done):
    while (tensor := tensors.get()) is not None:
        tensor.mul_(0.5).add_(1)
        torch.cuda.synchronize()
        del tensor  # gives the memory back to its owner
        done.put(True)


def main():
    common.probe(options)
    common.prepare()
    spawn = torch.multiprocessing.get_context("spawn")
    tensors, done = spawn.SimpleQueue(), spawn.SimpleQueue()
    process = spawn.Process(target=child, args=(tensors, done))
    process.start()
    shared = [torch.randn(WORDS, device="cuda") for _ in range(max(2, (options.mib << 20) // (4 * WORDS)))]
    timed = result.Steps()
    for step in range(options.steps):
        tensor = shared[step % len(shared)]
        tensors.put(tensor)
        done.get()
        timed.done(tensor.sum().item())
    tensors.put(None)
    process.join()
    checksum = result.digest(t.cpu().numpy() for t in shared)
    timed.report("torch", torch.__version__, torch.cuda.get_device_name(), checksum, torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
