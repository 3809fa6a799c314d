"""Unified Memory, modelled from published costs, with each choice in its favour.

Memory moves in blocks of 2 MiB, as the driver's prefetcher makes them at best. A kernel that touches blocks which are on
the host faults once for each and waits for its copy. Where there is no room the block that came in longest ago goes out
first, with a copy of its own: the driver sees no accesses but faults, and does the two one after the other. New tensors
cost no fault, freed ones leave at once and without a copy, and what a kernel does besides takes its time in memory.
"""

import collections

from machines import CONTEXT, step_ms

BLOCK = 2 << 20
# Ganguly and others, ISCA 2019, measured 45 us for a fault on a GTX 1080 Ti; Zheng and others, HPCA 2016: 20 to 50.
FAULT_MS = 0.045


class Blocks:
    """Which bytes of each tensor are on the GPU, and what moves."""

    def __init__(self, room):
        self.room, self.used = room, 0
        self.on_gpu, self.on_host = {}, {}  # bytes by tensor; a new one has neither
        self.order = collections.deque()  # [tensor, bytes] as they came in
        self.moved_in = self.moved_out = self.faults = 0

    def free(self, tensor):
        self.used -= self.on_gpu.pop(tensor, 0)
        self.on_host.pop(tensor, None)

    def touch(self, tensor, size):
        """`size`: how many of its bytes."""
        missing = size - self.on_gpu.get(tensor, 0)
        copied = min(missing, self.on_host.get(tensor, 0))
        if missing <= 0:
            return
        self._make_room(missing)
        self.on_gpu[tensor] = self.on_gpu.get(tensor, 0) + missing
        self.on_host[tensor] = self.on_host.get(tensor, 0) - copied
        self.used += missing
        self.order.append([tensor, missing])
        self.moved_in += copied
        self.faults += -(-copied // BLOCK)

    def _make_room(self, size):
        while self.used + size > self.room and self.order:
            oldest = self.order[0]
            tensor, held = oldest[0], min(oldest[1], self.on_gpu.get(oldest[0], 0))
            gone = min(held, self.used + size - self.room)
            if gone < held:
                oldest[1] -= gone
            else:
                self.order.popleft()
            if gone:
                self.on_gpu[tensor] -= gone
                self.on_host[tensor] = self.on_host.get(tensor, 0) + gone
                self.used -= gone
                self.moved_out += gone


def uvm_ms(step, machine, factor=1.0, faults_a_block=1, steps=4):
    """Of the last of several steps."""
    blocks = Blocks(machine.memory - CONTEXT)
    now = {each.id: (each.id, 0) for each in step.changes("P")}
    size, before = {each.id: each.bytes for each in step.changes("P")}, (0, 0, 0)
    for number in range(steps):
        before = (blocks.moved_in, blocks.moved_out, blocks.faults)
        for k, event in enumerate(step.events):
            if not hasattr(event, "what"):
                touched = set(event.reads) | set(event.writes)
                share = event.bytes / sum(size[each] for each in event.reads + event.writes)
                for each in sorted(touched):
                    blocks.touch(now[each], int(min(1, share) * size[each]))
            elif event.what == "A":
                now[event.id], size[event.id] = (event.id, number, k), event.bytes
            elif event.what == "F":
                blocks.free(now[event.id])
    moved_in, moved_out, faults = (new - old for new, old in zip((blocks.moved_in, blocks.moved_out, blocks.faults), before))
    copies = moved_in / machine.into / 1e6 + moved_out / machine.out / 1e6
    return step_ms(step, machine, factor) + copies + faults * faults_a_block * FAULT_MS
