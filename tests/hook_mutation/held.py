#!/usr/bin/env python3
"""Every hook is held by a test: with its row taken out of the shim (unhook.py), that test fails.

  held.py check          held.tsv names a test for every HOOK and RETRY row, which passes, and fails without the row
  held.py map [ROW ...]  finds one for these rows, or for all that held.tsv has none for

A test is known by its id, the name of a test suite that it is alone in: FAMILY_TEST(title, "id"),
TEST_CASE(title * doctest::test_suite("id")). So its title can change.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import unhook

BUILD = os.path.join(unhook.ROOT, os.environ.get("BUILD", "build"))
MAP = os.path.join(unhook.ROOT, "tests", "hook_mutation", "held.tsv")
PROGRAMS = ("entry", "e2e")
# Cases that take longer, in seconds, hold nothing: each is run again for every row it holds.
LONGEST = 6
# Beyond this a run hangs. That holds nothing either: on a slow machine any may.
LIMIT = 60
TITLE = re.compile(r'\b(?:FAMILY_TEST|OVERLAY_TEST|TEST_CASE|BODY)\(\s*((?:"[^"]*"\s*)+|\w+)'
                   r'(?:(?:,|\*\s*doctest::test_suite\()\s*"([^"]*)"\)?)?\)')


class Shims:
    """Makes build folders that differ from the built one in the shim alone."""

    def __init__(self, table):
        self.shim = unhook.Shim(os.path.join(BUILD, "liblmsshim.so"), table)
        self.folder = tempfile.TemporaryDirectory(prefix="hooks-", dir=BUILD)

    def without(self, row):
        folder = tempfile.mkdtemp(prefix=row.symbol + "-", dir=self.folder.name)
        for name in os.listdir(BUILD):
            if name != "liblmsshim.so":
                os.symlink(os.path.join(BUILD, name), os.path.join(folder, name))
        with open(os.path.join(folder, "liblmsshim.so"), "wb") as file:
            file.write(self.shim.without(row))
        return folder


def by_id(name):
    return "-ts=" + name


def by_title(title):
    # Commas part patterns; a question mark stands for any one letter.
    return "-tc=" + title.replace(",", "?")


def run(build, program, which):
    """How a test ends ("passed", "failed", or what else happened), and what it says."""
    command = [os.path.join(build, "tests", program), which, "-aa=1", "--no-colors=1"]
    process = subprocess.Popen(command, cwd=unhook.ROOT, env=dict(os.environ, BUILD=build), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return f"hung for {LIMIT} s", output
    told = " ".join(output.split())
    if "test cases: 0 |" in told:
        return "there is no such test", output
    if "test cases: 1 | 1 passed" in told and process.returncode == 0:
        return "passed", output
    if "test cases: 1 | 0 passed | 1 failed" in told:
        return "failed", output
    return f"ended with status {process.returncode}", output


def read_map():
    """Row -> (program, id)."""
    if not os.path.exists(MAP):
        return {}
    with open(MAP, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return {symbol: (program, name) for symbol, program, name in lines}


def write_map(held, table):
    with open(MAP, "w", encoding="utf-8") as file:
        for row in table:
            if row.symbol in held:
                file.write("\t".join((row.symbol, *held[row.symbol])) + "\n")


# ---------------------------------------------------------------- check

def check(table, jobs):
    hooked = {row.symbol: row for row in table if row.action in ("HOOK", "RETRY")}
    held = read_map()
    wrong = [f"{symbol}: no test is known to fail without it: write one, then `make hook-map`"
             for symbol in hooked if symbol not in held]
    wrong += [f"{symbol} is neither HOOK nor RETRY: `make hook-map`" for symbol in held if symbol not in hooked]
    shims = Shims(table)

    def whole(test):
        result, output = run(BUILD, test[0], by_id(test[1]))
        return [] if result == "passed" else [f"{' '.join(test)}: {result}\n{output}"]

    def without(symbol):
        folder = shims.without(hooked[symbol])
        program, name = held[symbol]
        result, _ = run(folder, program, by_id(name))
        shutil.rmtree(folder)
        return [] if result == "failed" else [f"{symbol} taken out, {' '.join(held[symbol])}: {result}"]

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = [pool.submit(whole, test) for test in sorted(set(held.values()))]
        results += [pool.submit(without, symbol) for symbol in held if symbol in hooked]
        for result in results:
            wrong += result.result()
    print("\n".join(wrong) if wrong else f"{len(hooked)} rows, each held by a test that fails without it")
    return 1 if wrong else 0


# ---------------------------------------------------------------- map

class Cases:
    """The cases there are, and where their sources name a row."""

    def __init__(self):
        self.all = [(program, case) for program in PROGRAMS for case in self._list(program)]
        self.known = {}
        self.texts = {}
        self.ids = {}
        for program in PROGRAMS:
            self._read(program)
        self.by_id = {(program, name) for (program, _), name in self.ids.items() if name}

    def seconds(self, test):
        """How long it takes with the shim whole."""
        if test not in self.known:
            start = time.monotonic()
            result, output = run(BUILD, test[0], by_title(test[1]))
            self.known[test] = time.monotonic() - start
            if result != "passed":
                sys.exit(f"with the shim whole, {' '.join(test)}: {result}\n{output}")
        return self.known[test]

    @staticmethod
    def _list(program):
        listed = subprocess.run([os.path.join(BUILD, "tests", program), "-ltc", "--no-colors=1"], check=True,
                                capture_output=True, text=True).stdout
        return [line for line in listed.splitlines() if not line.startswith(("[doctest]", "==="))]

    def _read(self, program):
        """Case -> its own text, and its file's; and its id."""
        folder = os.path.join(unhook.ROOT, "tests", program)
        for name in os.listdir(folder):
            if not name.endswith("_test.cpp"):
                continue
            text = self._with_headers(os.path.join(folder, name))
            titles = list(TITLE.finditer(text))
            for match, after in zip(titles, titles[1:] + [None]):
                title = "".join(re.findall(r'"([^"]*)"', match[1]))
                if title:
                    own = text[match.start():after.start() if after else len(text)]
                    self.texts[(program, title)] = (own, text)
                    self.ids[(program, title)] = match[2]

    @staticmethod
    def _with_headers(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for header in re.findall(r'#include "(tests/entry/.*_rig\.h)"', text):
            with open(os.path.join(unhook.ROOT, header), encoding="utf-8") as file:
                text = file.read() + text
        return text

    def for_row(self, row):
        """All of them, the likeliest first."""
        word = re.compile(rf"\b{row.symbol}\b")
        base = row.symbol.split("_")[0]
        # Macros put names together.
        stem = re.match(r"cu[A-Z][a-z]+([A-Z][a-z]+)?", base)[0]

        def rank(test):
            own, whole = self.texts.get(test, ("", ""))
            if word.search(own):
                return 0
            if word.search(whole) or "entry_points.def" in whole:
                return 1
            for number, (name, text) in enumerate(((base, own), (base, whole), (stem, own), (stem, whole)), 2):
                if name in text:
                    return number
            return 9

        return sorted((rank(test), test) for test in self.all)


def find(row, cases, shims):
    """The quickest case found that fails without the row, every time; None if there is none."""
    folder = shims.without(row)
    best, best_seconds, best_rank = None, LONGEST, None
    try:
        for rank, test in cases.for_row(row):
            # Others that mention it as much may be quicker.
            if best and (rank != best_rank or rank > 1):
                break
            if cases.seconds(test) > LONGEST:
                continue
            start = time.monotonic()
            program, title = test
            if run(folder, program, by_title(title))[0] != "failed":
                continue
            seconds = time.monotonic() - start
            if seconds < best_seconds and all(run(folder, program, by_title(title))[0] == "failed" for _ in range(2)):
                best, best_seconds, best_rank = test, seconds, rank
        return best
    finally:
        shutil.rmtree(folder)


def make_map(table, wanted, jobs):
    hooked = [row for row in table if row.action != "PASS"]
    cases = Cases()
    held = read_map()
    held = {row.symbol: held[row.symbol] for row in hooked
            if row.symbol not in wanted and held.get(row.symbol) in cases.by_id}
    shims = Shims(table)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = {pool.submit(find, row, cases, shims): row for row in hooked if row.symbol not in held}
        for result in concurrent.futures.as_completed(found):
            row, test = found[result], result.result()
            print(f"{row.symbol}: {' '.join(test) if test else 'no test fails without it'}", flush=True)
            name = cases.ids.get(test)
            if name:
                held[row.symbol] = (test[0], name)
            elif test:
                print("  which has no id yet: give it one (held.py says how), then again")
            write_map(held, table)
    return 0 if len(held) == len(hooked) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "map"))
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("-j", type=int, default=2, help="runs at once")
    arguments = parser.parse_args()
    table = unhook.rows()
    unknown = set(arguments.rows) - {row.symbol for row in table}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in shim/entry_points.def")
    if arguments.what == "check":
        return check(table, arguments.j)
    return make_map(table, arguments.rows, arguments.j)


if __name__ == "__main__":
    sys.exit(main())
