"""A training script that says where it is, with PyTorch: python -m lms run --frameworks pytorch examples/train.py (or without the shim)."""

import argparse

import torch

import lms


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()

    model = torch.nn.Sequential(*[torch.nn.Linear(options.width, options.width) for _ in range(options.layers)]).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    # Every step begins and ends with it.
    lms.pin(model[0].weight)
    for step in range(options.steps):
        data = torch.randn(64, options.width, device="cuda")
        with lms.region("forward"):
            loss = model(data).square().mean()
        with lms.region("backward"):
            loss.backward()
        with lms.region("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.6f}", flush=True)
    if lms.present():
        told = lms.stats()
        print(f"{told['bytes_in'] >> 20} MiB came in, {told['bytes_out'] >> 20} MiB went out, "
              f"{told['stall_ns'] / 1e9:.1f} s were waited for that")


if __name__ == "__main__":
    main()
