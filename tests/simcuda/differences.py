#!/usr/bin/env python3
"""Every row of differences.md is held by a test that is there: by file and title, as the built programs list them."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
LIST = os.path.join(ROOT, "tests", "simcuda", "differences.md")
ROWS = range(1, 44)
FILE = re.compile(r"`(\w+/\w+\.\w+)`((?:,? \"[^\"]+\")*)")


def cases(folder):
    """(file, title) of the cases that the program of a folder has."""
    listed = subprocess.run([os.path.join(BUILD, "tests", folder), "-ltc", "-r=xml"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    found = xml.etree.ElementTree.fromstring(listed).iter("TestCase")
    return {(os.path.basename(case.get("filename")), case.get("name")) for case in found}


def main():
    wrong, held, known = [], set(), {}
    with open(LIST, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in lines:
        named = FILE.findall(line)
        if not named:
            continue
        row = re.match(r"\| (\d+) \|", line)
        place = f"row {row[1]}" if row else "below the table"
        for path, titles in named:
            folder, name = path.split("/")
            if not os.path.exists(os.path.join(ROOT, "tests", path)):
                wrong.append(f"{place}: there is no tests/{path}")
            titles = re.findall(r"\"([^\"]+)\"", titles)
            if titles and folder not in known:
                known[folder] = cases(folder)
            wrong += [f'{place}: {path} has no "{title}"' for title in titles if (name, title) not in known[folder]]
            if row and titles:
                held.add(int(row[1]))
    wrong += [f"row {row}: no test" for row in ROWS if row not in held]
    print("\n".join(wrong) if wrong else f"{len(ROWS)} rows, each held by a test that is there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
