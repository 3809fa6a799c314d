"""PyTorch's memory alone: tensors of other sizes in every step, filled, copied and read without a kernel.

So it runs where the framework's kernels cannot: on the simulated GPU, for whose runtime PyTorch may be taken.
"""

import result

options = result.parse(__doc__)

import torch_common as common  # first: it says where there is no torch
import torch


def main():
    common.probe(options)
    quarter = (options.mib << 20) // 4 // 4  # words of all blocks of a step
    kept = torch.empty(quarter // 2, dtype=torch.int32, device="cuda")
    kept.zero_()
    timed = result.Steps()
    for step in range(options.steps):
        count = 2 + step % 4
        words = quarter // count
        blocks = [torch.empty(words, dtype=torch.int32, device="cuda") for _ in range(count)]
        for i, block in enumerate(blocks):
            host = torch.arange(words, dtype=torch.int32).mul_(2654435 + step * 100 + i)
            block.copy_(host.pin_memory() if i % 2 else host, non_blocking=True)
        for i, block in enumerate(blocks):
            part = min(words, quarter // 2) // count
            kept[i * part:(i + 1) * part].copy_(block[i * part:(i + 1) * part])
        del blocks
        timed.done(kept.cpu().double().mean())
    timed.report("torch", torch.__version__, torch.cuda.get_device_name(), result.digest([kept.cpu().numpy()]),
                 torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
