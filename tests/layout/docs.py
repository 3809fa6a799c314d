"""Links between the documents hold: files, headings, and the tests that tables name."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# A page that another file names, by its path from the root.
PAGE = re.compile(r"(?<![\w/.<>%-])((?:docs|tests|shim|tools)/[\w/.-]*\.md)\b")
TEST = re.compile(r"`([\w/]+_test\.cpp|third_party/\w+\.recipe|gpu/[\w/]+\.py)`")
SOURCES = {".cpp", ".h", ".cu", ".cuh", ".c", ".py", ".sh", ".mk", ".def", ".txt", ".recipe", ".part", ".tsv"}


def without_code(text):
    return re.sub(r"```.*?```", "", text, flags=re.S)


def anchors(path):
    """What GitHub makes of the headings."""
    heads = re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.M)
    heads = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads]
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


def wrong_links(path):
    for target in LINK.findall(without_code(path.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(file):
            yield f"{target}: no such heading"


def wrong_tests(path):
    for name in TEST.findall(path.read_text()):
        if not (ROOT / "tests" / name).exists():
            yield f"tests/{name}: no such test"


def wrong_rows(path):
    """Rows of its tables whose last cell names no test, and does not say "not tried"."""
    rows = [line.strip() for line in path.read_text().splitlines() if line.startswith("|")]
    for above, row in zip(rows, rows[1:] + [""]):
        cell = above.strip("|").rsplit("|", 1)[-1].strip()
        if not (row.startswith("|--") or above.startswith("|--") or TEST.search(cell) or cell.startswith("not tried")):
            yield f"{above[:60]}: no test, and not \"not tried\""


def wrong_answers(path):
    """Questions of a new user whose noun, in bold, their page does not have."""
    for row in path.read_text().splitlines():
        noun = re.search(r"\*\*(.+?)\*\*", row)
        for target in LINK.findall(row)[:1] if noun and row.startswith("|") else []:
            page = (path.parent / target.partition("#")[0]).read_text()
            if noun.group(1).lower() not in page.lower():
                yield f"{target} has nothing about \"{noun.group(1)}\""


def wrong_pages(path):
    for name in PAGE.findall(path.read_text(errors="replace")):
        if not (ROOT / name).exists():
            yield f"{name}: no such page"


def files():
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if not path.is_file() or parts[0] == "build" or parts[0].startswith("."):
            continue
        yield path


def main():
    wrong, seen = [], 0
    for path in files():
        problems = []
        if path.suffix == ".md":
            seen += 1
            problems += wrong_links(path)
            problems += wrong_pages(path)
        elif path.suffix in SOURCES or path.name == "Makefile":
            problems += wrong_pages(path)
        if path == ROOT / "docs" / "compatibility.md":
            problems += wrong_tests(path)
            problems += wrong_rows(path)
        if path == ROOT / "docs" / "README.md":
            problems += wrong_answers(path)
        wrong += [f"{path.relative_to(ROOT)}: {problem}" for problem in problems]
    print("\n".join(wrong))
    if not seen or wrong:
        sys.exit(1)


main()
