"""What a driver answers without a device, as lines of text: python3 answers.py SECTION...

  version  what cuDriverGetVersion says
  exports  the names of the table that it lacks, and those of --names that it has
  lookups  every name at every version and flag: from which version on it is which function. Then what an answer that
           gives no function looks like, in each form of the call
  errors   the names and texts of errors
  before   every function called with no arguments at all, before cuInit
  after    and after a cuInit that found no device
  given    the same before and after, with memory of zeros for arguments, or for all but the first ones
  memory   of these, before and with memory for all alone
  hooks    of what the shim hooks: the library that dlsym's function lies in

The driver is the loader's libcuda.so.1, or a shim that is preloaded in its place. A function is told by the name under
which dlsym gives it, so that the answers of a driver and of the shim over it can be compared.
"""
import argparse
import ctypes
import mmap
import os
import pathlib
import re
import signal

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"^LMS_(?:ENTRY|INTEROP)\((\w+),\s*(\w+),\s*(\d+), *(\w+),\s*(\w+)\)", re.M)
TABLE = ROW.findall((ROOT / "shim/entry_points.def").read_text())
ROWS = [(symbol, base, int(introduced)) for symbol, base, introduced, _, _ in TABLE]
HOOKED = [symbol for symbol, _, _, _, action in TABLE if action != "PASS"]
# Each version at which some function has come or changed, what lies between, and the ends of what may be asked.
VERSIONS = sorted({introduced for _, _, introduced in ROWS} | {0, 12020, 12040, 12045, 99999})
NEAR_MISSES = ["", "cuInit_", "cuinit", "cuMemAlloc_v2", "cuMemcpy_ptds", "cuLaunchKernel_ptsz", "nothing"]
REFUSED_FLAGS = 4
MOST_ARGUMENTS = 14
NOTHING = [None] * MOST_ARGUMENTS
# Always at the same addresses, for many arguments are numbers.
MEMORY = [ctypes.c_void_p(0x20000000 + 0x10000 * i) for i in range(MOST_ARGUMENTS)]
GIVEN = {
    "memory": MEMORY,
    "nothing and memory": NOTHING[:1] + MEMORY[1:],
    "nothing twice and memory": NOTHING[:2] + MEMORY[2:],
}
UNTOUCHED = 1


def address_of(library, name):
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None


