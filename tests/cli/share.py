"""lms top and lms set, upon programs that share a simulated GPU. Run by share_test.cpp: share.py SHIM DRIVER LMS; as a program: share.py BUFFERS [idle]."""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from programs import SIZE, expect, program


def lms(*words, **more):
    done = subprocess.run([LMS, *words], env={**PLAIN, **more}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


class Running:
    def __init__(self, count, *words, **more):
        self.process = subprocess.Popen([sys.executable, __file__, str(count), *words], env={**UNDER, **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        expect(self.process.stdout.readline() == "ready\n", "it runs")

    @property
    def pid(self):
        return str(self.process.pid)

    def all(self, **more):
        status, out, err = lms("top", "--json", self.pid, **more)
        expect(status == 0, f"top: {err}")
        (process,) = json.loads(out)
        return process

    def share(self):
        (share,) = self.all()["shares"]
        return share

    def reaches(self, condition, what):
        """Sooner or later; who never gets there is ended from outside."""
        while not condition(self.share()):
            time.sleep(0.01)
        print(f"{what}: reached", flush=True)

    def end(self):
        out, err = self.process.communicate("\n")
        expect(self.process.returncode == 0 and out == "whole\n", f"every byte is there ({out}{err})")
        return err


def terms(share):
    return share["weight"], share["min_bytes"], share["priority"]


def columns(*words, **more):
    """The tenants' table, by headings."""
    status, out, err = lms("top", *words, **more)
    expect(status == 0, f"top: {err}")
    lines = out.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith("SHARED GPU")), None)
    if at is None:
        return []
    names = lines[at].replace("SHARED GPU", "GPU").split()
    rows = []
    for line in lines[at + 1:]:
        if not line:
            break
        rows.append(dict(zip(names, line.split())))
    return rows


def looked_at(a, b):
    """What top says of two processes; it does so from outside, whatever they do, and changes nothing."""
    # The page says what was so at the look before.
    a.reaches(lambda share: share["granted_bytes"] is not None and share["wanted_bytes"] == 10 * SIZE, "a grant of the first")
    b.reaches(lambda share: share["granted_bytes"] is not None and share["wanted_bytes"] == 4 * SIZE, "and of the second")
    (page,) = glob.glob(FOLDER + "/gpu." + 32 * "?" + ".*")
    for each in (a, b):
        os.kill(each.process.pid, signal.SIGSTOP)
    with open(page, "rb") as file:
        before = file.read()
    rows = columns()
    expect([(row["PID"], row["WEIGHT"], row["MIN"], row["PRIORITY"]) for row in rows] == [(a.pid, "2", "1M", "1"), (b.pid, "1", "-", "0")], f"{rows}")
    expect(all(row["GPU"].startswith("GPU-") and row["PROGRAM"].startswith("python") and (row["TURN"], row["WAITS"]) == ("-", "-") for row in rows), f"{rows}")
    expect([row["WANTED"] for row in rows] == ["5M", "2M"], f"{rows}")
    expect(columns(b.pid) == rows, "of one the same table: with whom it shares")
    process = a.all()
    (share,) = process["shares"]
    expect(terms(share) == (2, 1 << 20, 1) and share["wanted_bytes"] == 10 * SIZE, f"{share}")
    gpu = process["gpus"][0]
    expect(0 < gpu["least_granted_bytes"] <= gpu["granted_bytes"] <= 8 << 20 and gpu["turn_wait_ns"] == 0, f"{gpu}")
    expect(share["resident_bytes"] <= 8 << 20 and process["process"] == int(a.pid), f"{share}")
    expect(len(share["gpu"]) == 40 and share["gpu"].startswith(rows[0]["GPU"]), f"{share}")
    # As from another container: the folder is there, their live pages are not.
    with tempfile.TemporaryDirectory() as other:
        status, out, _ = lms("top", "--json", XDG_RUNTIME_DIR=other, LMS_SHARE_DIR=FOLDER)
        elsewhere = json.loads(out)
        expect(status == 0 and [(each["process"], each["program"]) for each in elsewhere] == [(int(a.pid), None), (int(b.pid), None)], out)
        expect(terms(elsewhere[0]["shares"][0]) == (2, 1 << 20, 1), out)
        expect([row["PROGRAM"] for row in columns(XDG_RUNTIME_DIR=other, LMS_SHARE_DIR=FOLDER)] == ["-", "-"], "nor are their programs known")
        os.chmod(other, 0o755)
        expect(lms("top", "--json", XDG_RUNTIME_DIR=other, LMS_SHARE_DIR=other)[:2] == (0, "[]\n"), "a folder that others may enter is not read")
    with open(page, "rb") as file:
        expect(file.read() == before, "the page is as it was")
    for each in (a, b):
        os.kill(each.process.pid, signal.SIGCONT)


def changed(a, b):
    """Other terms at run time, and what is no such."""
    expect(lms("set", b.pid, "share=weight=4,min=2M,priority=3")[0] == 0, "other terms")
    b.reaches(lambda share: terms(share) == (4, 2 << 20, 3), "other terms")
    expect(terms(a.share()) == (2, 1 << 20, 1), "the first has its own")
    expect(lms("set", b.pid, "share=priority=1")[0] == 0, "those that are not named are as unset")
    b.reaches(lambda share: terms(share) == (1, 0, 1), "one alone")
    for value in ("", "off", "weight=0", "min=much", "wight=1", "weight=1," + 200 * "0"):
        status, _, err = lms("set", b.pid, "share=" + value)
        expect(status == 2 and err.startswith(f"lms set: share={value}: expected weight=1 to 1000, min=SIZE"), f"{value}: {err}")
    status, _, err = lms("set", b.pid, "share=min=" + 200 * "0" + "1")
    expect(status == 2 and err.endswith(": too long\n"), err)
    expect(terms(b.share()) == (1, 0, 1), "and changed nothing")


def idle():
    """A program that makes no calls gives back what another wants, has all when that is killed, and no work to do while alone."""
    first = Running(14, "idle")
    (page,) = glob.glob(FOLDER + "/gpu." + 32 * "?" + ".*")
    first.reaches(lambda share: share["resident_bytes"] >= 14 * SIZE, "all on the GPU")
    time.sleep(0.3)
    with open(page, "rb") as file:
        before = file.read()
    time.sleep(0.3)
    with open(page, "rb") as file:
        expect(file.read() == before, "alone it writes nothing")
    second = Running(10)
    second.reaches(lambda share: share["resident_bytes"] >= 9 * SIZE, "the other has what it wants")
    first.reaches(lambda share: share["resident_bytes"] <= 6 * SIZE, "what the idle one has is what that leaves")
    second.process.kill()
    second.process.communicate()
    first.reaches(lambda share: share["granted_bytes"] is None, "the idle one alone again")
    second = Running(10, "idle", LMS_SHARE="weight=1")
    first.end()
    second.end()


def main():
    idle()
    a, b = Running(10, LMS_SHARE="weight=2,min=1M,priority=1"), Running(4, LMS_SHARE="weight=1")
    looked_at(a, b)
    changed(a, b)
    elsewhere = {"SIMCUDA_SHARED": ""}  # the GPU of the two is full
    alone = Running(2, LMS_SHARE="weight=1", LMS_SHARE_DIR=PLAIN["XDG_RUNTIME_DIR"] + "/none", **elsewhere)
    unshared = Running(2, **elsewhere)
    off = Running(1, LMS_SHARE="off")
    for each in (alone, unshared, off):
        expect(each.all()["shares"] == [], "it shares nothing")
        status, _, err = lms("set", each.pid, "share=weight=2")
        expect((status, err) == (1, f"lms set: process {each.pid} shares no GPU: LMS_SHARE was off at its start, or LMS_LOG=info says why\n"), err)
    said = alone.end()
    expect(said.count("\n") == 1 and "GPU 0 is not shared: LMS_SHARE_DIR=" in said and "No such file" in said, f"one line: {said}")
    off.end()
    expect(unshared.end() == "", "nothing was asked for")
    expect([row["PID"] for row in columns()] == [a.pid, b.pid], "two are left")
    b.process.kill()
    b.process.communicate()
    expect(columns() == [], "one that was killed is not shown, nor with whom one shares that is alone")
    a.reaches(lambda share: share["granted_bytes"] is None, "alone again")
    gpu = a.all()["gpus"][0]
    expect(gpu["granted_bytes"] is None and gpu["least_granted_bytes"] > 0, f"{gpu}")
    a.end()
    expect(lms("top", "--json")[:2] == (0, "[]\n"), "and nobody is there")


if sys.argv[1].isdigit():
    program(int(sys.argv[1]), sys.argv[2:] == ["idle"])
else:
    LMS = sys.argv[3]
    with tempfile.TemporaryDirectory() as folder:
        PLAIN = {**os.environ, "XDG_RUNTIME_DIR": folder}
        FOLDER = os.path.join(folder, f"lmsshim-{os.geteuid()}")
        UNDER = {**PLAIN, "LD_PRELOAD": sys.argv[1], "LMS_DRIVER": sys.argv[2], "SIMCUDA_MEMORY": "8M", "SIMCUDA_GRANULARITY": "64K",
                 "LMS_THRESHOLD": "16K", "SIMCUDA_SHARED": os.path.join(folder, "gpus")}
        main()
