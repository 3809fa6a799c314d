"""Which room of shim/ may include which, read from the includes themselves (shim/README.md has the picture)."""
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
INCLUDE = re.compile(r'^\s*#\s*include\s*["<](?:(shim)/(\w+)/|(policy)/|(lms)/)', re.M)


def room_of(path):
    return path.parts[1] if path.parts[0] == "shim" else "policy"


def included(text):
    for shim, room, policy, lms in INCLUDE.findall(text):
        yield room if shim else "policy" if policy else "include"


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
            for other in included(path.read_text()):
                if other != room and other not in MAY[room]:
                    wrong.append(f"{relative} includes {other}/, which {room}/ may not")
    for line in wrong:
        print(line)
    if seen == 0:
        print("no sources were found")
    return 1 if wrong or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
