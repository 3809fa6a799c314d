"""What check.py and frameworks.py share: runs of programs with and without the shim, budgets, results.

The device is asked about once, by gpu-facts; results carry its name, and those of the simulated GPU never go to
docs/gpu. Python's standard library only.
"""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REAL_RESULTS = os.path.join(ROOT, "docs", "gpu")
OURS = re.compile(r"(LMS_|SIMCUDA_)")


class Unusable(Exception):
    """What keeps a command from running at all, in one line."""


class Run:
    """One run of a program: how it ended, what it printed, what LMS_STATS says of all its processes together."""

    def __init__(self, status, seconds, out, err, processes):
        self.status = status  # exit status, negative for a signal, None for one stopped at its time limit
        self.seconds = seconds
        self.out = out
        self.err = err
        self.processes = processes  # counters per process under the shim that launched something
        # What is told of each GPU is no count.
        counters = [key for key, value in processes[0].items() if isinstance(value, int)] if processes else []
        self.stats = {key: sum(p[key] for p in processes) for key in counters}

    @property
    def moved(self):
        """Whether the GPU was too small: memory went to and fro, or was used where it lay on the host."""
        return any(self.stats.get(key, 0) > 0 for key in ("fills", "evictions", "in_place_launches"))

    def ending(self):
        if self.status is None:
            return f"stopped after {self.seconds:.0f} s"
        return f"signal {-self.status}" if self.status < 0 else f"status {self.status}"

    def last_words(self):
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1][:200] if lines else ""


