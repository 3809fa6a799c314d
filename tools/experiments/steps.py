"""Reads the recorded steps (recorder.py says what their lines mean)."""

import collections
import copy
import pathlib

FOLDER = pathlib.Path(__file__).parent / "steps"

Kernel = collections.namedtuple("Kernel", "name flops reads writes bytes")
Change = collections.namedtuple("Change", "what id bytes")  # P, A or F


class Step:
    """The step NAME at size n."""

    def __init__(self, name, n):
        lines = (FOLDER / f"{name}.txt").read_text().splitlines()
        self.name, self.n = name, n
        self.precision = next(line.split()[-1] for line in lines if line.startswith("# precision"))
        self.events, size = [], {}
        for line in lines:
            what, *fields = line.split()
            if what == "K":
                kernel, flops, reads, writes, *moved = fields
                reads, writes = ([int(each) for each in ids.split(",") if each != "-"] for ids in (reads, writes))
                moved = self._value(moved[0]) if moved else sum(size[each] for each in reads + writes)
                self.events.append(Kernel(kernel, self._value(flops), reads, writes, moved))
            elif what != "#":
                number = int(fields[0])
                if what != "F":
                    size[number] = self._value(fields[1])
                self.events.append(Change(what, number, size[number]))

    def of(self, events):
        """The same with other events."""
        made = copy.copy(self)
        made.events = events
        return made

    def _value(self, text):
        """a, bn or a+bn."""
        return sum(int(part[:-1]) * self.n if part.endswith("n") else int(part) for part in text.split("+"))

    def kernels(self):
        return [event for event in self.events if isinstance(event, Kernel)]

    def changes(self, kinds="PAF"):
        return [event for event in self.events if isinstance(event, Change) and event.what in kinds]

    def peak(self):
        now = most = 0
        for event in self.changes():
            now += -event.bytes if event.what == "F" else event.bytes
            most = max(most, now)
        return most
