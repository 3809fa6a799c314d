#!/usr/bin/env python3
"""Makes driver calls fail under random programs (tests/random) with the shim: each function, at each position, with each
error of errors.tsv, once in a run; and pairs of them. malloc is that of the shim itself.

    sweep.py run                          every position up to --bound, every error
    sweep.py run --part 7/50              every 50th of those, from the 7th
    sweep.py run --pairs 1000             two failures in each run, chosen by --seed
    sweep.py run --lasting 40             the 40 calls from a position on fail, not one
    sweep.py one --setting S --seed 3 --fail cuMemMap:5=304
    sweep.py check                        the failures in kept.txt, which were not survived once, and a part of all
    sweep.py errors cuda.h                writes errors.tsv

README.md says what is checked. Python's standard library only.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "random"))
import run as programs  # noqa: E402

SETTINGS = ("opaque-2-map-free", "opaque-2-unmap-free", "strict-4-map-free", "args-1.2-map-drain",
            "opaque-2-map-free-own", "opaque-2-unmap-free-own")
# Behind one of these: with memory that the program maps itself too.
OWN = "-own"
STICKY = {700: "CUDA_ERROR_ILLEGAL_ADDRESS", 702: "CUDA_ERROR_LAUNCH_TIMEOUT", 719: "CUDA_ERROR_LAUNCH_FAILED"}
OUT_OF_MEMORY = 2
NOT_PERMITTED = 800
# For long the answer to a query, it is taken at its word: there is no such stream or fence, or none any more.
GONE = (201, 400, 709)
# What is not given back where one of these fails: one object, for nobody can give it back.
TAKES_AWAY = ("cuMemUnmap", "cuMemRelease", "cuMemAddressFree", "cuMemFreeHost")
# Without these there is no session; the driver then serves the program, and may run out of memory.
OPENS = ("cuMemAddressReserve", "cuMemGetAllocationGranularity", "cuStreamCreate", "cuDeviceGetAttribute",
         "cuDevicePrimaryCtxGetState", "cuMemGetInfo", "cuCtxGetDevice", "cuCtxGetCurrent", "cuCtxPushCurrent")


# What may fail for long: functions that take something, and queries of work.
TAKE = re.compile(r"malloc|cu(Mem|EventCreate|EventRecord|EventQuery|StreamQuery|StreamCreate|StreamWaitEvent|StreamSync|CtxSync|Launch|Graph|Module|Func)")
# Of a function the calls from the nth on answer the error, so many times.
Fault = collections.namedtuple("Fault", "symbol nth error times")


# Not the driver's: host memory that the shim asks for.
MALLOC = "malloc"
NO_MEMORY = os.path.join(programs.BUILD, "faults", "no_memory.so")


def base(symbol):
    return re.sub(r"(_v\d+)?(_pt[ds][sz])?$", "", symbol)


def read_errors():
    table = {}
    with open(os.path.join(HERE, "errors.tsv"), encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                name, codes = line.rstrip("\n").split("\t")
                table[name] = [int(code) for code in codes.split()]
    return table


ERRORS = {**read_errors(), MALLOC: [OUT_OF_MEMORY]} if os.path.exists(os.path.join(HERE, "errors.tsv")) else {}


def command_errors(options):
    """From the comments of cuda.h: what each function says that it answers."""
    with open(options.header, encoding="utf-8", errors="replace") as file:
        text = file.read()
    values = dict(re.findall(r"^    (CUDA_ERROR_\w+)\s*= (\d+)", text, re.MULTILINE))
    # Not of a call, but of a process that has not begun or is at its end; and no error.
    never = {"CUDA_ERROR_NOT_INITIALIZED", "CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_NOT_READY"}
    found = {}
    for comment, name in re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*(?:#if[^\n]*\n)?\s*CUresult CUDAAPI (\w+)\(", text, re.DOTALL):
        returns = comment.partition("\\return")[2].partition("\\sa")[0]
        codes = {int(values[code]) for code in set(re.findall(r"CUDA_ERROR_\w+", returns)) - never if code in values}
        # No failure, but the answer that there are no more parameters, or that it is pageable memory.
        if name in ("cuFuncGetParamInfo", "cuKernelGetParamInfo", "cuPointerGetAttribute"):
            codes.discard(1)
        if "\\notefnerr" in comment:
            codes |= {700, 719}
        found[base(name)] = found.get(base(name), set()) | codes
    print("# The errors that cuda.h documents for each function, but NOT_INITIALIZED, DEINITIALIZED and NOT_READY; 700 and 719")
    print("# (which stay with the context) where a call may answer for work before it. Written by `sweep.py errors`.")
    for name in sorted(found):
        if found[name]:
            print(f"{name}\t{' '.join(map(str, sorted(found[name])))}")
    return 0


class Outcome:
    def __init__(self, what, calls, answers):
        self.what = what  # went wrong, or None
        self.calls = calls  # by symbol
        self.answers = answers  # a digest


def wrong_again(line, faults):
    """Calls of the program that failed before they succeeded: no more than were made to, with errors of theirs."""
    entries = line.split()[1:]
    if len(entries) > sum(fault.times for fault in faults):
        return f"{len(entries)} calls failed:{line[5:]}"
    for entry in entries:
        name, _, code = entry.partition("=")
        made = {fault.error for fault in faults if base(fault.symbol) == base(name)}
        made |= {NOT_PERMITTED} & {fault.error for fault in faults}  # where that is asked, the program is told
        of_a_stream = {400} if re.search("Async|Stream|Event|Launch", name) else set()
        if int(code) not in set(ERRORS.get(base(name), [])) | made | of_a_stream | {OUT_OF_MEMORY}:
            return f"{name} answers {code}, which it does not document"
    return None


def left(report, faults):
    """What was not given back."""
    # A context that fails takes with it what was tried or copied out just then.
    may_lose = sum(((base(fault.symbol) in TAKES_AWAY) + 2 * (fault.error in STICKY)) * fault.times for fault in faults)
    vmm = report["vmm"]
    if vmm["handles"] > may_lose or vmm["mappings"] > 2 * may_lose:
        return f"{vmm['handles']} handles and {vmm['mappings']} mappings are left"
    used = [device["used"] for device in report["devices"]] + [report["host"]["used"]]
    if any(used) and not may_lose:
        return f"{used} bytes are left"
    return None


def judge(process, faults, report):
    lines = process.stdout.splitlines()
    sticky = [STICKY[fault.error] for fault in faults if fault.error in STICKY]
    if process.returncode < 0 or not lines or not lines[-1].startswith("again"):
        return f"ended with status {process.returncode}: {(process.stdout + process.stderr).strip()[-400:]}"
    for line in lines[:-1]:
        if " fails: " in line and not any(name in line for name in sticky):
            if any(base(fault.symbol) in OPENS for fault in faults) and line.endswith("CUDA_ERROR_OUT_OF_MEMORY"):
                return None
            return " ".join(lines)[-600:]
    if process.returncode != 0:
        return " ".join(lines)[-600:]
    broken = [one for one in report["violations"] if "cuMem" in one and "not made of whole" in one]
    wrong = None if sticky else wrong_again(lines[-1], faults) or (broken and broken[0])
    return wrong or left(report, faults)


def execute(setting, seed, count, faults, seconds=40):
    own = setting.endswith(OWN)
    env, left_out, room = programs.environment(setting.removesuffix(OWN), seed)
    # A failed call may cost the shim the mapping of host memory, or what a kernel's PTX says: sections need one of them, and
    # calls that the shim does not know need the first.
    options = left_out + room + ["--no-sections"]
    env["LMS_DRIVER"] = os.path.join(programs.BUILD, "sim", "libcuda.so.1")
    with tempfile.NamedTemporaryFile(prefix="faults-", suffix=".json") as file, tempfile.NamedTemporaryFile(prefix="faults-") as asked:
        env["SIMCUDA_REPORT"] = file.name
        env["SIMCUDA_FAIL"] = told(fault for fault in faults if fault.symbol != MALLOC)
        env["LD_PRELOAD"] = f"{NO_MEMORY}:{env['LD_PRELOAD']}"
        env["NO_MEMORY"] = ",".join(span(fault) for fault in faults if fault.symbol == MALLOC)
        env["NO_MEMORY_COUNT"] = asked.name
        command = [programs.PROGRAM, "--seeds", f"{seed}-{seed}", "--ops", str(count), "--hang", "15",
                   "--failures", str(max(1, sum(fault.times for fault in faults))), "--again"] + ["--own"] * own + options
        try:
            process = subprocess.run(command, env=env, text=True, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as error:
            return Outcome(f"stopped after {seconds} s: {(error.stdout or b'').decode()[-400:]}", {}, None)
        text = file.read()
        allocations = int(asked.read() or 0)
    report = json.loads(text) if text else {"calls": {}, "vmm": {"handles": 0, "mappings": 0}, "devices": [], "host": {"used": 0}, "violations": []}
    answers = re.findall(r"^\S+ ([0-9a-f]{16}) \d+$", process.stdout, re.MULTILINE)
    return Outcome(judge(process, faults, report), {**report["calls"], MALLOC: allocations}, answers[-1] if answers else None)


def positions(count, bound):
    """Each of the first, then ever fewer."""
    chosen, step, at = [], 1, 1
    while at <= count:
        chosen.append(at)
        if at >= bound:
            step += max(1, step // 4)
        at += step
    return chosen


def cases(setting, seed, options):
    """(setting, seed, operations, faults) of every failure there can be in one program."""
    plain = execute(setting, seed, options.ops, [])
    if plain.what:
        print(f"FAILS seed {seed} in {setting} by itself: {plain.what}", flush=True)
    for symbol in sorted(plain.calls):
        if options.only and not re.fullmatch(options.only, symbol) or options.lasting > 1 and not TAKE.match(symbol):
            continue
        for nth in positions(plain.calls[symbol], options.bound * (20 if symbol == MALLOC else 1)):
            codes = [code for code in ERRORS.get(base(symbol), []) if code not in STICKY]
            stay = [code for code in ERRORS.get(base(symbol), []) if code in STICKY]
            if options.lasting > 1 and symbol.endswith("Query"):
                codes = [code for code in codes if code not in GONE]
            codes += [stay[nth % len(stay)]] if stay and options.lasting == 1 else []
            for error in codes:
                yield setting, seed, options.ops, [Fault(symbol, nth, error, options.lasting)], plain.answers


def paired(every, count, seed):
    """Two of one program in one run, of which one at the most ends its contexts."""
    choose = random.Random(seed)
    groups = {}
    for case in every:
        groups.setdefault(case[:2], []).append(case)
    for _ in range(count):
        group = groups[choose.choice(sorted(groups))]
        first, second = choose.choice(group), choose.choice(group)
        while first[3][0].error in STICKY and second[3][0].error in STICKY:
            second = choose.choice(group)
        yield first[:3] + (first[3] + second[3], first[4])


def span(fault):
    return f"{fault.nth}-{fault.nth + fault.times - 1}" if fault.times > 1 else str(fault.nth)


def told(faults):
    return ",".join(f"{fault.symbol}:{span(fault)}={fault.error}" for fault in faults)


def run_case(case):
    setting, seed, count, faults, answers = case
    outcome = execute(setting, seed, count, faults)
    came_up = all(outcome.calls.get(fault.symbol, 0) >= fault.nth for fault in faults)
    what = outcome.what
    if not what and answers and outcome.answers and outcome.answers != answers and not any(f.error in STICKY for f in faults):
        what = "other answers than without failures"
    return case, what, came_up


def run_all(every, options):
    begun, failed, runs, fired = time.monotonic(), 0, 0, 0
    functions, errors = set(), set()
    deadline = begun + options.minutes * 60 if options.minutes else None
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting, todo = set(), iter(every)
        while True:
            while len(waiting) < 2 * options.jobs and not (deadline and time.monotonic() > deadline):
                case = next(todo, None)
                if case is None:
                    break
                waiting.add(pool.submit(run_case, case))
            if not waiting:
                break
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for one in done:
                (setting, seed, count, faults, _), what, came_up = one.result()
                runs, fired = runs + 1, fired + came_up
                if came_up:
                    functions |= {fault.symbol for fault in faults}
                    errors |= {fault.error for fault in faults}
                if what:
                    failed += 1
                    print(f"FAILS {setting} seed {seed}, {count} operations, {told(faults)}: {what}", flush=True)
    print(f"{runs} runs, in {fired} of which the failure came up: {len(functions)} functions, {len(errors)} errors; "
          f"{failed} not survived, {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


def seeds_of(options):
    first, _, last = options.seeds.partition("-")
    return range(int(first), int(last or first) + 1)


def all_cases(options):
    settings = options.setting.split(",") if options.setting else SETTINGS
    every = (case for seed in seeds_of(options) for setting in settings for case in cases(setting, seed, options))
    part, _, parts = options.part.partition("/")
    return (case for index, case in enumerate(every) if index % int(parts) == int(part) % int(parts))


def command_run(options):
    every = all_cases(options)
    if options.pairs:
        every = paired(list(every), options.pairs, options.seed)
    return run_all(every, options)


def faults_of(text):
    found = re.findall(r"(\w+):(\d+)(?:-(\d+))?=(\d+)", text)
    return [Fault(symbol, int(nth), int(error), int(last or nth) - int(nth) + 1) for symbol, nth, last, error in found]


def command_one(options):
    outcome = execute(options.setting or SETTINGS[0], options.seed, options.ops, faults_of(options.fail))
    print(outcome.what or "survived", outcome.answers)
    return 1 if outcome.what else 0


def command_check(options):
    kept = []
    with open(os.path.join(HERE, "kept.txt"), encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                setting, seed, count, faults = line.split()
                kept.append((setting, int(seed), int(count), faults_of(faults), None))
    return max(run_all(kept, options), run_all(all_cases(options), options))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "one", "check", "errors"))
    parser.add_argument("header", nargs="?")
    parser.add_argument("--seeds", default="1-4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ops", type=int, default=60)
    parser.add_argument("--setting", help="one, or several with commas")
    parser.add_argument("--bound", type=int, default=12, help="positions that are all taken; beyond, ever fewer")
    parser.add_argument("--only", default="", help="functions that this expression is")
    parser.add_argument("--part", default="0/1", help="7/50: every 50th case, from the 7th")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--lasting", type=int, default=1, help="how many calls fail one after the other")
    parser.add_argument("--fail", default="")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    commands = {"run": command_run, "one": command_one, "check": command_check, "errors": command_errors}
    return commands[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
