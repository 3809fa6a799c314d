#!/usr/bin/env python3
"""Runs clang-tidy over the tree, by the units of the build (tools/units.sh).

What a source costs is its headers, which the sources of a unit share: read together they take an eighth of the time. What
was clean is looked at again only where a source, a header that it includes, its options or the checks are other ones.

usage: lint.py COMPILE_COMMANDS WORK CHECKS [FOLDER ...]     WORK keeps the sources put together, beside it are the units; of FOLDERs alone, if any
"""
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

# What is wrong only because sources were put together.
TOGETHER_ALONE = ",-bugprone-suspicious-include"


def unit_of(build):
    """Source -> the unit that it is compiled in."""
    names = os.path.join(build, "units.mk")
    if not os.path.exists(names):  # UNITY=0
        return {}
    with open(names) as file:
        units = re.findall(r"^SOURCES_(\S+) :=(.*)$", file.read(), re.M)
    return {source: unit for unit, sources in units for source in sources.split()}


def groups(commands, units, folders):
    """Sources of one unit that are compiled alike, by their options. The largest come first."""
    found = {}
    for entry in commands:
        source = entry["file"]
        if folders and not source.startswith(folders):
            continue
        options = re.sub(r" -c -o \S+ \S+$", "", entry["command"]).split(" ", 1)[1]
        # (The compiler has looked for names that hide others; here they are another source's.)
        options = re.sub(r"-(O\d|g\d?|MMD|MP|Wshadow)(?= |$)", "", options).strip()
        found.setdefault((units.get(source, source), options), set()).add(source)
    together = [(options, sorted(sources)) for (_, options), sources in found.items()]
    return sorted(together, key=lambda group: -sum(map(os.path.getsize, group[1])))


def closure(files):
    """These files and all that they include of the project."""
    seen, left = set(), list(files)
    while left:
        path = os.path.normpath(left.pop())
        if path in seen or not os.path.isfile(path):
            continue
        seen.add(path)
        with open(path, encoding="utf-8") as file:
            named = re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', file.read(), re.M)
        left += [os.path.join(folder, name) for name in named for folder in ("", "include", os.path.dirname(path))]
    return sorted(seen)


def state(checks, options, files):
    """What a verdict about these sources rests on, as a digest."""
    digest = hashlib.sha256(f"{checks}\n{options}\n".encode())
    for path in [".clang-tidy", *closure(files)]:
        with open(path, "rb") as file:
            digest.update(path.encode() + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def tidy(work, checks, options, files):
    """What clang-tidy says of these sources; nothing where they are clean."""
    text = "".join(f'#include "{os.path.abspath(file)}"\n' for file in files)
    name = os.path.join(work, hashlib.sha256((options + text).encode()).hexdigest()[:16] + ".cpp")
    with open(name, "w") as out:
        out.write(text)
    ran = subprocess.run(
        f"clang-tidy -quiet --checks='{checks}' --header-filter='^{os.getcwd()}/' {name} -- -xc++ {options}",
        shell=True, text=True, capture_output=True)
    return ran.stdout + ran.stderr if ran.returncode else ""


def main():
    with open(sys.argv[1]) as file:
        commands = json.load(file)
    work, checks, folders = sys.argv[2], sys.argv[3] + TOGETHER_ALONE, tuple(sys.argv[4:])
    os.makedirs(work, exist_ok=True)
    clean_path = os.path.join(work, "clean")
    clean = set(open(clean_path).read().split()) if os.path.exists(clean_path) else set()

    def look(group):
        now = state(checks, *group)
        said = "" if now in clean else tidy(work, checks, *group)
        if not said:
            clean.add(now)
        return said

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(look, groups(commands, unit_of(os.path.dirname(work)), folders)))
    with open(clean_path, "w") as file:
        file.write("\n".join(sorted(clean)))
    sys.stdout.writelines(said)
    return any(said)


if __name__ == "__main__":
    sys.exit(main())
