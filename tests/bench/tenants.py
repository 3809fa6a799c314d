#!/usr/bin/env python3
"""Several programs on one GPU, by the clock that the simulated GPU has for all (tests/bench.sh).

The speed kept is what all together get done, against what they get done by taking turns, kernel by kernel, on a GPU
with room for all. Jain's index is of the parts that each keeps: 1 where they are equal.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("BUILD", "build")
SHIM = os.path.abspath(os.path.join(BUILD, "liblmsshim.so"))
CHUNKS, CHUNK_KIB = 32, 256  # of the GPU
MOVE_US = 1049  # of a chunk, at 0.25 GB/s
BEGIN_MS, END_MS = 700, 6700  # what is measured


class Tenant:
    def __init__(self, chunks, terms="weight=1", comes=0, reads=False, think_ms=0, rounds=1):
        self.chunks, self.terms, self.comes = chunks, terms, comes
        self.more = (["read"] if reads else []) + ([str(think_ms), str(rounds)] if think_ms else [])
        # In the run before:
        self.p99_ms = 0.0  # of its rounds
        self.bytes_out = 0


def run(tenants, kernel_us, room, shares, end_ms=END_MS):
    """What each prints: launches a second, in all and by half seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        common = {**os.environ, "LD_LIBRARY_PATH": os.path.abspath(os.path.join(BUILD, "sim")), "LMS_RESERVE": "0", "LMS_LOG": os.environ.get("LMS_LOG", "off"),
                  "LMS_THRESHOLD": "64K", "SIMCUDA_DELAY_US": "0", "SIMCUDA_GRANULARITY": "64K",
                  "SIMCUDA_CLOCK": "simulated", "SIMCUDA_H2D_GBPS": "0.25", "SIMCUDA_D2H_GBPS": "0.25",
                  "SIMCUDA_KERNEL_US": str(kernel_us), "SIMCUDA_SHARED": os.path.join(scratch, "gpu"),
                  "SIMCUDA_PROCESSES": str(len(tenants)), "XDG_RUNTIME_DIR": scratch}
        # Contexts and modules have memory too.
        common["SIMCUDA_MEMORY"] = "4G" if room else f"{CHUNKS * CHUNK_KIB + 512 * len(tenants)}K"
        running = []
        stats = [os.path.join(scratch, f"stats.{i}") for i in range(len(tenants))]
        for each, file in zip(tenants, stats):
            own = {} if room else {"LD_PRELOAD": SHIM, "LMS_SHARE": each.terms if shares else "off", "LMS_STATS": file}
            command = [os.path.join(BUILD, "bench", "tenant"), str(each.chunks), str(CHUNK_KIB), str(each.comes),
                       str(BEGIN_MS), str(end_ms)] + each.more
            running.append(subprocess.Popen(command, env={**common, **own}, stdout=subprocess.PIPE, text=True,
                                            stderr=None if shares else subprocess.DEVNULL))
        told = [each.communicate()[0] for each in running]
        for each, file in zip(tenants, stats):
            if os.path.exists(file):
                with open(file, encoding="utf-8") as text:
                    each.bytes_out = json.load(text)["bytes_out"]
    # Without shares one that comes late may find no memory.
    if shares and any(each.returncode for each in running):
        sys.exit(f"a tenant failed: {[each.returncode for each in running]}")
    for each, one in zip(tenants, told):
        each.p99_ms = float(one.split("\n")[1]) if one else 0.0
    return [[float(word) for word in one.split("\n")[0].split()] or [0.0] for one in told]


def jain(parts):
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts)) if any(parts) else 0


def over_rounds(halves, ramp):
    """The mean of what was done by half seconds, which count less at both ends, for as long as a round of all turns takes: which
    turn is the first and the last does not show."""
    parts = [min(1, (i + 1) / ramp, (len(halves) - i) / ramp) for i in range(len(halves))]
    return sum(half * part for half, part in zip(halves, parts)) / sum(parts)


def row(*columns):
    print("  {:58} {:>12} {:>12} {:>8}".format(*columns), flush=True)


def kept(tenants, kernel_us, shares=True, end_ms=END_MS):
    """By each, as told and as a part of what it does with room for all."""
    best = run(tenants, kernel_us, True, False, end_ms)
    now = run(tenants, kernel_us, False, shares, end_ms)
    parts = [over_rounds(a[2:], 2) / over_rounds(b[2:], 2) if len(a) > 2 else 0.0 for a, b in zip(now, best)]
    return now, parts, sum(a[0] for a in now) / sum(b[0] for b in best)


def equal(count, over, **more):
    return [Tenant(int(CHUNKS * over / count), comes=100 * i, **more) for i in range(count)]


ROWS = (
    ("two tenants, moves 2 kernels, 1.5x", equal(2, 1.5), 2),
    ("  2x", equal(2, 2), 2),
    ("  3x", equal(2, 3), 2),
    ("three tenants, moves 8 kernels, 2x", equal(3, 2), 8),
    ("  3x", equal(3, 3), 8),
    ("two that read, moves half a kernel, 2x", equal(2, 2, reads=True), 0.5),
)


