"""PyTorch with automatic mixed precision: float16 with a gradient scaler."""

import result

options = result.parse(__doc__)

import torch_common as common  # first: it says where there is no torch
import torch


def main():
    common.probe(options)
    common.prepare()
    model = common.make_model(options.mib)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    common.report(common.train(model, options.steps, step), model)


if __name__ == "__main__":
    main()
