"""PyTorch with CUDA graphs: the whole training step is captured once and replayed."""

import result

options = result.parse(__doc__)

import torch_common as common  # first: it says where there is no torch
import torch


def main():
    common.probe(options)
    common.prepare()
    model = common.make_model(options.mib)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)
    x, y = (t.cuda() for t in common.batch(0))

    def work():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    # Capture needs a few steps before it, on a stream of their own.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = work()

    def step(new_x, new_y):
        x.copy_(new_x)
        y.copy_(new_y)
        graph.replay()
        return loss

    common.report(common.train(model, options.steps, step), model)


if __name__ == "__main__":
    main()
