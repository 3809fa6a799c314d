"""Allocators of frameworks that divide large allocations themselves: where they place each tensor, sizes in bytes."""

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
