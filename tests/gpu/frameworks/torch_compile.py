"""PyTorch with torch.compile: the model compiled in one of its modes."""

import result

options = result.parse(__doc__, mode="default")

import torch_common as common  # first: it says where there is no torch
import torch


def main():
    common.probe(options)
    common.prepare()
    model = common.make_model(options.mib)
    compiled = torch.compile(model, mode=options.mode)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(x, y):
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(compiled(x), y)
        loss.backward()
        optimizer.step()
        return loss

    common.report(common.train(model, options.steps, step), model)


if __name__ == "__main__":
    main()
