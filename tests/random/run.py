#!/usr/bin/env python3
"""Runs random programs with the shim over the simulated GPU and without it, and compares.

    run.py run --seeds 1-1000             each in one setting, chosen by its number
    run.py run --minutes 60 --log FILE    as many as there is time for; FILE keeps what was run
    run.py check                          the programs of seeds/, in the settings that their first lines name
    run.py shrink --seed 17 --setting S   the shortest program found that still fails

A setting is `safety-times-host-drains`: args-2-map-free is LMS_SAFETY=args, twice what the GPU holds, host memory
mapped, unmaps that do not wait; with `-parts` behind it half of the buffers are parts of a block, with `-yields` threads make way for others where locks are taken and let go
(yields.c), with `-guards` LMS_CHECK is set and may find nothing. `none` is the driver alone. Python's standard library only.
"""

import argparse
import concurrent.futures
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(ROOT, "build")))
PROGRAM = os.path.join(BUILD, "random", "program")
SEEDS = os.path.join(ROOT, "tests", "random", "seeds")
# What the buffers of an average program come to, and what the simulated driver takes beside them.
FOOTPRINT = 512 << 10
OVERHEAD = 192 << 10
LEAST = 1 << 20  # of what the simulated driver can be given; its context takes what is too much

SAFETY = ("opaque", "args", "strict")
TIMES = ("1.2", "2", "4", "8")
HOST = ("map", "unmap")
DRAINS = ("free", "drain")
# Taken in turn, by the seed: reckless answers anything.
POLICIES = ("lru", "next-use", os.path.join(BUILD, "random", "reckless.so"))
SETTINGS = ["-".join(parts) for parts in itertools.product(SAFETY, TIMES, HOST, DRAINS)]
YIELDS = os.path.join(BUILD, "random", "yields.so")


