"""Allocators of frameworks that divide large allocations themselves: where they place each tensor, sizes in bytes."""

import collections
import itertools

from steps import Change

MIB = 1 << 20


class Pool:
    """Pieces of segments, of which the smallest that fits is taken."""

    def __init__(self):
        self.segments, self.free, self.taken = [], [], {}  # bytes; [(segment, offset, bytes)]; {tensor: its piece}

    def allocate(self, key, size):
        size = -(-size // self.ROUND) * self.ROUND
        fitting = [piece for piece in self.free if piece[2] >= size]
        segment, offset, length = min(fitting, key=lambda piece: (piece[2], piece)) if fitting else self.grow(size)
        if fitting:
            self.free.remove((segment, offset, length))
        if self.splits(length, size):
            self.free.append((segment, offset + size, length - size))
            length = size
        self.taken[key] = (segment, offset, length)

    def release(self, key):
        """Joins the piece with its free neighbours."""
        segment, offset, length = self.taken.pop(key)
        for other in [piece for piece in self.free if piece[0] == segment]:
            if offset in (other[1] + other[2], other[1] - length):
                self.free.remove(other)
                offset, length = min(offset, other[1]), length + other[2]
        self.free.append((segment, offset, length))


class Caching(Pool):
    """PyTorch's caching allocator: an allocation for what does not fit, which is kept."""

    ROUND = 512

    def grow(self, size):
        self.segments.append(20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB)
        return len(self.segments) - 1, 0, self.segments[-1]

    @staticmethod
    def splits(length, size):
        return length - size > MIB


class Region(Pool):
    """TensorFlow's and JAX's BFC allocator: one allocation, here as large as the step makes it."""

    ROUND = 256

    def grow(self, size):
        top = self.segments[0] if self.segments else 0
        tail = [piece for piece in self.free if piece[1] + piece[2] == top]
        if tail:
            self.free.remove(tail[0])
            top = tail[0][1]
        self.segments = [top + size]
        return 0, top, size

    @staticmethod
    def splits(length, size):
        """As TensorFlow's allocator does unless told otherwise."""
        return length >= 2 * size or length - size >= 128 * MIB


POOLS = {"caching": Caching, "region": Region}


def placements(step, allocator):
    """The pool, and of each event of the step the piece of its tensor, or of a kernel those it reads and those it writes; in a
    step in which the pool is as large as it gets."""
    pool = POOLS[allocator]()
    for _ in range(2):
        placed = []
        for each in step.events:
            if not hasattr(each, "what"):
                placed.append(tuple([pool.taken[tensor] for tensor in ids] for ids in (each.reads, each.writes)))
                continue
            if each.what == "A" or each.what == "P" and each.id not in pool.taken:
                pool.allocate(each.id, each.bytes)
            placed.append(pool.taken[each.id])
            if each.what == "F":
                pool.release(each.id)
    return pool, placed


def as_placed(step, allocator):
    """The step as it is seen without its tensors: kernels touch parts of the allocator's segments, and each part keeps its
    contents until a kernel writes others there."""
    _, placed = placements(step, allocator)
    kernels = [(event, *where) for event, where in zip(step.events, placed, strict=True) if not hasattr(event, "what")]
    ends = collections.defaultdict(set)
    for segment, offset, length in itertools.chain.from_iterable(reads + writes for _, reads, writes in kernels):
        ends[segment] |= {offset, offset + length}
    parts = {}  # between two ends that follow each other: its number, and what it has

    def numbers(pieces):
        for segment, offset, length in pieces:
            for begin, end in itertools.pairwise(sorted(at for at in ends[segment] if offset <= at <= offset + length)):
                yield parts.setdefault((segment, begin), (len(parts), end - begin))[0]

    kernels = [event._replace(reads=[*numbers(reads)], writes=[*numbers(writes)]) for event, reads, writes in kernels]
    return step.of([Change("P", *part) for part in parts.values()] + kernels)
