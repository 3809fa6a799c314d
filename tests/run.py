#!/usr/bin/env python3
"""Runs every test: the doctest program of each folder with *_test.cpp, and the scripts tests/*/*.sh, each of which is one
test that passes by ending with 0.

As many run side by side as there are cores (JOBS=N: that many), those that took longest last time first; the cases of a
large folder in slices. A script that ends with 77 could not be run here: its last line says why, and it counts as neither.
What a failed one printed comes whole, when it ends, and stays in BUILD/test-failures.txt until the next run. Then come the
time of each folder, the ten longest cases, and the sum.
Ends with 0 if there were tests and none failed. Expects everything built; BUILD is where.

usage: run.py [FOLDER ...]     of these folders alone, if any
"""
import concurrent.futures
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

# Far above what any takes, in seconds; only a program that hangs meets it.
LONGEST = 1800
# Cases of one program that run one after another.
SLICE = 40
# Programs that look at all of their cases together: which instructions they ran.
WHOLE = {"ptx"}
SUMMARY = re.compile(r"^\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed", re.M)
COUNT = re.compile(r"^\[doctest\] unskipped test cases passing the current filters: (\d+)$", re.M)
CASE_TIME = re.compile(r"^(\d+\.\d+) s: (.*)$", re.M)
# What doctest says of a case that passed, for its time.
PASSED = re.compile(r"^=+\n\S+:\d+:\nTEST CASE:  .*\n\n\d+\.\d+ s: .*\n", re.M)


live = set()  # processes that run


@dataclasses.dataclass
class Test:
    name: str  # its folder or script, as the report has it
    command: list
    is_script: bool = False
    cases: int = 0  # of a slice, which doctest does not say

    @property
    def key(self):
        return " ".join(self.command)


@dataclasses.dataclass
class Outcome:
    passed: int
    failed: int
    seconds: float
    text: str
    status: int


def environment():
    """The caller's, but for what a test says itself of its programs' surroundings."""
    own = re.compile(r"(LMS_|SIMCUDA_)\w*|LD_PRELOAD|LD_LIBRARY_PATH")
    kept = {name: value for name, value in os.environ.items() if not own.fullmatch(name)}
    kept.setdefault("BUILD", "build")
    return kept


def ended(command, variables):
    """The exit status of `command`, negative for a signal, and what it printed."""
    try:
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        return 127, f"{command[0]}: {error.strerror}\n"
    live.add(process)
    try:
        text, _ = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        text += f"\n{' '.join(command)}: stopped after {LONGEST} s\n".encode()
    live.discard(process)
    return process.returncode, text.decode(errors="replace")


def tests_of(folder, variables):
    """The slices of a folder's program, and its scripts."""
    found = []
    if any(folder.glob("*_test.cpp")):
        program = os.path.join(variables["BUILD"], "tests", folder.name)
        counted = COUNT.search(ended([program, "--count", "--no-colors=1"], variables)[1])
        count = int(counted[1]) if counted else 0
        command = [program, "--no-colors=1", "--duration=1"]
        whole = count <= SLICE or folder.name in WHOLE
        if whole:
            found = [Test(folder.name, command)]
        for first in () if whole else range(1, count + 1, SLICE):
            last = min(first + SLICE - 1, count)
            found.append(Test(folder.name, [*command, f"--first={first}", f"--last={last}"], cases=last - first + 1))
    return found + [Test(str(script), ["sh", str(script)], True) for script in sorted(folder.glob("*.sh"))]


def run(test, variables):
    begin = time.monotonic()
    status, text = ended(test.command, variables)
    seconds = time.monotonic() - begin
    if test.is_script:
        return Outcome(int(status == 0), int(status not in (0, 77)), seconds, text, status)
    summary = SUMMARY.findall(text)
    passed, failed = map(int, summary[-1]) if summary else (0, 0)
    if summary and test.cases:
        passed = test.cases - failed
    # A program that reports no case, or ends badly though all its cases passed, is a failed test by itself.
    if failed == 0 and (status != 0 or passed == 0):
        failed = 1
    return Outcome(passed, failed, seconds, text, status)


def stop(*_):
    for process in live:
        os.killpg(process.pid, signal.SIGKILL)
    os._exit(130)


def main():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    os.chdir(Path(__file__).resolve().parent.parent)
    variables = environment()
    times = Path(variables["BUILD"], "test-times.json")
    try:
        last = json.loads(times.read_text())
    except (OSError, ValueError):
        last = {}
    chosen = [Path("tests", name) for name in sys.argv[1:]] or sorted(Path("tests").iterdir())
    tests = [test for folder in chosen if folder.is_dir() for test in tests_of(folder, variables)]
    # A test that has never run may take long.
    tests.sort(key=lambda test: -last.get(test.key, LONGEST))

    folders, cases, failures = {}, [], []
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count())) as pool:
        running = {pool.submit(run, test, variables): test for test in tests}
        for future in concurrent.futures.as_completed(running):
            test, outcome = running[future], future.result()
            if test.is_script and outcome.status == 77:
                print(f"{test.name}: not run: {(outcome.text.splitlines() or [''])[-1]}", flush=True)
            if outcome.failed:
                failures.append(f"{PASSED.sub('', outcome.text)}\n{test.key}: {outcome.passed} passed, {outcome.failed} failed "
                                f"(status {outcome.status})")
                print(failures[-1], flush=True)
            last[test.key] = round(outcome.seconds, 2)
            folder = folders.setdefault(test.name, [0, 0, 0.0])
            for i, value in enumerate((outcome.passed, outcome.failed, outcome.seconds)):
                folder[i] += value
            cases += [(float(seconds), test.name, title) for seconds, title in CASE_TIME.findall(outcome.text)]
    times.parent.mkdir(exist_ok=True)
    times.write_text(json.dumps(last, indent=0))
    Path(variables["BUILD"], "test-failures.txt").write_text("\n".join(failures))

    for name, (passed, failed, seconds) in sorted(folders.items(), key=lambda folder: -folder[1][2]):
        print(f"{seconds:7.1f} s  {name}: {passed} passed, {failed} failed")
    for seconds, name, title in sorted(cases, reverse=True)[:10]:
        print(f"{seconds:7.1f} s  {name}: {title}")
    passed, failed = (sum(folder[i] for folder in folders.values()) for i in (0, 1))
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