def environment(setting, seed):
    """What a run of a setting finds in its environment, what its programs leave out, and what may be out of memory."""
    kept = {k: v for k, v in os.environ.items() if not re.match("LMS_|SIMCUDA_|LD_", k) or k == "SIMCUDA_CACHE"}
    env = dict(kept, LD_LIBRARY_PATH=os.path.join(BUILD, "sim"), SIMCUDA_GRANULARITY="4K", SIMCUDA_DEVICES="2", SIMCUDA_SEED=str(seed),
               SIMCUDA_MODULE_BYTES="4K", SIMCUDA_STREAM_BYTES="512",
               SIMCUDA_GRAPH_BYTES="512", SIMCUDA_QUEUE=str(1024 if seed % 4 else 48), SIMCUDA_DELAY_US=str((0, 5, 50)[seed % 3]), SIMCUDA_KERNEL_US=str((0, 0, 0, 0, 60)[seed % 5]))
    # A full queue lets nothing come that work in it may wait for.
    behind = [] if seed % 4 else ["--no-behind"]
    if setting == "none":
        return dict(env, SIMCUDA_MEMORY="64M"), behind, []
    safety, times, host, drains, *more = setting.split("-")
    memory = int(FOOTPRINT / float(times)) + OVERHEAD
    shim = os.path.join(BUILD, "liblmsshim.so")
    yields, guards, parts = ("yields" in more, "guards" in more, "parts" in more)
    if yields:  # kernels that run while threads sleep
        env.update(SIMCUDA_KERNEL_US=str((0, 100, 400)[seed // 3 % 3]), YIELDS_SEED=str(seed))
    env.update(LD_PRELOAD=f"{YIELDS}:{shim}" if yields else shim, LMS_DRIVER=os.path.join(BUILD, "sim", "libcuda.so.1"),
               LMS_THRESHOLD="8K", LMS_HOST_LIMIT="64M", LMS_LOG="off", LMS_SAFETY=safety,
               LMS_POLICY=POLICIES[seed // 2 % 3], LMS_RETAIN=str(seed // 3 % 2),
               SIMCUDA_MEMORY=str(LEAST), LMS_RESERVE="16K", SIMCUDA_CONTEXT_BYTES=str(LEAST - memory), SIMCUDA_HOST_VMM="1" if host == "map" else "0",
               SIMCUDA_UNMAP_DRAINS="1" if drains == "drain" else "0")
    if guards:  # by which host memory is not mapped
        env.update(LMS_CHECK="1", LMS_LOG="warn")
        host = "unmap"
    # What nobody can see is promised to work only where it is waited for and stays reachable.
    hidden = safety != "args" and host == "map"
    if hidden:  # a driver with functions that the shim does not know
        env.update(LMS_DRIVER=os.path.join(BUILD, "random", "libcuda.so.1"), ENTRY_SIMULATED=os.path.join(BUILD, "sim", "libcuda.so.1"))
    # Where host memory cannot be mapped, what one launch names has to fit (docs/compatibility.md). There, and where unmapping
    # waits for all work, what stands behind later work may stand for ever.
    options = [] if hidden else ["--no-hidden"]
    options += [] if hidden or safety == "opaque" else ["--no-sections"]
    # In strict such work holds up every move, and a graph that copies cannot be made before its operands have moved.
    options += behind if (safety, host, drains) in (("opaque", "map", "free"), ("args", "map", "free")) else ["--no-behind"]
    # A block that does not fit is used as far as host memory is mapped.
    options += ["--parts"] if parts and host == "map" else []
    return env, options, ["--room", str((memory - OVERHEAD) * 6 // 10)] if host == "unmap" else []


class Result:
    """What one process said: the line of each program, and how it ended."""

    def __init__(self, lines, trouble, operations, longest=(0, "none")):
        self.lines = lines  # name: digest of what the driver answered
        self.trouble = trouble  # (name, what) of the program that went wrong, or None
        self.operations = operations
        self.longest = longest  # (microseconds, name) of a call


def execute(setting, seed, arguments, seconds, program=None):
    """Without the shim the programs leave out what those of the setting `program` do: later waits hang on it."""
    env, options, room = environment(setting, seed)
    if program:
        options = environment(program, seed)[1]
    process = subprocess.Popen([PROGRAM] + arguments + options + room, env=env, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"stopped after {seconds} s"
    lines, operations, last = {}, 0, None
    longest = re.search(r"^  longest (\d+) (\S+)$", out, re.MULTILINE)
    longest = (int(longest[1]), longest[2]) if longest else (0, "none")
    for line in out.splitlines():
        found = re.match(r"(\S+) ([0-9a-f]{16}) (\d+)$", line)
        if found:
            lines[found[1]] = found[2]
            operations += int(found[3])
        elif not line.startswith("  "):
            last = line
    changed = re.search(r"^lms: check: .*(?:changed|read-only|failed).*$", err, re.MULTILINE)
    if process.returncode == 0:
        return Result(lines, ("?", changed[0]) if changed else None, operations, longest)
    name, _, what = (last or "? ").partition(" ")
    what = out[out.rfind(last or ""):].partition(" ")[2].strip() if last else ""
    if process.returncode not in (1, 3):
        what += f" ended with status {process.returncode}: {err.strip()[-500:]}"
    return Result(lines, (name, what), operations, longest)


def runs_of(settings, seed):
    """Pairs for execute(): first without the shim, then all settings whose programs leave out the same."""
    alike = {}
    for setting in settings:
        if setting != "none":
            alike.setdefault(tuple(environment(setting, seed)[1]), []).append(setting)
    for group in alike.values():
        yield "none", group[0]
        yield from ((setting, None) for setting in group)
    if not alike:
        yield "none", None


def run_block(block):
    """One block of seeds without the shim and with it. Returns (operations with the shim, failures, longest calls)."""
    first, last, settings, count, hang, more = block
    failures, operations, answers, longest = [], 0, {}, {}
    for setting, program in runs_of(settings, first):
        at = first
        if setting == "none":
            answers = {}
        while at <= last:
            arguments = ["--seeds", f"{at}-{last}", "--ops", str(count), "--hang", str(hang)] + more
            result = execute(setting, at, arguments, 600, program)
            if setting != "none":
                operations += result.operations
            mode = "without" if setting == "none" else "with"
            longest[mode] = max(longest.get(mode, (0, "none", "")), (*result.longest, f"seeds {at}-{last} in {setting}"))
            for name, answer in result.lines.items():
                if setting == "none":
                    answers[name] = answer
                elif name in answers and answers[name] != answer:
                    failures.append((setting, int(name), at, "other answers than without the shim"))
            if result.trouble is None:
                break
            name, what = result.trouble
            failures.append((setting, int(name) if name.isdigit() else at, at, what))
            at = int(name) + 1 if name.isdigit() else last + 1
    if "with" in longest:
        microseconds, name, where = longest["with"]
        longest["more with"] = (microseconds - longest["without"][0], name, where)
    return operations, failures, longest


def tell(failure, count):
    setting, seed, first, what = failure
    print(f"FAILS seed {seed} (from {first}) in {setting}, {count} operations: {what}", flush=True)


def without(options):
    return ["--without", options.without] if options.without else []


def in_the_ways(options, setting):
    """The setting, with --yields, --guards and --parts behind it where they are asked for."""
    return "-".join([setting, *(way for way in ("yields", "guards", "parts") if getattr(options, way))])


def blocks(options):
    first, last = map(int, options.seeds.split("-"))
    size = options.block
    settings = options.setting.split(",") if options.setting else SETTINGS
    settings = [in_the_ways(options, setting) for setting in settings]
    for index, at in enumerate(range(first, last + 1, size)):
        chosen = [settings[(index * options.each + i) % len(settings)] for i in range(min(options.each, len(settings)))]
        yield at, min(at + size - 1, last), chosen, options.ops, options.hang, without(options)


def command_run(options):
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else None
    operations, failed, last, begun, longest = 0, [], 0, time.monotonic(), {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = set()
        todo = blocks(options)
        while True:
            while len(waiting) < options.jobs and not (deadline and time.monotonic() > deadline):
                block = next(todo, None)
                if block is None:
                    break
                last = max(last, block[1])
                waiting.add(pool.submit(run_block, block))
            if not waiting:
                break
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for one in done:
                count, failures, calls = one.result()
                longest = {mode: max(calls[mode], longest.get(mode, calls[mode])) for mode in calls}
                operations += count
                failed += failures
                for failure in failures:
                    tell(failure, options.ops)
    seconds = time.monotonic() - begun
    summary = (f"seeds {options.seeds.split('-')[0]}-{last}, {options.ops} operations each: {operations} operations "
               f"with the shim in {seconds:.0f} s, {len(failed)} failures")
    for mode, (microseconds, name, where) in sorted(longest.items()):
        summary += f"\nlongest call {mode} the shim: {microseconds / 1000:.1f} ms, {name}, {where}"
    print(summary)
    if options.log:
        with open(options.log, "a", encoding="utf-8") as log:
            log.write(summary + "\n")
    return 1 if failed else 0


def program_lines(arguments):
    text = subprocess.run([PROGRAM, "--print"] + arguments, capture_output=True, text=True, check=True).stdout
    return text.splitlines()


class Shrinker:
    """Deletes operations as long as what is left still fails in one of `tries` runs."""

    def __init__(self, setting, options):
        self.setting, self.tries, self.hang = setting, options.tries, options.hang
        self.jobs = options.jobs
        self.sim_seed = options.sim_seed
        self.wanted = options.match
        self.runs = 0
        self.folder = tempfile.mkdtemp(prefix="random-")

    def once(self, lines, seed):
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".txt", delete=False) as file:
            file.write("\n".join(lines) + "\n")
        path = file.name
        arguments = ["--file", path, "--hang", str(self.hang)]
        result = execute(self.setting, seed, arguments, self.hang + 30)
        if result.trouble is None and self.setting != "none":
            alone = execute("none", seed, arguments, self.hang + 30, self.setting)
            if alone.trouble is None and alone.lines != result.lines:
                return "other answers than without the shim"
        os.unlink(path)
        return result.trouble and result.trouble[1]

    def fails(self, lines):
        """What goes wrong, or None."""
        self.runs += 1
        seeds = [self.sim_seed] * 2 + list(range(1, self.tries - 1)) if self.sim_seed else range(1, self.tries + 1)
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for what in pool.map(lambda seed: self.once(lines, seed), seeds):
                if what and re.search(self.wanted, what):
                    pool.shutdown(cancel_futures=True)
                    return what
        return None

    def shrink(self, lines):
        size = max(1, len(lines) // 2)
        while size >= 1:
            at, shrunk = 0, False
            while at < len(lines):
                fewer = lines[:at] + lines[at + size:]
                if fewer and self.fails(fewer):
                    lines, shrunk = fewer, True
                else:
                    at += size
            print(f"{len(lines)} operations, by {size}", file=sys.stderr, flush=True)
            if size == 1 and not shrunk:
                break
            size = max(1, size // 2) if not shrunk or size > 1 else 1
        return self.simplify(lines)

    def simplify(self, lines):
        """Smaller numbers where they do as well."""
        for at in range(len(lines)):
            words = lines[at].split()
            for i in [0] + list(range(2, len(words))):
                for value in ("0", "1", "49151"):
                    if words[i] == value or (words[i].isdigit() and int(words[i]) < int(value)):
                        continue
                    tried = lines[:at] + [" ".join(words[:i] + [value] + words[i + 1:])] + lines[at + 1:]
                    if self.fails(tried):
                        lines, words = tried, tried[at].split()
                        break
        return lines


def command_shrink(options):
    arguments = ["--file", options.file] if options.file else ["--seeds", f"{options.seed}-{options.seed}", "--ops",
                                                               str(options.ops)] + without(options)
    lines = program_lines(arguments)
    setting = in_the_ways(options, options.setting)
    shrinker = Shrinker(setting, options)
    what = shrinker.fails(lines)
    if not what:
        print("does not fail", file=sys.stderr)
        return 1
    print(what, file=sys.stderr, flush=True)
    lines = shrinker.shrink(lines)
    print(f"# {setting}: {(shrinker.fails(lines) or what).splitlines()[0]}")
    print("\n".join(lines))
    return 0


def command_check(options):
    """The programs of seeds/: each in the settings of its first line (`# settings: ...`), several times."""
    failed = 0
    for name in sorted(os.listdir(SEEDS)):
        path = os.path.join(SEEDS, name)
        with open(path, encoding="utf-8") as file:
            found = re.search(r"^# settings: (.*)$", file.read(), re.MULTILINE)
        for setting in (found[1].split() if found else ["opaque-2-map-free"]):
            for seed in range(1, options.tries + 1):
                arguments = ["--file", path, "--hang", str(options.hang)]
                alone = execute("none", seed, arguments, 60, setting)
                result = execute(setting, seed, arguments, 60)
                what = (alone.trouble or result.trouble or ("", ""))[1]
                if not what and alone.lines != result.lines:
                    what = "other answers than without the shim"
                if what:
                    failed += 1
                    print(f"FAILS {name} in {setting}: {what}", flush=True)
                    break
    print(f"{failed} of the kept programs fail")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "shrink", "check"))
    parser.add_argument("--seeds", default="1-1000000000")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--file")
    parser.add_argument("--ops", type=int, default=200)
    parser.add_argument("--setting", help="one, or several with commas; all in turn if not given")
    parser.add_argument("--yields", action="store_true", help="threads make way for others at places that the seed chooses")
    parser.add_argument("--guards", action="store_true", help="with LMS_CHECK, which may find nothing")
    parser.add_argument("--parts", action="store_true", help="half of the buffers are parts of a block of the program's")
    parser.add_argument("--each", type=int, default=3, help="settings that each block of seeds is run in")
    parser.add_argument("--block", type=int, default=40, help="programs that one process runs")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--jobs", type=int, default=4 * os.cpu_count(),
                        help="processes at once; they sleep for half of their time")
    parser.add_argument("--tries", type=int, default=6)
    parser.add_argument("--hang", type=int, default=20, help="seconds without progress that count as hanging")
    parser.add_argument("--sim-seed", type=int, help="the SIMCUDA_SEED that failed: the first seed of the block")
    parser.add_argument("--match", default="", help="only failures that this expression finds count")
    parser.add_argument("--log")
    parser.add_argument("--without", help="kinds of operations to leave out, with commas")
    options = parser.parse_args()
    return {"run": command_run, "shrink": command_shrink, "check": command_check}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
