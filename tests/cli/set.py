"""lms set and lms trace, upon programs that run and know nothing of it. Run by set_test.cpp: set.py SHIM DRIVER LMS; as a program: set.py."""

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

from programs import SIZE, expect, program

COUNT = 6


class Running:
    def __init__(self, environment):
        self.process = subprocess.Popen([sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        expect(self.process.stdout.readline() == "ready\n", "it runs")

    def page(self):
        (page,) = json.loads(subprocess.run([LMS, "top", "--json", str(self.process.pid)], env=PLAIN, capture_output=True, check=True).stdout)
        return page

    def gpu(self):
        return self.page()["gpus"][0]

    def changed(self):
        """What top says of it that set changes, as JSON and in the table: limit, policy, whether it is paused."""
        table = subprocess.run([LMS, "top", str(self.process.pid)], env=PLAIN, capture_output=True, check=True, text=True).stdout.splitlines()
        words = table[1].split()
        page = self.page()
        return (page["limit_bytes"], page["policy"], page["paused"]), (words[-2], words[-1], words[-4])

    def reaches(self, condition, what):
        """Sooner or later; who never gets there is ended from outside."""
        while not condition(self.gpu()):
            time.sleep(0.01)
        print(f"{what}: reached", flush=True)

    def end(self):
        out, err = self.process.communicate("\n")
        expect(self.process.returncode == 0 and out == "whole\n", f"every byte is there ({out}{err})")
        return err


def set_(process, *changes):
    done = subprocess.run([LMS, "set", str(process), *changes], env=PLAIN, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def wrong(a):
    for changes, said in ((["limit=0"], "limit=0: expected a size"), (["limit=much"], "limit=much: expected"), (["limit"], "no change limit"),
                          (["log=loud"], "log=loud: expected off"), (["policy=none"], "policy=none: expected"),
                          (["policy=/nowhere.so"], "policy=/nowhere.so: "), (["policy=./" + 600 * "x" + ".so"], "policy=./x"),
                          (["pause", "stop"], "no change stop"), (["resume=1"], "no change resume=1")):
        status, err = set_(a.process.pid, *changes)
        expect(status == 2 and err.startswith("lms set: " + said) and err.count("\n") == 1, f"{changes} -> {status}, {err}")
    status, err = set_(os.getpid(), "pause")
    expect((status, err) == (1, f"lms set: no process {os.getpid()} of yours runs under the shim\n"), f"of another process: {err}")
    # A shim that has another page.
    with open("/proc/self/stat", encoding="utf-8") as file:
        started = file.read().rsplit(")", 1)[1].split()[19]
    numbers, times = (os.stat("/proc/self/ns/" + name).st_ino if os.path.exists("/proc/self/ns/" + name) else 0 for name in ("pid", "time"))
    page = os.path.join(PLAIN["XDG_RUNTIME_DIR"], f"lmsshim-{os.geteuid()}", f"{os.getpid()}.{started}.{numbers | times << 32}")
    with open(page, "wb") as file:
        file.write(struct.pack("<QII", 0x6576696C20736D6C, 99, 64) + bytes(48))
    status, err = set_(os.getpid(), "pause")
    os.unlink(page)
    expect(status == 1 and "runs under a shim of another version (page 99; this lms knows " in err, f"of another version: {err}")


def lms(*words):
    done = subprocess.run([LMS, *words], env=PLAIN, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def events_of(file):
    status, out, err = lms("export", "--csv", file)
    expect(status == 0, f"{file} is read: {err}")
    return [line.split(",") for line in out.splitlines()[1:]], err


def standing(events):
    """What a file begins with; a move that had begun before stands in front of it."""
    there = [event for event in events if event[0] in ("gpu", "allocate", "resident")][:COUNT + 2]
    expect([event[0] for event in there] == ["gpu"] + COUNT * ["allocate"] + ["resident"], f"it begins with what there is: {there}")
    return there


def trace(environment):
    """Begun and ended while the program runs, some of whose buffers are on the host: what it tells begins with where they are."""
    folder = PLAIN["XDG_RUNTIME_DIR"]
    running = Running({**environment, "LMS_LIMIT": "2M", "LMS_RESERVE": "0"})
    pid = str(running.process.pid)
    refused = f"lms trace: process {pid} "
    expect(lms("trace", pid, "stop") == (1, "", refused + "writes no trace\n"), "none is written")
    status, _, err = lms("trace", pid, "start", "/no/folder/t")
    expect((status, err) == (1, refused + "cannot write /no/folder/t: No such file or directory\n"), f"no folder: {err}")
    shared = os.path.join(folder, "shared")
    os.mkdir(shared)
    os.chmod(shared, 0o1777)
    os.symlink(os.path.join(folder, "elsewhere"), os.path.join(shared, "link"))
    status, _, err = lms("trace", pid, "start", os.path.join(shared, "link"))
    expect(status == 1 and "a link in a world-writable folder" in err, f"a link: {err}")
    expect(not os.path.exists(os.path.join(folder, "elsewhere")), "it was not followed")
    for words, said in ((("start", "t.json"), "t.json: of a running program"), (("start", "t", "--size", "0"), "--size 0: expected a size"),
                        (("stop", "t"), "stop takes no file"), (("pause",), "ACTION")):
        status, _, err = lms("trace", pid, *words)
        expect(status == 2 and said in err and err.count("\n") == 1, f"{words} -> {status}, {err}")
    for name, options in (("first-%p", ()), ("second", ("--size", "8K"))):
        file = os.path.join(folder, name)
        expect(lms("trace", pid, "start", file, *options) == (0, "", ""), f"{name} begins")
        expect(lms("trace", pid, "start", file) == (1, "", refused + "writes a trace already; `lms trace PID stop` ends it\n"), "one at a time")
        file = file.replace("%p", pid)
        wanted = file + ".3" if options else file
        while not os.path.exists(wanted) or os.path.getsize(wanted) < 6000:
            time.sleep(0.01)
        expect(lms("trace", pid, "stop") == (0, "", ""), f"{name} ends")
        events, err = events_of(file)
        expect("the trace began in a running program" in err and "missing" not in err, f"what is said of it: {err}")
        there = standing(events)
        expect([int(event[6]) for event in there[1:7]] == COUNT * [SIZE], "all of the buffers")
        expect(0 < int(there[7][6]) <= 2 << 20, f"and where they are: {there[7]}")
        kinds = [event[0] for event in events]
        expect({"transfer", "move in", "move out"} <= set(kinds) and kinds.count("allocate") == COUNT, f"then what happens: {set(kinds)}")
        if options:
            standing(events_of(wanted)[0])
    running.end()


def ended(environment):
    """A process that ends as it is asked for something has not been told."""
    running = Running(environment)
    os.kill(running.process.pid, signal.SIGSTOP)
    with subprocess.Popen([LMS, "set", str(running.process.pid), "limit=1M"], env=PLAIN, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as asking:
        while running.page()["limit_bytes"] != 1 << 20:
            time.sleep(0.01)
        running.process.kill()
        running.process.communicate()
        out, err = asking.communicate()
    expect((asking.returncode, out, err) == (1, "", f"lms set: process {running.process.pid} has ended\n"), f"of one that ends: {out}{err}")


def held(environment):
    """Of two tools one is stopped while it asks: the other does not wait for ever, nor does who only looks."""
    running = Running(environment)
    pid = str(running.process.pid)
    os.kill(running.process.pid, signal.SIGSTOP)
    with subprocess.Popen([LMS, "set", pid, "limit=1M"], env=PLAIN) as asking:
        while running.page()["limit_bytes"] != 1 << 20:
            time.sleep(0.01)
        os.kill(asking.pid, signal.SIGSTOP)
        for words in (("set", pid, "log=info"), ("trace", pid, "start")):
            said = lms(*words)
            expect(said == (1, "", f"lms {words[0]}: another lms has been asking process {pid} for five seconds; is it stopped?\n"), f"{words}: {said}")
        os.kill(asking.pid, signal.SIGKILL)
    os.kill(running.process.pid, signal.SIGCONT)
    expect(lms("set", pid, "limit=none")[0] == 0, "once that is gone it is asked")
    running.end()


def main():
    environment = {**PLAIN, "LD_PRELOAD": sys.argv[1], "LMS_DRIVER": sys.argv[2], "SIMCUDA_MEMORY": "8M", "SIMCUDA_GRANULARITY": "64K",
                   "LMS_THRESHOLD": "16K"}
    a, b = Running(environment), Running(environment)
    whole = a.gpu()["budget_bytes"]
    a_stream = 4096  # that the shim makes to wait beside its copies
    expect(set_(a.process.pid, "limit=1M", "log=info") == (0, ""), "a limit")
    a.reaches(lambda gpu: gpu["budget_bytes"] == 1 << 20 and gpu["resident_bytes"] <= 1 << 20, "the limit")
    expect(b.gpu()["resident_bytes"] == COUNT * SIZE and b.gpu()["budget_bytes"] == whole, "the other program is as it was")
    expect(set_(a.process.pid, "policy=lru") == (0, ""), "a policy")
    expect(a.gpu()["budget_bytes"] == 1 << 20, "the limit is still there")
    expect(a.changed()[0] == (1 << 20, "lru", False) and a.changed()[1][:2] == ("1M", "lru"), f"what top says of them: {a.changed()}")
    expect(set_(a.process.pid, "pause") == (0, ""), "pause")
    a.reaches(lambda gpu: gpu["resident_bytes"] == 0, "nothing on the GPU")
    expect(set_(b.process.pid, "pause") == (0, ""), "pause of the other, where all fits")
    b.reaches(lambda gpu: gpu["resident_bytes"] == 0, "nothing of the other on the GPU")
    expect(a.changed() == ((1 << 20, "lru", True), ("1M", "lru", "paused")), f"what top says of a paused one: {a.changed()}")
    expect(b.changed() == ((None, "next-use", True), ("none", "next-use", "paused")), f"and of the other: {b.changed()}")
    wrong(a)
    expect(a.gpu()["resident_bytes"] == 0, "it waits still")
    expect(set_(a.process.pid, "resume", "limit=none") == (0, ""), "resume")
    a.reaches(lambda gpu: gpu["resident_bytes"] == COUNT * SIZE and gpu["budget_bytes"] in (whole, whole - a_stream), "all of it back")
    expect(set_(b.process.pid, "resume") == (0, ""), "resume of the other")
    said = a.end()
    for line in ("lms: `lms set`: limit=1M", "lms: `lms set`: policy=lru", "lms: `lms set`: paused", "lms: `lms set`: limit=none"):
        expect(line in said, f"{line} in {said}")
    expect("outside" not in b.end(), "b was not asked to tell")
    expect(set_(a.process.pid, "pause")[0] == 1, "of one that has ended")
    ended(environment)
    held(environment)
    trace(environment)


if len(sys.argv) == 1:
    program(COUNT)
else:
    LMS = sys.argv[3]
    with tempfile.TemporaryDirectory() as folder:
        PLAIN = {**os.environ, "XDG_RUNTIME_DIR": folder}
        main()
