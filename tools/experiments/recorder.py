"""Records a step of a network on PyTorch's meta device, where tensors have shapes and no bytes.

The text that it writes has one line for each event, in the order of the step:

    P id bytes                  a tensor that is there before the step and after it
    A id bytes                  an allocation
    F id                        a free; the id may be used again
    K name flops reads writes   a kernel: ids with commas, or -; then the bytes, if not all of each tensor

A number is `a`, `bn` or `a+bn`: linear in n, the size of the step, whose unit the header names. The step is recorded at
three sizes; the third confirms the line through the other two.
"""

import math

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# Smaller tensors, at the first size, are left out: nothing moves them.
SMALL = 1 << 20
# Operations that overwrite their first argument without reading it.
OVERWRITES = {"zero_", "fill_", "copy_"}


def storages(tensors):
    """One tensor for each storage, with the bytes that the tensors span."""
    spans = {}
    for tensor in tensors:
        key = tensor.untyped_storage()._cdata
        spans[key] = (tensor, spans.get(key, (None, 0))[1] + tensor.numel() * tensor.element_size())
    return spans


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.events = []
        self.live = {}  # storage: (id, its weak reference)
        self.free_ids, self.ids = [], 0

    def _id(self, tensor, kind="A"):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.live:
            if self.free_ids:
                number = self.free_ids.pop()
            else:
                number = self.ids
                self.ids += 1
            self.live[storage._cdata] = (number, StorageWeakRef(storage))
            self.events.append((kind, number, storage.nbytes()))
        return self.live[storage._cdata][0]

    def sweep(self):
        """Frees the tensors that nothing refers to any more."""
        for key in [key for key, (_, reference) in self.live.items() if reference.expired()]:
            number, _ = self.live.pop(key)
            self.free_ids.append(number)
            self.events.append(("F", number))

    def begin(self, tensors):
        """The step begins, when these are there."""
        self.events.clear()
        self.live.clear()
        self.free_ids, self.ids = [], 0
        for tensor in tensors:
            self._id(tensor, "P")

    def kernel(self, name, reads, writes, flops=0):
        reads, writes = storages(reads), storages(writes)
        ids = [[self._id(tensor) for tensor, _ in each.values()] for each in (reads, writes)]
        moved = sum(span for each in (reads, writes) for _, span in each.values())
        self.events.append(("K", name, flops, *ids, moved))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.sweep()
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::").replace("_scaled_dot_product_flash_", "").replace("native_", "")
        ins = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        outs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.numel()]
        written = [leaf for argument, value in zip(func._schema.arguments, args)
                   if argument.alias_info and argument.alias_info.is_write
                   for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        old = storages(ins)
        made = [tensor for tensor in outs if tensor.untyped_storage()._cdata not in old]
        if name.startswith(("empty", "new_empty")):
            for tensor in made:
                self._id(tensor)
        elif name == "convolution_backward":
            self._convolution_backward(*args[:3], out)
        elif made or written:  # else a view
            reads = [tensor for tensor in ins if name not in OVERWRITES or tensor is not args[0]]
            if name.endswith(("_like", "zeros", "ones")):
                reads = []
            formula = flop_registry.get(func._overloadpacket)
            self.kernel(name, reads, made + written, formula(*args, **(kwargs or {}), out_val=out) if formula else 0)
        return out

    def _convolution_backward(self, gradient, data, weight, out):
        flops = 2 * gradient.numel() * weight.shape[1] * math.prod(weight.shape[2:])
        if out[0] is not None:
            self.kernel("dgrad", [gradient, weight], [out[0]], flops)
        if out[1] is not None:
            self.kernel("wgrad", [gradient, data], [out[1]], flops)
        if out[2] is not None:
            self.kernel("bgrad", [gradient], [out[2]])


def train(recorder, model, loss, states, clip=None):
    """Forward, backward, and an optimiser that keeps so many numbers for each weight, with one kernel a weight."""
    weights = list(model.parameters())
    kept = [[torch.empty(weight.shape) for _ in range(states)] for weight in weights]
    recorder.begin([*weights, *(state for each in kept for state in each)])
    loss(model).backward()
    if clip:
        nn.utils.clip_grad_norm_(weights, clip, foreach=False)
    for weight, own in zip(weights, kept):
        recorder.kernel("update", [weight, weight.grad, *own], [weight, *own])
    for weight in weights:
        weight.grad = None
    recorder.sweep()


def linear(at, values):
    """The text of the line through three points."""
    slope, rest = divmod(values[1] - values[0], at[1] - at[0])
    base = values[0] - slope * at[0]
    if rest or base + slope * at[2] != values[2]:
        raise ValueError(f"{values} at {at} are on no line")
    return f"{base}+{slope}n" if base and slope else f"{slope}n" if slope else str(base)


def fold(at, records):
    """The lines of a step that was recorded at three sizes."""
    lines, size = [], {}

    def kept(ids):
        return [number for number in ids if size[number][0] >= SMALL]

    def text(ids):
        return ",".join(map(str, ids)) or "-"

    for events in zip(*records, strict=True):
        event = events[0]
        if event[0] in "PA":
            size[event[1]] = [each[2] for each in events]
            if kept([event[1]]):
                lines.append(f"{event[0]} {event[1]} {linear(at, size[event[1]])}")
        elif event[0] == "F":
            if kept([event[1]]):
                lines.append(f"F {event[1]}")
        else:
            _, name, _, reads, writes, _ = event
            if any(each[1] != name or each[3:5] != event[3:5] for each in events):
                raise ValueError(f"{name}: other tensors at another size")
            whole = [sum(size[number][k] for number in reads + writes) for k in range(3)]
            moved = [each[5] for each in events]
            reads, writes = kept(reads), kept(writes)
            if reads or writes:
                line = f"K {name} {linear(at, [each[2] for each in events])} {text(reads)} {text(writes)}"
                lines.append(line if moved == whole else f"{line} {linear(at, moved)}")
    return lines
