"""liblmsshim.so with one row of shim/entry_points.def taken out, made of the built one: where the row's function began
there is now the jump of a PASS row, so that the call goes to the driver. Every way to the function leads through its
first instruction, so linking, dlsym and cuGetProcAddress are covered; what the function shares with others stays.
"""

import os
import re
import struct

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROW = re.compile(r"^LMS_(?:ENTRY|INTEROP|LATER)\((\w+),.*, *(\w+)\)")


class Row:
    """A row of the table: its place there, its exported name, and HOOK, RETRY or PASS."""

    def __init__(self, index, symbol, action):
        self.index = index
        self.symbol = symbol
        self.action = action


def rows():
    with open(os.path.join(ROOT, "shim", "entry_points.def"), encoding="utf-8") as table:
        found = [match for match in map(ROW.match, table) if match]
    return [Row(index, *match.groups()) for index, match in enumerate(found)]


class Shim:
    """The built library, read once."""

    JUMP = struct.Struct("<2si")  # jmp *displacement(%rip), the displacement from the instruction's end

    def __init__(self, path, table):
        with open(path, "rb") as file:
            self.image = file.read()
        self._read()
        slots = {self._target(row.symbol) - 8 * row.index for row in table if row.action == "PASS"}
        if len(slots) != 1:
            raise ValueError(f"{path}: its rows are not those of entry_points.def: build it first")
        self.slots = slots.pop()

    def without(self, row):
        """Its bytes, with that row of kind HOOK or RETRY taken out."""
        start = self.symbols[row.symbol]
        if any(start < other < start + self.JUMP.size for other in self.symbols.values()):
            raise ValueError(f"{row.symbol}: no room for a jump")
        jump = self.JUMP.pack(b"\xff\x25", self.slots + 8 * row.index - start - self.JUMP.size)
        at = self._offset(start)
        return self.image[:at] + jump + self.image[at + len(jump):]

    def _read(self):
        segments_at, sections_at = struct.unpack_from("<QQ", self.image, 32)
        segment_bytes, segments, section_bytes, sections = struct.unpack_from("<HHHH", self.image, 54)
        self.loaded = []  # (address, offset, bytes in the file)
        for i in range(segments):
            kind, _, offset, address, _, size = struct.unpack_from(
                "<IIQQQQ", self.image, segments_at + i * segment_bytes)
            if kind == 1:  # PT_LOAD
                self.loaded.append((address, offset, size))
        headers = [struct.unpack_from("<IIQQQQI", self.image, sections_at + i * section_bytes)
                   for i in range(sections)]
        dynamic = next(header for header in headers if header[1] == 11)  # SHT_DYNSYM
        strings = headers[dynamic[6]][4]
        self.symbols = {}
        for at in range(dynamic[4], dynamic[4] + dynamic[5], 24):
            name, _, _, section, address = struct.unpack_from("<IBBHQ", self.image, at)
            if section != 0:
                end = self.image.index(b"\0", strings + name)
                self.symbols[self.image[strings + name:end].decode()] = address

    def _offset(self, address):
        for start, offset, size in self.loaded:
            if start <= address < start + size:
                return address - start + offset
        raise ValueError(f"nothing at {address:#x}")

    def _target(self, symbol):
        """Where the jump at the beginning of that symbol takes its target from."""
        start = self.symbols[symbol]
        opcode, displacement = self.JUMP.unpack_from(self.image, self._offset(start))
        if opcode != b"\xff\x25":
            raise ValueError(f"{symbol}: not a jump")
        return start + self.JUMP.size + displacement
