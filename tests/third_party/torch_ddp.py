"""Trains a network by PyTorch's DistributedDataParallel over gloo, every kernel Triton's: by torchrun one process a GPU, or as
one process that takes the same batches one after the other. torch_ddp.py BATCHES

What is added up is added on the CPU, for which DDP has hooks, and of two numbers in either order. So the parameters are the same
bits."""

import hashlib
import os
import sys

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if rank > 0 and "SIMCUDA_REPORT" in os.environ:  # each GPU has its own
    os.environ["SIMCUDA_REPORT"] += f".{rank}"

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_nets import Perceptron, optimizer_of

# One graph, as without DDP: parts of it would be added up in another order.
torch._dynamo.config.optimize_ddp = False
STEPS, BATCHES = 4, int(sys.argv[1])


class Loss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return self.model.loss(x, y)


def averaged(_, bucket):
    """A hook of DDP: the sum over the ranks, in host memory."""
    gradients = bucket.buffer()
    sums = gradients.cpu()
    dist.all_reduce(sums)
    gradients.copy_(sums / BATCHES)
    done = torch.futures.Future()
    done.set_result(gradients)
    return done


def average_of(model, passes):
    """The same by one process."""
    sums = None
    for each in passes:
        loss = each()
        own = [p.grad.cpu() for p in model.parameters()]
        sums = own if sums is None else [one + other for one, other in zip(sums, own)]
        model.zero_grad(set_to_none=True)
        yield loss
    for p, total in zip(model.parameters(), sums):
        p.grad = (total / BATCHES).cuda()


def main():
    torch.cuda.set_device(rank)
    model = Perceptron()
    batches = [[Perceptron.batch() for _ in range(BATCHES)] for _ in range(STEPS)]
    model = model.cuda()
    optimizer = optimizer_of(model)
    update, loss_of = torch.compile(lambda: optimizer.step()), torch.compile(Loss(model))
    if ranks > 1:
        dist.init_process_group("gloo")
        loss_of = DistributedDataParallel(loss_of, init_sync=False)
        loss_of.register_comm_hook(None, averaged)

    def one_pass(x, y):
        loss = loss_of(x.cuda(), y.cuda())
        loss.backward(torch.ones(()).cuda())
        return loss.detach().cpu()

    for step, batch in enumerate(batches):
        if ranks > 1:
            losses = [torch.zeros(()) for _ in range(ranks)]
            dist.all_gather(losses, one_pass(*batch[rank]))
        else:
            losses = list(average_of(model, [lambda each=each: one_pass(*each) for each in batch]))
        update()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            print(f"step {step}: losses {[loss.item() for loss in losses]}", flush=True)
    digest = hashlib.sha256()
    for p in model.parameters():
        digest.update(p.detach().cpu().numpy().tobytes())
    digests = [digest.hexdigest()]
    if ranks > 1:
        digests = [None] * ranks
        dist.all_gather_object(digests, digest.hexdigest())
    if rank == 0:
        print("parameters", *set(digests))


main()
