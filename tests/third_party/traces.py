"""Reads a trace of the shim (docs/reference/trace-format.md): buffers, and the launches that use them."""

import collections
import ctypes
import struct

# A launch or copy: its kernel ("": a copy or set) and [(chunk, flags)].
Launch = collections.namedtuple("Launch", "kernel touched")
# A buffer, and its [(chunk, bytes)].
Allocation = collections.namedtuple("Allocation", "buffer bytes chunks")
Free = collections.namedtuple("Free", "buffer")  # in stream order too, if that came first
Residency = collections.namedtuple("Residency", "resident budget")

OVERWRITTEN, MAY_STAY, IN_PLACE, ONLY_READ = 1, 2, 4, 8  # flags of a touched chunk


def unpacked(packed, size):
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    plain = ctypes.create_string_buffer(size)
    if zstd.ZSTD_decompress(plain, ctypes.c_size_t(size), packed, ctypes.c_size_t(len(packed))) != size:
        raise ValueError("a block of the trace is damaged")
    return plain.raw


class Block:
    """The records of a block, from the front."""

    def __init__(self, plain):
        self.plain, self.at, self.chunk_before = plain, 0, 0

    def number(self):
        total = shift = 0
        while True:
            byte = self.plain[self.at]
            self.at += 1
            total |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return total

    def numbers(self, count):
        return [self.number() for _ in range(count)]

    def chunk(self):
        zigzag = self.number()
        self.chunk_before += zigzag >> 1 ^ -(zigzag & 1)
        return self.chunk_before

    def bytes(self, count):
        self.at += count
        return self.plain[self.at - count:self.at]

    def touched(self):
        head = self.number()
        return [(self.chunk(), self.number() if head % 2 else 0) for _ in range(head // 2)]


# Records that say nothing here: how many numbers each has.
PASSED = {0: 0, 1: 1, 4: 2, 5: 5, 12: 1, 14: 0, 15: 2, 16: 4, 18: 3, 19: 2, 20: 4, 21: 2}


def events(path):
    """The events of one GPU, in the order of their records."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<I", data, 12)[0]
    at, strings, dead, found = 24 + size, {}, set(), []
    while at + 24 <= len(data):
        packed, plain = struct.unpack_from("<II", data, at + 4)
        block = Block(unpacked(data[at + 24:at + 24 + packed], plain))
        at += 24 + packed
        while block.at < plain:
            record(block, strings, dead, found)
    return found


def record(block, strings, dead, found):
    tag = block.number()
    if tag in PASSED:
        if tag == 12:
            raise ValueError("the trace lacks events")
        block.numbers(PASSED[tag])
    elif tag == 2:
        string, count = block.numbers(2)
        strings[string] = block.bytes(count).decode(errors="replace")
    elif tag == 3:
        block.numbers(block.numbers(2)[1])
    elif tag == 6:
        _, buffer, _, size, _, count = block.numbers(6)
        chunks = [(block.chunk(), block.number() // 2) for _ in range(count)]
        dead.discard(buffer)
        found.append(Allocation(buffer, size, chunks))
    elif tag in (7, 17):
        buffer = block.numbers(2 if tag == 7 else 3)[1]
        if buffer not in dead:
            found.append(Free(buffer))
        dead.add(buffer)
    elif tag == 8:
        _, _, kernel, _ = block.numbers(4)
        found.append(Launch(strings.get(kernel, ""), block.touched()))
    elif tag == 9:
        block.numbers(3)
        block.chunk()
        block.numbers(2)
    elif tag == 10:
        block.numbers(5)
        block.touched()
    elif tag == 11:
        _, resident, _, budget = block.numbers(4)
        found.append(Residency(resident, budget))
    elif tag == 13:
        block.numbers(4)
    else:
        raise ValueError(f"the trace has a record {tag} that is not known")
