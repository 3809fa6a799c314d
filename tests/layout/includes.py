"""Which room of shim/ may include which, read from the includes themselves (shim/README.md has the picture), and
that each room's names are in a namespace of its own, called as it is."""
import pathlib
import re
import sys

# A room may include itself and these.
MAY = {
    "entry": {"include", "access", "session", "executor", "telemetry", "program", "code", "device", "trace", "engine", "util"},
    "access": {"session", "program", "code", "device", "trace", "engine", "util"},
    "session": {"executor", "telemetry", "sharing", "program", "device", "trace", "policy", "engine", "util"},
    "executor": {"telemetry", "sharing", "program", "device", "trace", "policy", "engine", "util"},
    "telemetry": {"program", "device", "trace", "engine", "util"},
    "program": {"device", "engine", "util"},
    "code": {"engine", "util"},
    "device": {"engine", "util"},
    "sharing": {"trace", "util"},
    "trace": {"include", "engine", "util"},
    "policy": {"engine", "util", "include"},
    "engine": {"include"},
    "util": set(),
}
# What others may include of a room that has a front. Of `engine` two headers are for values alone, which rooms name that decide nothing.
SHOWS = {
    "code": {"loaded_code.h", "ptx_bounds.h"},
    "engine": {"engine.h", "block.h", "chunk.h", "arena.h", "chunking.h", "in_place_costs.h", "parts.h", "ranking.h", "recorded_mappings.h",
               "rules.h", "soft_limit.h"},
    "executor": {"migrator.h", "core.h", "block_allocation.h", "budget.h", "eviction.h", "gpu_share.h", "guards.h", "own_moves.h", "placement.h",
                 "self_check.h"},
    "sharing": {"folder.h", "grants.h", "page.h", "turns.h"},
    "telemetry": {"telemetry.h", "memory_told.h"},
    "policy": {"host.h"},
}
# `util` is a library: these stand beside each other in its headers.
NAMESPACES = {"util": {"util", "log", "bounds", ""}}
NAMESPACE = re.compile(r"^namespace lms(?:::(\w+))?[\w:]* \{", re.M)
FORWARD = re.compile(r"^namespace [\w:]+ \{\n(?:(?:class|struct) \w+;\n)+\}", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*["<](?:(?:(shim)/(\w+)|(policy)|(lms))/)([^">]*)', re.M)


def room_of(path):
    return path.parts[1] if path.parts[0] == "shim" else "policy"


def included(text):
    for shim, room, policy, _, header in INCLUDE.findall(text):
        yield (room if shim else "policy" if policy else "include"), header


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    wrong, seen = [], 0
    for folder in ("shim", "policy"):
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root)
            if path.suffix not in (".cpp", ".h") or len(relative.parts) < 2:
                continue
            seen += 1
            room = room_of(relative)
            if room not in MAY:
                wrong.append(f"{relative}: no room of that name is known here")
                continue
            text = path.read_text()
            for name in NAMESPACE.findall(FORWARD.sub("", text)):
                if name not in NAMESPACES.get(room, {room}):
                    wrong.append(f"{relative}: its names are in lms::{name}, and not in lms::{room}")
            for other, header in included(text):
                if other == room:
                    continue
                if other not in MAY[room]:
                    wrong.append(f"{relative} includes {other}/, which {room}/ may not")
                elif header not in SHOWS.get(other, {header}):
                    wrong.append(f"{relative} includes {other}/{header}, which {other}/ does not show")
    for line in wrong:
        print(line)
    if seen == 0:
        print("no sources were found")
    return 1 if wrong or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
