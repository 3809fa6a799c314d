"""Trains a network by torch.compile: forward, backward and AdamW, every kernel Triton's. torch_train.py mlp|gpt [graphs] [apart] [api]"""

import contextlib
import hashlib
import os
import sys

import torch
from torch_nets import Gpt, Perceptron, optimizer_of


def train(model, batches, device):
    model = model.to(device)
    optimizer = optimizer_of(model)
    loss_of, update = model.loss, optimizer.step
    if device == "cuda":
        loss_of, update = torch.compile(loss_of, mode=mode), torch.compile(lambda: optimizer.step())
    named = region if device == "cuda" else contextlib.nullcontext
    for step, (x, y) in enumerate(batches):
        with named("forward"):
            loss = loss_of(x.to(device), y.to(device))
        with named("backward"):
            loss.backward(torch.ones(()).to(device))
        with named("optimizer"):
            update()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach().cpu()
        if device == "cuda":
            after_step(step, model)


def copy_each(targets, sources, non_blocking=False):
    """A graph's inputs, copied by the driver: PyTorch has a kernel of its own for several at once."""
    for target, source in zip(targets, sources):
        target.copy_(source, non_blocking)


region, after_step = contextlib.nullcontext, lambda step, model: None
if "api" in sys.argv:
    import lms

    import torch_api

    region, after_step = lms.region, torch_api.after
kind = {"mlp": Perceptron, "gpt": Gpt}[sys.argv[1]]
mode = None
if "graphs" in sys.argv:
    mode = "reduce-overhead"
    torch._foreach_copy_ = copy_each
# Of graphs the first step is none, the second records them.
batches = [kind.batch() for _ in range(int(os.environ.get("TRAIN_STEPS", 4)))]
model, same = kind(), kind()
same.load_state_dict(model.state_dict())
for step, (loss, right) in enumerate(zip(train(model, batches, "cuda"), train(same, batches, "cpu"))):
    torch.testing.assert_close(loss, right, rtol=1e-3, atol=1e-4)
    print(f"step {step}: loss {loss.item()!r}", flush=True)
digest = hashlib.sha256()
for got, want in zip(model.parameters(), same.parameters()):
    got = got.detach().cpu()
    # Where a gradient is next to nothing its sign is chance, and AdamW's steps are as long as any.
    assert (got - want).abs().mean() < 1e-4
    digest.update(got.numpy().tobytes())
print("parameters", digest.hexdigest())
