"""What stands behind a lock in a class says that the lock guards it; else it is atomic, or a comment beside it has why no lock is needed."""
import pathlib
import re
import sys

LOCK = re.compile(r"\butil::(Shared)?Mutex \w+\{")
GUARDED = re.compile(r"LMS_GUARDED|\butil::((Shared)?Mutex|Condition)\b|\bstd::atomic<|// .*\block\b")
NO_FIELD = re.compile(r"(^|\n) *(using|friend|static|enum|struct|class|template)\b|\)( const| override|LMS_\w+)*(;|$)|= (default|delete);")
CODE_ONLY = re.compile(r"//.*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'")


def classes(text):
    """Of each class the lines that lie directly in its body, numbered."""
    open_ = []
    for number, line in enumerate(text.splitlines(), 1):
        code = CODE_ONLY.sub("", line)
        if open_:
            open_[-1].append((number, line))
        for char in code:
            if char == "{":
                open_.append([])
            elif char == "}" and open_:
                yield open_.pop()[:-1]


def unguarded(text):
    for lines in classes(text):
        behind, field = False, ""
        for number, line in lines:
            field += CODE_ONLY.sub("", line) + "\n"
            if not field.rstrip().endswith((";", "{", "}", ":")):
                continue
            behind = behind or bool(LOCK.search(field)) and "static" not in field
            if behind and field.rstrip().endswith(";") and not GUARDED.search(field + line) and not NO_FIELD.search(field.strip()):
                yield number, field.strip()
            field = ""


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    wrong, seen = [], 0
    for path in sorted((root / "shim").rglob("*.[ch]*")):
        text = path.read_text()
        seen += len(LOCK.findall(text))
        wrong += [f"{path.relative_to(root)}:{number}: which lock guards `{field}`?" for number, field in unguarded(text)]
    for line in wrong or ([] if seen else ["no locks were found"]):
        print(line)
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
