#!/usr/bin/env python3
"""Random programs of two to four processes at once on the same simulated GPUs, with the shim and LMS_SHARE.

    crowd.py --rounds 1-8                 each round's processes, and what becomes of them, follow from its number
    crowd.py --operations 2000000         rounds until so many operations are over

Processes come and end; some are killed or stopped for a while; terms change (`lms set`), and somebody says that turns are to be taken.
Whoever lives has every byte right, and gets on: one that says nothing for long is told of with all that it shares. Python's standard
library only.
"""

import argparse
import glob
import json
import os
import queue
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run as programs  # noqa: E402

LMS = os.path.join(programs.BUILD, "lms")
OPS = 200
CONTEXT = 64 << 10  # what one takes
LEAST = 32 << 10  # bytes kept for one, at most
HANG = 90  # seconds; a launch goes on without a turn after 60
TURNS_AT = 32  # in a page of processes that share (shim/sharing/page.h): until when turns are taken
SAFETY, TIMES, DRAINS = ("opaque", "opaque", "args", "strict"), ("2", "4", "16"), ("free", "drain")
HOST_LIMITS = ("64M", "64M", "1M", "384K")
SPEEDS = ("0", "0.2", "0.05")  # of the links


def terms(chance):
    least = chance.choice(("", "", ",min=8K", f",min={LEAST}"))
    return f"weight={chance.choice((1, 1, 2, 4))}{least},priority={chance.choice((0, 0, 0, 1))}"


