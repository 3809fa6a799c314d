#!/usr/bin/env python3
"""Random programs without end in one process, and what it holds between them: memory, handles, mappings, descriptors,
threads, and the largest buffer it could have. Fails where any of that grows (or that buffer shrinks) once it has settled.

    soak.py --minutes 60 [--setting opaque-4-map-free] [--every 100]

Python's standard library only.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run as programs  # noqa: E402

# Of these, what may come and go: allocators keep some.
SLACK = {"rss_kib": 1024}


def read_look(line, report):
    """What the process said, and its driver."""
    figures = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)}
    with open(report, encoding="utf-8") as file:
        said = json.load(file)
    figures.update({name: said["vmm"][name] for name in ("handles", "reservations")})
    figures["mapped"] = said["vmm"]["mappings"]
    figures["gpu_kib"] = sum(device["used"] for device in said["devices"]) // 1024
    figures["host_kib"] = said["host"]["used"] // 1024
    return figures


def grown(looks):
    """What was never as small in the last third as it was at its largest in the third before."""
    third = len(looks) // 3
    middle, last = looks[third:2 * third], looks[2 * third:]
    for name in looks[0]:
        sign = -1 if name == "largest" else 1
        before, after = (max(sign * look[name] for look in middle), min(sign * look[name] for look in last)) if third else (0, 0)
        if third and after > before + SLACK.get(name, 0):
            yield f"{name}: at most {sign * before}, then at least {sign * after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--setting", default="opaque-4-map-free")
    parser.add_argument("--every", type=int, default=100, help="programs between two looks")
    parser.add_argument("--ops", type=int, default=200)
    parser.add_argument("--without", help="kinds of operations to leave out, with commas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        report = os.path.join(folder, "report.json")
        env, left_out, room = programs.environment(options.setting, 1)
        env["SIMCUDA_REPORT"] = report
        arguments = left_out + room
        arguments += ["--seeds", "1-1000000000", "--ops", str(options.ops), "--hang", "60", "--look-every", str(options.every)]
        arguments += programs.without(options)
        begun, looks, said, count = time.monotonic(), [], "", 0
        process = subprocess.Popen([programs.PROGRAM] + arguments, env=env, text=True, stdout=subprocess.PIPE)
        for line in process.stdout:
            if re.match(r"\d+ [0-9a-f]{16} \d+$", line):
                count += int(line.split()[2])
            elif not line.startswith("look "):
                said += line
            else:
                looks.append(read_look(line, report))
                minutes = (time.monotonic() - begun) / 60
                print(f"{minutes:.1f} min, {count} operations: " + ", ".join(f"{k} {v}" for k, v in looks[-1].items()), flush=True)
                if minutes > options.minutes:
                    break
        process.kill()
        process.wait()
    problems = list(grown(looks)) if looks else ["no look was taken"]
    if said:
        problems.append(f"it ended: {said.strip()}")
    for problem in problems:
        print("FAILS", problem)
    print(f"{count} operations in one process, {len(looks)} looks, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