class Session:
    """The device, the shim and the log that all runs of a command share. Runs may be made from several threads.

    Of the options it takes: build, sim, out, only, seconds.
    """

    def __init__(self, name, options):
        build, simulated = options.build, options.sim
        self.partial = options.only is not None  # results of other parts stay
        self.build = os.path.abspath(build)
        self.simulated = simulated
        self.shim = os.path.join(self.build, "liblmsshim.so")
        self.deadline = time.monotonic() + options.seconds
        self.lock = threading.Lock()
        self.base = {k: v for k, v in os.environ.items() if not OURS.match(k) and k != "LD_PRELOAD"}
        if simulated:
            self.search_first(os.path.join(self.build, "sim"))
            # As in the environment of the caller: the tests choose the seed and the delays.
            self.base.update({k: v for k, v in os.environ.items() if k.startswith("SIMCUDA_")})
        if not os.path.exists(self.shim):
            raise Unusable(f"{self.shim} is not built")
        self.device = self._ask_device()
        if self.device["simulated"] != simulated:
            raise Unusable("the GPU that is here is the simulated one; --sim says so")
        self.folder = self._choose_folder(options.out)
        os.makedirs(self.folder, exist_ok=True)
        self.base_name = os.path.join(self.folder, f"{self.device['slug']}-{name}")
        self.log = open(self.base_name + ".log", "a" if self.partial else "w", encoding="utf-8")
        self.scratch = tempfile.mkdtemp(prefix="lmsshim-gpu-")
        self.count = 0

    def close(self):
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def search_first(self, folder):
        before = self.base.get("LD_LIBRARY_PATH")
        self.base["LD_LIBRARY_PATH"] = folder + (":" + before if before else "")

    def _ask_device(self):
        command = [os.path.join(self.build, "gpu", "gpu-facts"), "--device"]
        try:
            asked = subprocess.run(command, env=self.base, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise Unusable(f"{command[0]}: {problem}") from None
        if asked.returncode != 0:
            raise Unusable(asked.stderr.strip() or "gpu-facts finds no device")
        return json.loads(asked.stdout)

    def _choose_folder(self, out):
        if out is None:
            return os.path.join(self.build, "gpu", "results") if self.simulated else REAL_RESULTS
        if self.simulated and os.path.realpath(out).endswith(os.path.join("docs", "gpu")):
            raise Unusable(f"--out={out}: that folder is for real GPUs, and this is the simulated one")
        return out

    def time_left(self):
        return self.deadline - time.monotonic()

    def run(self, command, shim=None, environment=None, seconds=120):
        """Runs a command; with `shim`, a dictionary of LMS_ variables, under the shim."""
        with self.lock:
            self.count += 1
            number = self.count
        added = dict(environment or {})
        stats = os.path.join(self.scratch, f"stats-{number}")
        if shim is not None:
            added.update(shim)
            added["LD_PRELOAD"] = self.shim
            added["LMS_STATS"] = stats + "-%p.json"
        begin = time.monotonic()
        limit = max(1, min(seconds, self.time_left()))
        # A session of its own, so that a run that takes too long ends with all its children.
        with subprocess.Popen(command, env={**self.base, **added}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True) as child:
            try:
                out, err = child.communicate(timeout=limit)
                status = child.returncode
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out, err = child.communicate()
                status = None
        result = Run(status, time.monotonic() - begin, out, err, self._collect(stats))
        self._write_log(number, command, added, result)
        return result

    def _collect(self, stats):
        found = []
        for path in sorted(glob.glob(glob.escape(stats) + "-*.json")):
            with open(path, encoding="utf-8") as file:
                try:
                    counters = json.load(file)
                except ValueError:
                    continue  # of a process that was stopped while it wrote
            if counters.get("allocations", 0) > 0:
                found.append(counters)
        return found

    def _write_log(self, number, command, added, run):
        shown = {k: os.path.basename(v) if k in ("LD_PRELOAD", "LMS_STATS") else v for k, v in sorted(added.items())}
        words = " ".join([f"{k}={v}" for k, v in shown.items()] + [os.path.relpath(command[0], ROOT)] + command[1:])
        text = f"==== {number}: {words}\n==== {run.ending()}, {run.seconds:.2f} s\n"
        for title, body in (("stdout", run.out), ("stderr", run.err)):
            if body:
                text += f"---- {title}\n{body}" + ("" if body.endswith("\n") else "\n")
        for counters in run.processes:
            text += f"---- {json.dumps(counters)}\n"
        with self.lock:
            self.log.write(text)
            self.log.flush()


class Squeeze:
    """Runs of one program in less and less memory.

    LMS_LIMIT bounds what the GPU looks like, and a context, the driver and unmanaged allocations take their part of
    that first, so what is left for buffers has to be found out: by the peak that a run reports.
    """

    CLOSE = 0.12  # how near the peak has to be to what was aimed at
    ATTEMPTS = 4

    def __init__(self, session, command, need, processes, shim, environment, seconds, extra=None):
        self.session = session
        self.command = command
        self.need = need  # bytes resident when everything fits, of all processes together
        self.processes = max(processes, 1)
        self.shim = shim
        self.environment = environment
        self.seconds = seconds
        # What takes its part; found out by an earlier program of the same kind, or what the idle GPU shows.
        taken = session.device["memory_bytes"] - session.device["free_bytes"]
        self.extra = max(taken, 0) if extra is None else extra

    def at(self, factor, more=None):
        """A run whose buffers need `factor` times what they may fill; and the factor that was reached.

        With `more` settings, which may change how much of its budget the shim fills, it runs once, with the limit as
        it was found without them.
        """
        attempts = 1 if more else self.ATTEMPTS
        for attempt in range(attempts):
            target = int(self.need / factor / self.processes)
            limit = max(target + self.extra, 1 << 20)
            # What it must leave free is free: the GPU itself is larger than the limit.
            shim = {**self.shim, **(more or {}), "LMS_LIMIT": str(limit), "LMS_RESERVE": "0"}
            run = self.session.run(self.command, shim, self.environment, self.seconds)
            peak = run.stats.get("peak_resident_bytes", 0) // self.processes
            off = peak - target
            if run.status == 0 and 0 < peak <= (1 + self.CLOSE) * target and not run.moved:
                # It got by with less this time: memory that is freed in stream order comes back sooner or later.
                self.need = peak * self.processes
                continue
            if run.status is None or abs(off) <= self.CLOSE * target or attempt + 1 == attempts:
                break
            if peak == 0 and run.status == 0:
                break  # nothing is managed; another limit changes nothing
            self.extra -= off
        return run, self.need / (peak * self.processes) if peak else 0.0


def table(header, rows):
    """Text in columns, for a terminal."""
    cells = [[str(c) for c in row] for row in [header] + rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells)


def markdown(header, rows):
    lines = ["| " + " | ".join(str(c) for c in row) + " |" for row in [header] + rows]
    return "\n".join([lines[0], "|" + "---|" * len(header)] + lines[1:])


def keep_others(session, kind, rows, label):
    """Of a run of a part: the rows and notes that an earlier run left for what this one did not do."""
    try:
        with open(session.base_name + ".json", encoding="utf-8") as file:
            before = json.load(file)
    except (OSError, ValueError):
        return [], []
    if before.get("driver") != session.device["driver"]:
        return [], []
    done = {row[label] for row in rows}
    of_these = tuple(start for name in done
                     for start in (f"{name}:", f"not run: {name}:", f"not run: {name}, shared", f"not run: {name}, static"))
    return ([row for row in before.get(kind, []) if row[label] not in done],
            [note for note in before.get("notes", []) if not note.startswith(of_these)])


def write_results(session, title, kind, rows, label, acceptable, as_table, notes):
    """The JSON, the page beside it and the table on stdout. Returns whether all rows are acceptable.

    `kind` is the rows' name in the JSON, `label` the key of a row that names the program.
    """
    others, old_notes = keep_others(session, kind, rows, label) if session.partial else ([], [])
    rows = rows + others
    notes = notes + [note for note in old_notes if note not in notes]
    good = sum(acceptable(row) for row in rows)
    summary = f"{good} of {len(rows)} as they must be"
    header, lines = as_table(rows)
    with open(session.base_name + ".json", "w", encoding="utf-8") as file:
        json.dump({**session.device, "summary": summary, "notes": notes, kind: rows}, file, indent=1)
        file.write("\n")
    warning = "**Simulated.** Nothing here says anything of a real GPU.\n\n" if session.simulated else ""
    with open(session.base_name + ".md", "w", encoding="utf-8") as file:
        file.write(f"# {title}: {session.device['gpu']}\n\n{warning}Driver {session.device['driver']}, "
                   f"{session.device['date']}. {summary}. Every run with its output: "
                   f"`{os.path.basename(session.base_name)}.log`.\n\n" + markdown(header, lines) + "\n"
                   + "".join(f"\n- {note}" for note in notes) + "\n")
    print(table(header, lines))
    for line in notes + [f"{session.device['gpu']}: {summary}",
                         f"results in {os.path.relpath(session.base_name)}.json, .md and .log"]:
        print(line)
    return good == len(rows)


def fail(name, why):
    print(f"{name}: {why}", file=sys.stderr)
    return 1