class One:
    """A process of a round."""

    def __init__(self, crowd, number, first, last):
        self.number, self.first, self.last = number, first, last
        env, options, room = programs.environment(crowd.setting, first)
        room = ["--room", str(crowd.room)] if room else []
        env.update(crowd.common, LMS_SHARE=terms(crowd.chance), LMS_HOST_LIMIT=crowd.chance.choice(HOST_LIMITS))
        self.command = [programs.PROGRAM, "--seeds", f"{first}-{last}", "--ops", str(OPS), "--hang", str(HANG), "--scarce"] + options + room
        self.terms = env["LMS_SHARE"]
        self.killed, self.stopped, self.heard = False, False, time.monotonic()
        self.said = ""
        self.process = subprocess.Popen(self.command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self.listen, args=(crowd.lines,), daemon=True).start()

    def listen(self, lines):
        for line in self.process.stdout:
            lines.put((self, line))
        self.process.wait()
        lines.put((self, None))

    def send(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def threads(self):
        """Where the kernel says that each of its threads is."""
        told = []
        for task in glob.glob(f"/proc/{self.process.pid}/task/*"):
            try:
                with open(task + "/stat", encoding="utf-8") as stat, open(task + "/syscall", encoding="utf-8") as syscall:
                    told.append(f"{stat.read().rpartition(')')[2].split()[0]} syscall {syscall.read().split()[0]}")
            except OSError:
                continue
        return ", ".join(told)


class Crowd:
    """A round. `most`: processes in all, those that come for others too."""

    def __init__(self, number):
        self.number, self.chance = number, random.Random(number)
        chance = self.chance
        self.count = chance.randint(2, 4)
        self.most = self.count + chance.randint(1, 3)
        self.setting = "-".join((chance.choice(SAFETY), "1.2", HOSTS[number % len(HOSTS)], chance.choice(DRAINS)))
        # A buffer is filled at first, so each has to fit where host memory cannot be mapped.
        self.times = "2" if "unmap" in self.setting else chance.choice(TIMES)
        self.lines, self.ones, self.operations, self.problems = queue.Queue(), [], 0, []
        self.moved, self.waited = 0, 0
        self.seed = number * 1000

    def set_up(self, folder):
        each = CONTEXT + programs.OVERHEAD
        # Beside buffers, a reserve: room for what one of them takes of the driver while the others look away.
        buffers = int(self.count * programs.FOOTPRINT / float(self.times))
        memory = (self.count + 1) * each + buffers
        # Where host memory cannot be mapped, what one launch names has to fit beside what is kept for the others.
        self.room = max(1, (buffers - (self.count - 1) * LEAST) * 6 // 10)
        os.mkdir(folder + "/share", 0o700)
        self.pages = folder + "/share"
        speed = self.chance.choice(SPEEDS)
        self.common = {"LMS_STATS": folder + "/stats.%p", "SIMCUDA_SHARED": folder + "/gpus", "SIMCUDA_MEMORY": str(memory), "SIMCUDA_CONTEXT_BYTES": str(CONTEXT), "LMS_RESERVE": str(each),
                       "LMS_SHARE_DIR": self.pages, "XDG_RUNTIME_DIR": folder, "SIMCUDA_H2D_GBPS": speed, "SIMCUDA_D2H_GBPS": speed}
        self.plain = {**{k: v for k, v in os.environ.items() if not re.match("LMS_|SIMCUDA_|LD_", k)}, "XDG_RUNTIME_DIR": folder, "LMS_SHARE_DIR": self.pages}

    def lms(self, *words):
        done = subprocess.run([LMS, *words], env=self.plain, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def begin(self):
        first = self.seed + 1
        self.seed += self.chance.randint(2, 8)
        self.ones.append(One(self, len(self.ones), first, self.seed))

    def living(self):
        return [one for one in self.ones if one.process.poll() is None]

    def turns_are_taken(self):
        """As somebody says who finds the link full."""
        for page in glob.glob(self.pages + "/gpu." + 32 * "?" + ".*"):
            until = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 25_000_000_000
            with open(page, "r+b") as file:
                file.seek(TURNS_AT)
                file.write(struct.pack("=Q", until))

    def disturb(self):
        chance, living = self.chance, self.living()
        time.sleep(chance.random() * 0.02)
        what = chance.choice(("kill", "stop", "stop", "set", "set", "turns", "turns"))
        if not living:
            return
        one = chance.choice(living)
        if what == "kill" and not one.stopped:
            one.killed = True
            one.send(signal.SIGKILL)
        elif what == "stop" and not one.stopped:
            one.stopped = True
            one.send(signal.SIGSTOP)
            threading.Timer(chance.choice((0.005, 0.05, 0.7)), self.go_on, (one,)).start()
        elif what == "set":
            one.terms = terms(chance)
            self.lms("set", str(one.process.pid), "share=" + one.terms)
        elif what == "turns":
            self.turns_are_taken()

    @staticmethod
    def go_on(one):
        one.stopped = False
        one.send(signal.SIGCONT)

    def watch(self):
        for one in self.living():
            quiet = time.monotonic() - one.heard
            if quiet > HANG - 10 and not one.said:
                one.said = (f"process {one.process.pid} ({one.terms}) has said nothing for {quiet:.0f} s; its threads: {one.threads()}\n"
                            + self.lms("top"))
                print(one.said, flush=True)
            if quiet > HANG + 10:  # it should have said where it stands, and ended
                one.send(signal.SIGKILL)

    def hear(self, one, line):
        one.heard = time.monotonic()
        if line is None:
            if one.killed or one.process.returncode == 0:
                return True
            self.problems.append(f"process {one.number}: ended with status {one.process.returncode}: {one.said[-1500:]}\n  its terms: {one.terms}; {' '.join(one.command)}")
            return True
        found = re.match(r"\d+ [0-9a-f]{16} (\d+)$", line)
        if found:
            self.operations += int(found[1])
            return False
        if not line.startswith("  longest"):
            one.said += line
        return False

    def sum_up(self, folder):
        """What those that were not killed have moved, and how long their threads waited for turns."""
        for path in glob.glob(folder + "/stats.*"):
            try:
                with open(path, encoding="utf-8") as file:
                    stats = json.load(file)
            except ValueError:
                continue  # of one that was killed as it wrote
            self.moved += stats["bytes_in"] + stats["bytes_out"]
            self.waited += sum(gpu.get("turn_wait_ns", 0) for gpu in stats["gpus"])

    def run(self):
        with tempfile.TemporaryDirectory(prefix="crowd-") as folder:
            self.set_up(folder)
            for _ in range(self.count):
                self.begin()
            ended = 0
            while ended < len(self.ones):
                try:
                    one, line = self.lines.get(timeout=1)
                except queue.Empty:
                    self.watch()
                    continue
                if self.hear(one, line):
                    ended += 1
                    if len(self.ones) < self.most and not self.problems:
                        self.begin()
                elif self.chance.random() < 0.3:
                    self.disturb()
            self.sum_up(folder)
        return self


HOSTS = ("map", "map", "unmap")


def rounds(options):
    first, _, last = options.rounds.partition("-")
    number = int(first)
    while number <= (int(last or first) if not options.operations else 1 << 30):
        yield number
        number += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", default="1-8", help="their numbers")
    parser.add_argument("--operations", type=int, default=0, help="as many rounds, from the first on, as these take")
    parser.add_argument("--minutes", type=float, help="at most")
    options = parser.parse_args()
    begun, operations, failed, processes, killed, count, moved, waited = time.monotonic(), 0, 0, 0, 0, 0, 0, 0
    for number in rounds(options):
        crowd = Crowd(number).run()
        operations += crowd.operations
        count += 1
        processes += len(crowd.ones)
        killed += sum(one.killed for one in crowd.ones)
        failed += bool(crowd.problems)
        moved += crowd.moved
        waited += crowd.waited
        for problem in crowd.problems:
            print(f"FAILS round {number}, {crowd.setting}, {crowd.count} at once, {crowd.times}x: {problem}", flush=True)
        if options.operations and operations >= options.operations:
            break
        if options.minutes and time.monotonic() - begun > options.minutes * 60:
            break
    print(f"{count} rounds, {processes} processes, {killed} of them killed: {operations} operations in {time.monotonic() - begun:.0f} s, "
          f"{moved >> 20} MiB moved, {waited / 1e9:.1f} s of threads waiting for turns, {failed} rounds failed", flush=True)
    return 1 if failed or operations == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