def library_of(address):
    """The name of the file that the address is mapped from."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return pathlib.Path(line.split()[-1]).name
    return "nowhere"


class Driver:
    def __init__(self, names):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.names = names
        self.named = {}
        for name in [symbol for symbol, _, _ in ROWS] + names:
            self.named.setdefault(address_of(self.library, name), name)

    def version(self):
        found = ctypes.c_int(-1)
        status = self.library.cuDriverGetVersion(ctypes.byref(found))
        yield f"version {found.value} answered {status}"

    def exports(self):
        for symbol, _, _ in ROWS:
            if address_of(self.library, symbol) is None:
                yield f"export lacking {symbol}"
        for name in self.names:
            if address_of(self.library, name) is not None:
                yield f"export more {name}"

    def look_up(self, name, version, flags):
        """The function's name; or, for one that is not given, the answers of each form of the call."""
        function, status = ctypes.c_void_p(UNTOUCHED), ctypes.c_int(-1)
        untold, first = ctypes.c_void_p(UNTOUCHED), ctypes.c_void_p(UNTOUCHED)
        query = (name.encode(), version, ctypes.c_uint64(flags))
        library = self.library
        results = (
            library.cuGetProcAddress_v2(query[0], ctypes.byref(function), *query[1:], ctypes.byref(status)),
            library.cuGetProcAddress_v2(query[0], ctypes.byref(untold), *query[1:], None),
            library.cuGetProcAddress(query[0], ctypes.byref(first), *query[1:]))
        if results == (0, 0, 0) and status.value == 0 and function.value == untold.value == first.value:
            return self.named.get(function.value, "a function without a name")
        told = [f"{result}/{self.pointer(given)}"
                for result, given in zip(results, (function, untold, first))]
        return f"{status.value}: {' '.join(told)}"

    def pointer(self, given):
        if given.value is None:
            return "null"
        return "untouched" if given.value == UNTOUCHED else self.named.get(given.value, "?")

    def lookups(self):
        lines, without = [], {}
        for name in sorted({base for _, base, _ in ROWS} | set(self.names)) + NEAR_MISSES:
            steps = {}
            for flags in (0, 1, 2, 3, REFUSED_FLAGS):
                found = []
                for version in VERSIONS:
                    given = self.look_up(name, version, flags)
                    if ":" in given:
                        kind = f"flags {flags}" if flags == REFUSED_FLAGS else "found" if found else "older"
                        without.setdefault((kind, given), set()).add(name)
                    elif not found or found[-1][1] != given:
                        found.append((version, given))
                steps.setdefault(" ".join(f"{version} {given}" for version, given in found), []).append(flags)
            lines += [f"lookup {name} {''.join(map(str, flags))}: {text}" for text, flags in steps.items() if text]
        yield from lines
        everything = set().union(*without.values())
        for (kind, given), names in sorted(without.items()):
            who = "every name" if names == everything else " ".join(sorted(names))
            if kind == "older" and given.startswith("2"):
                who = "a name that is there"
            yield f"lookup without {kind}, {given}: {who}"

    def errors(self):
        unknown = set()
        for code in [-1, *range(1100), 99999]:
            texts = []
            for ask in (self.library.cuGetErrorName, self.library.cuGetErrorString):
                text = ctypes.c_char_p(b"untouched")
                status = ask(code, ctypes.byref(text))
                texts.append(text.value.decode() if text.value is not None else f"(null) {status}")
            if texts[0].startswith("("):
                unknown.add(" ".join(texts))
            else:
                yield f"error {code} {' '.join(texts)}"
        yield f"error other {', '.join(sorted(unknown))}"

    def before(self):
        yield from self.ask_all("before", NOTHING)

    def after(self):
        self.library.cuInit(0)
        yield from self.ask_all("after", NOTHING)

    def memory(self):
        map_memory()
        yield from self.ask_all("before given memory", MEMORY)

    def given(self):
        map_memory()
        for initialize in (False, True):
            if initialize:
                self.library.cuInit(0)
            for name, arguments in GIVEN.items():
                yield from self.ask_all(f"{'after' if initialize else 'before'} given {name}", arguments)

    def hooks(self):
        for symbol in HOOKED:
            if (address := address_of(self.library, symbol)) is not None:
                yield f"hook {symbol} {library_of(address)}"

    def ask_all(self, stage, arguments):
        yield f"call {stage} cuInit(0): {in_child(lambda: self.library.cuInit(0))}"
        for symbol, _, _ in ROWS:
            if address_of(self.library, symbol) is not None:
                answer = in_child(lambda name=symbol: getattr(self.library, name)(*arguments))
                yield f"call {stage} {symbol}: {answer}"


def map_memory():
    map_at = ctypes.CDLL(None).mmap
    map_at.restype = ctypes.c_void_p
    fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
    for address in MEMORY:
        got = map_at(address, ctypes.c_size_t(0x10000), mmap.PROT_READ | mmap.PROT_WRITE, fixed, -1, ctypes.c_long(0))
        assert got == address.value, "the addresses are taken"


def in_child(call):
    """What the call answers in a process of its own, or the signal that ended it."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.alarm(20)
        os.write(into, str(call()).encode())
        os._exit(0)
    os.close(into)
    answer = os.read(out, 64).decode()
    os.close(out)
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sections", nargs="+")
    parser.add_argument("--names", default="", help="further names to ask for, with commas")
    arguments = parser.parse_args()
    driver = Driver([name for name in arguments.names.split(",") if name])
    for section in arguments.sections:
        for line in getattr(driver, section)():
            print(line)


if __name__ == "__main__":
    main()
