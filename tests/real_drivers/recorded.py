"""Holds the simulated driver, and the shim over it, to what NVIDIA's drivers were seen to answer (recorded.txt)."""
import os
import pathlib
import re
import subprocess
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "recorded.txt"
NAMED = re.compile(r"(?:lookup|export \w+|call(?: [a-z]+)+) (\w+)")


def text(said_by):
    """The lines of all drivers, each with the versions of CUDA whose drivers said it, "all" being all of these. What is
    said alike of several names stands there once, with a star for the name and the names behind it."""
    versions = {driver: next(line.split()[1] for line in lines if line.startswith("version "))
                for driver, lines in said_by.items()}
    who = {}
    for driver, lines in said_by.items():
        for line in lines:
            who.setdefault(line, []).append(versions[driver])
    alike = {}
    for line, by in who.items():
        name = NAMED.match(line)
        start = f"{'all' if len(by) == len(versions) else ','.join(by)}: "
        if name:
            alike.setdefault(start + line.replace(name[1], "*"), []).append(name[1])
        else:
            alike.setdefault(start + line, [])
    lines = [f"driver {driver} {versions[driver]}" for driver in sorted(said_by)]
    for line, names in sorted(alike.items()):
        lines += [line] + textwrap.wrap(" ".join(sorted(names)), 118, initial_indent="  ", subsequent_indent="  ")
    return lines


def write(said_by):
    FILE.write_text("".join(f"{line}\n" for line in text(said_by)))


def read():
    """By version of CUDA, what its driver answered."""
    answers, line, by = {}, "", []
    for written in FILE.read_text().splitlines():
        if written.startswith("driver "):
            answers[written.split()[2]] = []
            continue
        if not written.startswith("  "):
            who, line = written.split(": ", 1)
            by = list(answers) if who == "all" else who.split(",")
        lines = [line.replace("*", name) for name in written.split()] if written.startswith("  ") else \
            [] if "*" in line else [line]
        for version in by:
            answers[version] += lines
    return answers


def simulated(version, build, more, sections, preload):
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{build}/sim", "SIMCUDA_DEVICES": "0",
                   "SIMCUDA_CUDA": version, **({"LD_PRELOAD": f"{build}/liblmsshim.so"} if preload else {})}
    command = [sys.executable, "-B", str(HERE / "answers.py"), *sections, "--names", ",".join(more)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    # It says so where it is asked for the tables that only NVIDIA's runtime knows, as here.
    said = [line for line in done.stderr.splitlines() if not line.startswith("simcuda: NVIDIA's runtime, or a library")]
    return done.stdout.splitlines() + [f"stderr {line}" for line in said]


def beginning(start, lines):
    return [line for line in lines if line.startswith(start)]


def differences(real, sim):
    """What it says otherwise. Versions and lookups are the same; so are the errors that the driver knows."""
    for start in ("version ", "lookup ", "error other", "stderr "):
        there, here = set(beginning(start, real)), set(beginning(start, sim))
        yield from (f"not in the simulated driver: {line}" for line in sorted(there - here))
        yield from (f"only in the simulated driver: {line}" for line in sorted(here - there))
    known = set(sim)
    yield from (f"not in the simulated driver: {line}" for line in real
                if re.match(r"error \d", line) and line not in known)


def differing_calls(real, sim):
    """Before cuInit a call is refused where the driver does so, and as one that came too early where it says that."""
    here = dict(line.split(": ") for line in beginning("call before ", sim))
    for line in beginning("call before ", real):
        if line.startswith("call before given ") and not line.startswith("call before given memory "):
            continue  # asked of NVIDIA's drivers alone: each call takes a process of its own
        call, answer = line.split(": ")
        simulated_answer = here.get(call, "not there")
        refused = re.fullmatch(r"[1-9]\d*", simulated_answer)
        if answer == "3" and simulated_answer != "3" or answer != "0" and not refused:
            yield f"{call}: {answer}, of the simulated driver {simulated_answer}"


def main():
    build = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
    found = []
    drivers = read()
    for version, real in drivers.items():
        newest = version == max(drivers)
        sections = ["version", "lookups", "errors"] + (["before", "memory"] if newest else [])
        more = [line.split()[2] for line in beginning("export more ", real)]
        alone, shimmed = (simulated(version, build, more, sections, preload) for preload in (False, True))
        found += [f"CUDA {version}: {line}" for line in differences(real, alone)]
        found += [f"CUDA {version}: {line}" for line in differing_calls(real, alone) if newest]
        found += [f"CUDA {version}, the shim over it: {line}" for line in shimmed if line not in alone]
        found += [f"CUDA {version}, without the shim: {line}" for line in alone if line not in shimmed]
    print("".join(f"{line}\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
