"""Eager PyTorch: a training loop, its batches optionally from DataLoader workers."""

import result

options = result.parse(__doc__, workers=0)

import torch_common as common  # first: it says where there is no torch
import torch


class Batches(torch.utils.data.Dataset):
    """A batch is an item, made in the worker."""

    def __len__(self):
        return options.steps

    def __getitem__(self, step):
        generator = torch.Generator().manual_seed(1000 + step)
        x = torch.randn(common.BATCH, common.WIDTH, generator=generator)
        return x, 0.5 * x.roll(1, dims=1)


def main():
    common.probe(options)
    common.prepare()
    model = common.make_model(options.mib)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    if options.workers:
        loaded = iter(torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=options.workers, pin_memory=True))
        timed = common.train(model, options.steps, step, lambda _: next(loaded))
    else:
        timed = common.train(model, options.steps, step)
    common.report(timed, model)


if __name__ == "__main__":
    main()