def after_kill(kills):
    """By the machine's clock, in ms: until the memory of a killed tenant may be used by the other, and until it is."""
    with tempfile.TemporaryDirectory() as scratch:
        common = {**os.environ, "LD_LIBRARY_PATH": os.path.abspath(os.path.join(BUILD, "sim")), "LD_PRELOAD": SHIM, "LMS_RESERVE": "0", "LMS_LOG": "off",
                  "LMS_THRESHOLD": "64K", "LMS_SHARE": "weight=1", "SIMCUDA_DELAY_US": "0", "SIMCUDA_GRANULARITY": "64K",
                  "SIMCUDA_MEMORY": f"{CHUNKS * CHUNK_KIB + 1024}K", "SIMCUDA_SHARED": os.path.join(scratch, "gpu"), "XDG_RUNTIME_DIR": scratch}
        whole, some = CHUNKS * CHUNK_KIB << 10, CHUNKS * CHUNK_KIB * 768
        program = [os.path.join(BUILD, "bench", "survivor"), str(CHUNKS), str(CHUNK_KIB)]
        survivor = subprocess.Popen(program, env=common, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def awaited(*conditions):
            """When each of them is so at first, from the next line on."""
            times = {}
            while len(times) < len(conditions):
                at, budget, everything = map(int, survivor.stdout.readline().split())
                for i, is_so in enumerate(conditions):
                    if is_so(budget, everything):
                        times.setdefault(i, at)
            return [times[i] for i in range(len(conditions))]

        granted, used = [], []
        for _ in range(kills):
            # Turns or not, it has its half.
            victim = subprocess.Popen(program, env={**common, "LMS_SHARE": "min=4M"}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            awaited(lambda budget, everything: budget < some and not everything)
            time.sleep(0.3)  # it uses that
            victim.kill()
            victim.wait()  # the machine's part of it
            killed = time.monotonic_ns()
            at = awaited(lambda budget, _: budget >= whole, lambda budget, everything: budget >= whole and everything)
            granted.append((at[0] - killed) / 1e6)
            used.append((at[1] - killed) / 1e6)
            victim.stdin.close()
        survivor.stdin.close()
        survivor.wait()
        return granted, used


def main():
    chosen = sys.argv[1:]
    for i, (what, tenants, moves) in enumerate(ROWS):
        if chosen and str(i) not in chosen:
            continue
        kernel_us = round(MOVE_US / moves)
        _, alone, all_alone = kept(tenants, kernel_us, False)
        _, parts, all_shared = kept(tenants, kernel_us)
        row(what + ", kept: without shares, with", f"{all_alone:.3f}", f"{all_shared:.3f}", "")
        row("    Jain's index", f"{jain(alone):.3f}", f"{jain(parts):.3f}", "")
    if not chosen or "w" in chosen:
        weights = (1, 2, 4)
        tenants = [Tenant(22, f"weight={weight}") for weight in weights]
        now, _, kept_all = kept(tenants, MOVE_US // 2, end_ms=BEGIN_MS + 14000)
        speeds = [over_rounds(each[3:], 3) / weight for each, weight in zip(now, weights)]
        mean = sum(speeds) / len(speeds)
        row("three of weights 1, 2 and 4, moves 2 kernels, 2x, kept", "", f"{kept_all:.3f}", "")
        row("    speed by weight: least and most, against their mean", f"{min(speeds) / mean:.3f}",
            f"{max(speeds) / mean:.3f}", "")
    if not chosen or "i" in chosen:
        for its, chunks in ((8, CHUNKS), (8, 2 * CHUNKS), (16, CHUNKS)):
            asks, batch = Tenant(its, "priority=1", think_ms=200), Tenant(chunks)
            run([asks], MOVE_US // 2, True, False)
            alone_ms = asks.p99_ms
            _, (one,), _ = kept([batch], MOVE_US // 2)
            _, parts, _ = kept([asks, batch], MOVE_US // 2)
            may_ms = 1.3 * alone_ms + its * MOVE_US / 1000
            row(f"{its} chunks beside a batch of {chunks}: P99, alone, together, of what it may", f"{alone_ms:.1f} ms",
                f"{asks.p99_ms:.1f} ms", f"{asks.p99_ms / may_ms:.2f}")
            row("    the batch keeps: alone, together", f"{one:.3f}", f"{parts[1]:.3f}", f"{parts[1] / one:.2f}")
    if not chosen or "o" in chosen:
        # Each works for 8 rounds while the other is idle. What is out at first is what was written before.
        for reads in (True, False):
            tenants = [Tenant(CHUNKS, comes=600 * i, reads=reads, think_ms=1200, rounds=8) for i in range(2)]
            run(tenants, MOVE_US // 8, False, True, BEGIN_MS + 6000)
            link_ms, back_ms = CHUNKS * MOVE_US / 1000, max(each.p99_ms for each in tenants)
            row(f"idle model back, {'read' if reads else 'written'}: bytes / link, first round", f"{link_ms:.1f} ms", f"{back_ms:.1f} ms",
                f"{back_ms / link_ms:.2f}")
            if reads:
                more = sum(each.bytes_out for each in tenants) - len(tenants) * (CHUNKS * CHUNK_KIB << 10)
                row("    bytes out after the first time", "", f"{more}", "")
    if not chosen or "k" in chosen:
        kills = 20
        granted, used = after_kill(kills)
        for what, took in (("granted", granted), ("used", used)):
            row(f"memory of one that is killed, until it is {what}: median and most", f"{sorted(took)[kills // 2]:.1f} ms", f"{max(took):.1f} ms", "")
    if not chosen or "l" in chosen:
        tenants = [Tenant(32), Tenant(32, comes=1000)]
        now, _, _ = kept(tenants, MOVE_US // 2)
        late, first = now[1][1:], now[0][1 + 2:]
        for when, of in (("in its first second", lambda halves: sum(halves[:2]) / 2), ("from then on", lambda halves: over_rounds(halves[2:], 2))):
            a, b = of(late), of(first)
            row(f"one that comes late, launches/s {when}: of it, of the other", f"{a:.0f}", f"{b:.0f}", f"{a / b:.2f}" if b else "-")


if __name__ == "__main__":
    main()
