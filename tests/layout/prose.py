#!/usr/bin/env python3
"""Whether the documents, the comments of interfaces, and the messages keep to CONTRIBUTING.md's rules for prose.

usage: prose.py [ROOT]     prints each finding as FILE:LINE: what; exits with 1 if there is any

A marker with a reason, `words: REASON`, in a comment lets its line and the two below break the rules.
"""
import pathlib
import re
import statistics
import sys
from dataclasses import dataclass

LONGEST_SENTENCE = 40  # words
HIGHEST_MEAN = 18
LONGEST_MESSAGE = 160  # characters
PLACEHOLDER = 8  # characters that a value takes: a size, a number; what comes from outside may be longer
ALL_DOCUMENTS = 20000  # words

# The words of running text that these documents may have together: no tables, no code.
SIZES = {
    "README.md": 700,
    "docs/tutorial.md": 800,
    "docs/explanation/*.md": 4000,
    "docs/reference/*.md docs/compatibility.md": 5000,
}
HOW_TO = 300  # words each
CHANGELOG_LINES = 25

HEADERS = "shim/code/*.h shim/device/*.h shim/trace/*.h shim/util/*.h"

# Words that stand where the field has its own, and what to say.
NOT_OURS = {
    r"(?<!user )(?<!users )(?<!author )(?<!reader )who|whoever": "name the thread, the call or the person",
    r"nobody|somebody|anybody|everybody": "name the thread, the call or the person",
    r"told": "say: reported, notified, known",
    r"gone": "say: freed, evicted, destroyed, ended",
    r"soiled": "say: written",
    r"given up|gives up|let go|lets go": "say: freed, released, evicted",
    r"in vain": "say: without success",
}
LISTED = [(re.compile(rf"\b(?:{words})\b", re.I), advice) for words, advice in NOT_OURS.items()]
MARKER = re.compile(r"\bwords:\s*((?!-->|\*/)\S.*?)?\s*(?:-->|\*/|$)")


@dataclass
class Finding:
    path: str
    line: int
    what: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}"


@dataclass
class Sentence:
    lines: list  # of each word
    words: list

    @property
    def line(self):
        return self.lines[0]

    @property
    def text(self):
        return " ".join(self.words)


def excused(lines):
    """The numbers of the lines that a marker excuses; and of the markers that give no reason."""
    allowed, empty = set(), []
    for number, line in enumerate(lines, 1):
        found = MARKER.search(line) if "<!--" in line or "//" in line or "/*" in line else None
        if found and found.group(1):
            allowed |= {number, number + 1, number + 2}
        elif found:
            empty.append(number)
    return allowed, empty


