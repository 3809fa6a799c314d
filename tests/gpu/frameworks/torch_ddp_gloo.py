"""PyTorch's DistributedDataParallel: two processes on one GPU, gloo between them, each with half of the memory."""

import os
import socket

import result

options = result.parse(__doc__)

import torch_common as common  # first: it says where there is no torch
import torch

RANKS = 2


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
    common.prepare()
    torch.cuda.set_device(0)
    model = torch.nn.parallel.DistributedDataParallel(common.make_model(options.mib // RANKS), device_ids=[0])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    timed = common.train(model, options.steps, step, lambda i: common.batch(RANKS * i + rank))
    if rank == 0:
        common.report(timed, model)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    common.probe(options)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(port,), nprocs=RANKS)


if __name__ == "__main__":
    main()
