#!/usr/bin/env python3
"""Makes faults that nobody chose, one at a time, and says which the tests notice.

    fresh.py [--seed 1] [--count 100] [--json FILE]        needs a built tree, and pip

What may be changed and how is universalmutator's (PyPI): operators, conditions, constants, statements left out. Of what that
gives for the sources of FOLDERS, drawn by the seed, those that do not compile or compile to the same code are passed over.
The tests of a stage of STAGES run at once; the first that fails has noticed. What is left has to be read: it may change
nothing that anybody could see.
"""

import argparse
import contextlib
import glob
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import time

import mutants

FOLDERS = ("shim/program", "shim/engine", "shim/executor", "shim/access", "shim/session", "policy")
# What runs in seconds first; of whole programs what `make test` runs too.
STAGES = (
    {name: [f"build/tests/{name}"] for name in ("unit", "contract", "engine", "entry")},
    {"e2e": ["build/tests/e2e"], "random": ["sh", "tests/random/check.sh"]},
)
RULES = ("universal.rules", "c_like.rules", "cpp.rules")
# What tells and what is only shown: a fault there loses nothing.
PASSED_OVER = (r"log::", r"^\s*//", r"^#", r"^\s*(static_)?assert\(", r"trace::", r"telemetry")


def possible():
    """(file, line's number, what becomes of it), all there are."""
    tool = os.path.join(mutants.BUILD, "universalmutator")
    if not os.path.isdir(tool):
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", tool, "universalmutator==1.14.1"], check=True)
    sys.path.insert(0, tool)
    from universalmutator import mutator  # pylint: disable=import-outside-toplevel,import-error
    for folder in FOLDERS:
        for path in sorted(glob.glob(os.path.join(mutants.ROOT, folder, "*.cpp"))):
            file = os.path.relpath(path, mutants.ROOT)
            lines = mutants.source(file).splitlines(keepends=True)
            with contextlib.redirect_stdout(io.StringIO()):
                found = mutator.mutants_regexp(lines, ruleFiles=list(RULES), ignorePatterns=list(PASSED_OVER), ignoreStringOnly=True)
            yield from ((file, each[0], each[1]) for each in found)


def code_of(path):
    """What was compiled, without what it says of its lines."""
    stripped = path + ".stripped"
    subprocess.run(["objcopy", "--strip-debug", path, stripped], check=True)
    with open(stripped, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def make(*targets):
    return subprocess.run(["make", "-j2", *targets], cwd=mutants.COPY, capture_output=True, check=False).returncode == 0


def noticed_by(tests, seconds):
    """The one of these that fails, or does not end; None where all pass."""
    running = {name: subprocess.Popen(command, cwd=mutants.COPY, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, start_new_session=True) for name, command in tests.items()}
    deadline, found = time.monotonic() + seconds, None
    while running and found is None:
        time.sleep(0.2)
        for name, process in list(running.items()):
            status = process.poll()
            if status is not None:
                del running[name]
                found = name if status != 0 and found is None else found
        if time.monotonic() > deadline and running and found is None:
            found = f"{next(iter(running))} (does not end)"
    for process in running.values():
        os.killpg(process.pid, 9)
        process.wait()
    return found


def try_one(file, number, line, seconds):
    """None if it is no fault; else what noticed it, or "nobody"."""
    path = os.path.join(mutants.COPY, file)
    target = os.path.join("build", "obj", os.path.splitext(file)[0] + ".o")
    built = os.path.join(mutants.COPY, target)
    lines = mutants.source(file).splitlines(keepends=True)
    before = code_of(built)
    with open(path, "w", encoding="utf-8") as out:
        out.write("".join(lines[:number - 1] + [line] + lines[number:]))
    try:
        if not make(target) or code_of(built) == before:
            return None
        if not make("build/liblmsshim.so", *(command[0] for tests in STAGES for command in tests.values() if len(command) == 1)):
            return None
        return next(filter(None, (noticed_by(tests, seconds) for tests in STAGES)), "nobody")
    finally:
        with open(path, "w", encoding="utf-8") as out:
            out.write("".join(lines))
        make(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=int, default=900, help="that the tests of one stage may take")
    options = parser.parse_args()
    os.makedirs(os.path.join(mutants.COPY, "build"), exist_ok=True)
    mutants.copy_tree()
    drawn = list(possible())
    random.Random(options.seed).shuffle(drawn)
    results = []
    for file, number, line in drawn:
        if len(results) == options.count:
            break
        by = try_one(file, number, line, options.seconds)
        if by is None:
            continue
        results.append({"file": file, "line": number, "becomes": line.strip(), "noticed by": by})
        print(f"{by}: {file}:{number}: {mutants.source(file).splitlines()[number - 1].strip()}  ->  {line.strip()}", flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as out:
                json.dump(results, out, indent=2)
    unseen = sum(each["noticed by"] == "nobody" for each in results)
    print(f"{len(results) - unseen} of {len(results)} noticed (seed {options.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
