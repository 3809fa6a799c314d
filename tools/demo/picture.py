#!/usr/bin/env python3
"""Draws where a program's buffers are over time, from its LMS_TRACE: docs/residency.svg of the demo, docs/pytorch.svg of
tests/third_party/torch_gpt.recipe, async, on half of what it takes. Needs matplotlib.

    build/lms run --sim --sim-memory 48M --trace trace.json -- build/demo --memory 96M --steps 4 README.md docs/*.md docs/*/*.md
    python3 tools/demo/picture.py trace.json 48 docs/residency.svg
"""

import bisect
import collections
import json
import sys

import matplotlib
import matplotlib.pyplot as plt
from schemes import follow_reader

MIB = 1 << 20
COLUMNS = 400  # points in time
ON_GPU, ON_HOST = "#2a78b8", "#f2b56b"


def at(times, moment):
    """The index of the last of `times` that is not after `moment`."""
    return max(bisect.bisect_right(times, moment) - 1, 0)


def totals(events, moments):
    """MiB on the GPU, and in host memory, at each moment."""
    changes = sorted((e for e in events if e.get("cat") == "residency"), key=lambda e: e["ts"])
    times = [event["ts"] for event in changes]
    args = [changes[at(times, moment)]["args"] for moment in moments]
    return [a["resident"] / MIB for a in args], [a["host"] / MIB for a in args]


def shares(events, moments):
    """For each buffer, the share of the chunks that ever move which is on the GPU at each moment."""
    moves = collections.defaultdict(lambda: collections.defaultdict(list))
    for event in events:
        if event.get("cat") == "move":
            into = event["args"]["direction"] == "in"
            moment = event["ts"] + (0 if into else event["dur"])
            moves[event["args"]["allocation"]][event["args"]["chunk"]].append((moment, into))

    def on_gpu(chunk, moment):
        before = [into for when, into in chunk if when <= moment]
        return before[-1] if before else not chunk[0][1]

    return [[sum(on_gpu(chunk, moment) for chunk in chunks.values()) / len(chunks) for moment in moments]
            for _, chunks in sorted(moves.items())]


def main():
    trace, gpu_mib, picture = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    times = [event["ts"] for event in events if event.get("cat") in ("allocation", "launch")]
    begin, end = min(times), max(times)
    moments = [begin + (end - begin) * i / COLUMNS for i in range(COLUMNS)]
    seconds = [(moment - begin) / 1e6 for moment in moments]
    resident, host = totals(events, moments)

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lmsshim", "font.family": "sans-serif"})
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
    above.stackplot(seconds, resident, host, colors=[ON_GPU, ON_HOST], labels=["on the GPU", "in host memory"])
    above.axhline(gpu_mib, color="#b22", linewidth=1.5, linestyle="--")
    above.text(seconds[-1], gpu_mib + 2, f"the GPU's memory: {gpu_mib:g} MiB", color="#b22", ha="right")
    above.set(xlim=(0, seconds[-1]), ylim=(0, None), ylabel="all buffers, MiB")
    above.spines[["top", "right"]].set_visible(False)
    above.legend(loc="lower right", framealpha=0.9)
    rows = shares(events, moments)
    colours = matplotlib.colors.LinearSegmentedColormap.from_list("places", [ON_HOST, ON_GPU])
    below.imshow(rows, aspect="auto", interpolation="nearest", cmap=colours,
                 extent=(0, seconds[-1], len(rows) + 0.5, 0.5))
    below.set(xlabel="seconds", ylabel="each buffer that moves")
    figure.savefig(picture, metadata={"Date": None} if picture.endswith("svg") else None)
    if picture.endswith("svg"):
        follow_reader(picture)


if __name__ == "__main__":
    main()
