"""A settled step of a trace, as tools/experiments/linear.py takes it.

Where the trace leaves something open, the choice is the one that makes the bound lower:

- A chunk that a kernel is not known to spare (flag 8) is written by it. It is read too if the chunk's use before was a write, for
  otherwise no kernel would use what that wrote. Behind a read it is taken to be overwritten, but by kernels that are known to read
  what they write.
- Copies and sets of the program take no time and need no memory. A chunk that one overwrites holds new contents from there on.
- A chunk is as large as its part of the bytes that were asked for. It needs memory from its first kernel on.
- A chunk that was used in host memory, and a launch that names more than there is room for, need nothing.
"""

import collections
import itertools

import traces
from linear import Life

READS = 16  # a flag beside the trace's: what is written is read


class Chunk:
    """One life of it: the kernels that use it, with flags, and the kernel before which it ends."""

    def __init__(self, size):
        self.size, self.uses, self.end = size, {}, None


def lives_in(events, updates=None):
    """All lives of chunks that a kernel uses, and how many kernels there are. Those whose names begin with `updates` read what they write."""
    live, lives, chunks_of, kernels = {}, [], {}, 0

    def begins(chunk, size):
        ends(chunk)
        live[chunk] = Chunk(size)

    def ends(chunk):
        if chunk in live:
            live[chunk].end = kernels
            lives.append(live.pop(chunk))

    for event in events:
        if isinstance(event, traces.Allocation):
            chunks_of[event.buffer] = [chunk for chunk, _ in event.chunks]
            left = event.bytes
            for chunk, size in event.chunks:
                begins(chunk, min(size, max(left, 0)))
                left -= size
        elif isinstance(event, traces.Free):
            for chunk in chunks_of.pop(event.buffer, ()):
                ends(chunk)
        elif isinstance(event, traces.Launch):
            known = READS if updates and event.kernel.startswith(updates) else 0
            for chunk, flags in event.touched:
                if chunk not in live:
                    continue
                if event.kernel:
                    live[chunk].uses[kernels] = flags | known
                elif flags & traces.OVERWRITTEN:
                    begins(chunk, live[chunk].size)
            kernels += bool(event.kernel)
    lives += live.values()
    return [each for each in lives if each.uses], kernels


def step_of(lives, first, count, kernels):
    """{(uses, end): bytes} of the step of `count` kernels that begins with `first`, uses as (kernel of the step, flags) and sorted;
    end is None for what stays."""
    step = collections.Counter()
    for each in lives:
        begin = min(each.uses)
        stays = begin < first - count and (each.end is None or each.end >= kernels)
        if not stays and not first <= begin < first + count:
            continue
        if not stays and (each.end is None or each.end > first + 2 * count):
            raise ValueError("what a step makes lives longer than the next")
        uses = tuple((k - first, flags) for k, flags in sorted(each.uses.items()) if not stays or first <= k < first + count)
        if uses:
            step[uses, None if stays else each.end - first] += each.size
    return step


def shape(step):
    """Without how a chunk was used in host memory, which depends on what is there."""
    plain = collections.Counter()
    for (uses, end), size in step.items():
        plain[tuple((k, flags & ~traces.IN_PLACE & ~traces.MAY_STAY) for k, flags in uses), end] += size
    return plain


def read_and_written(uses, stays):
    """{kernel: (read?, written?)} of a chunk's [(kernel, flags)]."""
    found = {}
    wrote = stays and not uses[-1][1] & traces.ONLY_READ  # the last step's last use
    for k, flags in uses:
        written = not flags & traces.ONLY_READ
        overwritten = flags & traces.OVERWRITTEN or not (wrote or flags & READS)
        found[k] = (not written or not overwritten, written)
        wrote = written
    return found


def recorded_step(events, count, room, updates=None):
    """The lives (linear.Life) of a step of `count` kernels, and whether the step before was the same. The last two are left out:
    what they make lives on into steps that are not recorded. `room` is in bytes."""
    lives, kernels = lives_in(events, updates)
    first = kernels - 3 * count
    step, before = (step_of(lives, at, count, kernels) for at in (first, first - count))
    named = collections.Counter()
    for (uses, _), size in step.items():
        for k in {k % count for k, _ in uses}:
            named[k] += size
    sizes = collections.Counter()
    for (uses, end), size in step.items():
        kept = tuple(use for use in uses if named[use[0] % count] <= room and not use[1] & traces.IN_PLACE)
        if kept:
            sizes[kept, end] += size
    found = [Life(size / 1e6, read_and_written(uses, end is None), end) for (uses, end), size in sizes.items()]
    return found, shape(step) == shape(before)


def room_of(events, least):
    """Bytes that could be filled, or were, at most in the second half of the events; `least` at least."""
    settled = events[len(events) // 2:]
    seen = itertools.chain.from_iterable(event for event in settled if isinstance(event, traces.Residency))
    return max(least, *seen)