def without_code(lines):
    """(number, line) of what is no code; fenced and indented code is left out."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not re.match(r"( {4}|\t)", line):
            yield number, line


def plain(line):
    """The words that a reader sees: a link is its text, code counts as one word."""
    line = re.sub(r"<!--.*?-->|<[^>]*>", "", line)
    line = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", line)
    return re.sub(r"`[^`]*`", "x", line)


def sentences(block):
    """Of (number, text) lines that belong together."""
    words = [(number, word) for number, text in block for word in text.split()]
    start = 0
    for i, (_, word) in enumerate(words):
        after = words[i + 1][1] if i + 1 < len(words) else ""
        ends = re.search(r"[.!?:][)\"*]*$", word) and re.match(r"[A-Z`(\"*x\[]", after)
        if i + 1 == len(words) or ends:
            yield Sentence(*map(list, zip(*words[start : i + 1])))
            start = i + 1


def blocks(lines):
    """Paragraphs and items of a document, each (whether it is running text, its lines)."""
    block = []
    for number, line in [*without_code(lines), (0, "")]:
        text = plain(line)
        table = line.lstrip().startswith("|")
        if not text.strip() or table or re.match(r"\s*(#|>|[-*] |\d+[.)] )", line):
            if block:
                yield True, block
            block = []
        if table:
            for cell in text.strip().strip("|").split("|"):
                yield False, [(number, cell)]
        elif text.strip() and not line.startswith("#"):
            block.append((number, re.sub(r"^\s*(>|[-*] |\d+[.)] )", "", text)))


def comments(lines):
    """Comments of C and C++, as blocks; a blank comment line ends one."""
    block, inside = [], False
    for number, line in enumerate([*lines, ""], 1):
        begins = "/*" in line and not inside
        text = None
        if inside or begins:
            text = re.sub(r"^\s*\*(?!/)", "", line if inside else line.split("/*", 1)[1])
            inside = "*/" not in line
            text = text.split("*/")[0]
        else:
            found = re.search(r"(?:^|\s)//(.*)$", line)
            text = found.group(1) if found else None
        own_line = bool(re.match(r"\s*(//|\*|/\*)", line)) or (text is not None and not begins and line.strip() == text.strip())
        item = text is not None and re.match(r"\s*- ", text)
        if block and (text is None or not text.strip() or not own_line or item):
            yield block
            block = []
        if text and text.strip():
            block.append((number, re.sub(r"`[^`]*`", "x", text)))
    if block:
        yield block


def about(sentence, listed):
    """(line, what) of all that is wrong with a sentence."""
    if len(sentence.words) > LONGEST_SENTENCE:
        yield sentence.line, f"a sentence of {len(sentence.words)} words; at most {LONGEST_SENTENCE}"
    for pattern, advice in LISTED if listed else []:
        for found in pattern.finditer(sentence.text):
            line = sentence.lines[sentence.text.count(" ", 0, found.start())]
            yield line, f'"{found.group()}": {advice}'


def document(path, lines, listed):
    """Findings of one document, and the words of its running text."""
    allowed, empty = excused(lines)
    findings = [Finding(path, number, "a marker without a reason") for number in empty]
    lengths = []
    for running, block in blocks(lines):
        for sentence in sentences(block):
            if running and len(sentence.words) >= 4:
                lengths.append(len(sentence.words))
            if not allowed.intersection(number for number, _ in block):
                findings += [Finding(path, *each) for each in about(sentence, listed)]
    if lengths and statistics.mean(lengths) > HIGHEST_MEAN:
        findings.append(Finding(path, 1, f"{statistics.mean(lengths):.1f} words a sentence; at most {HIGHEST_MEAN}"))
    return findings, sum(lengths)


def interface(path, lines):
    """Findings of the comments of a source."""
    allowed, empty = excused(lines)
    findings = [Finding(path, number, "a marker without a reason") for number in empty]
    for block in comments(lines):
        if allowed.intersection(number for number, _ in block):
            continue
        for sentence in sentences(block):
            findings += [Finding(path, *each) for each in about(sentence, True)]
    return findings


LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
RAW = re.compile(r'R"\(.*?\)"', re.S)


def texts(source):
    """(place, end, text) of each literal, with those that follow one another as one."""
    joined = []
    for literal in LITERAL.finditer(source):
        between = source[joined[-1][1] : literal.start()] if joined else "?"
        text = literal.group(1).replace("\\n", "").replace('\\"', '"')
        if joined and not between.strip():
            place, _, before = joined.pop()
            joined.append((place, literal.end(), before + text))
        else:
            joined.append((literal.start(), literal.end(), text))
    return joined


def arguments(source, place):
    """What stands between the commas of a call, from behind its first literal to its end."""
    found, depth, begin = [], 0, place
    while place < len(source) and depth >= 0:
        literal = LITERAL.match(source, place)
        if literal:
            place = literal.end()
            continue
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(source[place], 0)
        if depth < 0 or (depth == 0 and source[place] == ","):
            found.append(source[begin:place])
            begin = place + 1
        place += 1
    return found[1:]


def length(text, values):
    """As it is written behind "lms: ": values are of the usual size, or the longest text that they may be."""
    shown = len(re.sub(r"\{[^{}]*\}", "", text)) + (0 if text.startswith("lms") else len("lms: "))
    sizes = [max([PLACEHOLDER, *(len(text) for *_, text in texts(value))]) for value in values]
    return shown + sum(sizes[: text.count("{")]) + PLACEHOLDER * max(0, text.count("{") - len(sizes))


def messages(path, source):
    """Literals of several words are messages: one line each."""
    allowed, empty = excused(source.split("\n"))
    findings = [Finding(path, number, "a marker without a reason") for number in empty]
    source = RAW.sub(lambda found: "\n" * found.group().count("\n"), source)
    source = re.sub(r"(?m)^[ \t]*(#|//).*$", "", source)
    for place, end, text in texts(source):
        line = source.count("\n", 0, place) + 1
        if line in allowed or len(text.split()) < 4 or text.startswith("<"):  # markup
            continue
        size = length(text, arguments(source, end) if "{" in text else [])
        if size > LONGEST_MESSAGE:
            findings.append(Finding(path, line, f"a message of {size} characters; at most {LONGEST_MESSAGE}"))
        for pattern, advice in LISTED:
            for found in pattern.finditer(text):
                findings.append(Finding(path, line, f'"{found.group()}": {advice}'))
    return findings


def glob(root, patterns):
    found = sorted({path for pattern in patterns.split() for path in root.glob(pattern) if path.is_file()})
    return [path for path in found if "measurements" not in path.parts]


def check(root):
    findings, words = [], {}
    own = glob(root, "README.md CONTRIBUTING.md docs/**/*.md")
    for path in own + glob(root, "shim/**/README.md tools/**/README.md"):
        name = path.relative_to(root).as_posix()
        found, words[name] = document(name, path.read_text().split("\n"), path in own)
        findings += found

    def too_long(pages, most):
        count = sum(words[page] for page in pages)
        if count > most:
            findings.append(Finding(pages[0], 1, f"{count} words in {', '.join(pages)}; at most {most}"))

    for patterns, most in SIZES.items():
        pages = [path.relative_to(root).as_posix() for path in glob(root, patterns)]
        too_long(pages, most) if pages else None
    for path in glob(root, "docs/how-to/*.md"):
        too_long([path.relative_to(root).as_posix()], HOW_TO)
    if sum(words.values()) > ALL_DOCUMENTS:
        findings.append(Finding("README.md", 1, f"{sum(words.values())} words in all documents; at most {ALL_DOCUMENTS}"))
    for path in glob(root, "CHANGELOG.md"):
        if path.read_text().count("\n") > CHANGELOG_LINES:
            findings.append(Finding("CHANGELOG.md", CHANGELOG_LINES + 1, f"at most {CHANGELOG_LINES} lines"))
    for path in glob(root, f"include/**/*.h policy/*.h policy/*.cpp {HEADERS}"):
        findings += interface(path.relative_to(root).as_posix(), path.read_text().split("\n"))
    for path in glob(root, "shim/**/*.h shim/**/*.cpp policy/*.h policy/*.cpp tools/lms/*.h tools/lms/*.cpp"):
        findings += messages(path.relative_to(root).as_posix(), path.read_text())
    return findings


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    findings = check(root)
    print("".join(f"{finding}\n" for finding in findings), end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
