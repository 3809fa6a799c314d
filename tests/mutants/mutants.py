#!/usr/bin/env python3
"""Makes one fault at a time (mutants.txt) in a copy of the tree, and says which the tests notice.

    mutants.py run [--only REGEX] [--json FILE]    each: built, its tests run; needs a built tree
    mutants.py list
    mutants.py check                               that each still has its place in the sources

The copy is build/mutants. Python's standard library only.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
COPY = os.path.join(BUILD, "mutants")
# Beside objects, what tests of these folders load.
LOADED = {folder: ["build/liblmsshim.so", "build/lms"] for folder in ("entry", "e2e", "cli")}


class Mutant:
    def __init__(self, name):
        self.name, self.file, self.folder, self.filter, self.old, self.new = name, None, None, "*", [], []

    def place(self, text):
        """Where the old text stands in the file, whatever its lines begin with; None unless it is there once."""
        pattern = r"\n[ ]*".join(re.escape(line.strip()) for line in self.old)
        found = list(re.finditer(pattern, text))
        return found[0].span() if len(found) == 1 else None

    def applied(self, text):
        begin, end = self.place(text)
        return text[:begin] + "\n".join(self.new) + text[end:]


def read_mutants():
    mutants = []
    with open(os.path.join(HERE, "mutants.txt"), encoding="utf-8") as file:
        for line in file.read().splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "=":
                mutants.append(Mutant(rest))
            elif kind == "file":
                mutants[-1].file = rest
            elif kind == "test":
                mutants[-1].folder, _, mutants[-1].filter = rest.partition(" ")
            elif kind == "-":
                mutants[-1].old.append(rest)
            elif kind == "+":
                mutants[-1].new.append(rest)
    return mutants


def source(path, root=ROOT):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def command_check(mutants, _):
    lost = [mutant for mutant in mutants if mutant.place(source(mutant.file)) is None]
    for mutant in lost:
        print(f"{mutant.file}: not there exactly once: {mutant.name}")
    print(f"{len(mutants)} faults, {len(lost)} without a place")
    return 1 if lost or not mutants else 0


def command_list(mutants, _):
    for mutant in mutants:
        print(f"{mutant.name}\t{mutant.file}\t{mutant.folder} {mutant.filter}")
    return 0


def copy_tree():
    """Sources and what was built of them, with their times, so that make builds what a fault changes alone."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for path in filter(None, tracked):
        there = os.path.join(COPY, path)
        if os.path.exists(os.path.join(ROOT, path)) and not os.path.isdir(os.path.join(ROOT, path)):
            os.makedirs(os.path.dirname(there), exist_ok=True)
            if os.path.islink(there):  # of the run before: a link is not written over
                os.remove(there)
            shutil.copy2(os.path.join(ROOT, path), there, follow_symlinks=False)
    for name in os.listdir(BUILD):
        if name != "mutants":
            subprocess.run(["cp", "-a", "-T", os.path.join(BUILD, name), os.path.join(COPY, "build", name)], check=True)


def build_and_run(mutant, seconds):
    """noticed, unnoticed, or does not build"""
    targets = LOADED.get(mutant.folder, []) + [f"build/tests/{mutant.folder}"]
    built = subprocess.run(["make", f"-j{os.cpu_count()}"] + targets, cwd=COPY, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        return "does not build"
    try:
        ran = subprocess.run([f"build/tests/{mutant.folder}", f"-tc={mutant.filter}"], cwd=COPY, capture_output=True,
                             text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "noticed"
    return "noticed" if ran.returncode != 0 else "unnoticed"


def command_run(mutants, options):
    os.makedirs(os.path.join(COPY, "build"), exist_ok=True)
    copy_tree()
    results = {}
    for mutant in mutants:
        original = source(mutant.file, COPY)
        if mutant.place(original) is None:
            results[mutant.name] = "has no place"
        else:
            path = os.path.join(COPY, mutant.file)
            with open(path, "w", encoding="utf-8") as file:
                file.write(mutant.applied(original))
            results[mutant.name] = build_and_run(mutant, options.seconds)
            with open(path, "w", encoding="utf-8") as file:
                file.write(original)
        print(f"{results[mutant.name]}: {mutant.name}", flush=True)
    noticed = sum(result == "noticed" for result in results.values())
    print(f"{noticed} of {len(results)} noticed")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)
    return 0 if noticed == len(results) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "list", "check"))
    parser.add_argument("--only", default="", help="faults whose names or tests this expression finds")
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=int, default=300, help="that the tests of one fault may take")
    options = parser.parse_args()
    mutants = [m for m in read_mutants() if re.search(options.only, f"{m.name} {m.file} {m.folder}")]
    return {"run": command_run, "list": command_list, "check": command_check}[options.command](mutants, options)


if __name__ == "__main__":
    sys.exit(main())
