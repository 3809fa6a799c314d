"""prose.py finds what breaks each of its rules, with file and line, and nothing else."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

DOCS = "docs"  # apart, for tests/layout/docs.py looks for pages that are named
CHECK = pathlib.Path(__file__).with_name("prose.py")


def words(count):
    return "Word " + " ".join(["word"] * (count - 1)) + "."


def findings(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        ran = subprocess.run([sys.executable, "-B", CHECK, folder], capture_output=True, text=True)
    lines = ran.stdout.splitlines()
    assert ran.stderr == "" and ran.returncode == (1 if lines else 0), ran
    return lines


class Prose(unittest.TestCase):
    def expect(self, files, *expected):
        found = findings(files)
        self.assertEqual(len(found), len(expected), found)
        for line, begin in zip(found, expected):
            self.assertTrue(line.startswith(begin), line)

    def test_documents_may_have_code_tables_and_short_sentences(self):
        self.expect({f"{DOCS}/a.md": f"# Title\n\n{words(18)} {words(18)}\n\n```\n{words(90)} who told\n```\n\n| a | b |\n|---|---|\n"
                     f"| {words(40)} | `who told` |\n\n- {words(12)}\n- {words(12)}\n"})

    def test_long_sentence(self):
        self.expect({f"{DOCS}/a.md": f"{words(4)}\n\n{words(4)}\n{words(41)}\n{words(4)}\n{words(4)}\n"}, f"{DOCS}/a.md:4: a sentence of 41 words")

    def test_long_sentence_over_lines_and_in_a_table(self):
        half = "word " * 21
        self.expect({f"{DOCS}/a.md": f"- {words(4)}\n- Word {half}\n  {half}\n- {words(4)}\n- {words(4)}\n| x | {words(41)} |\n"},
                    f"{DOCS}/a.md:2: a sentence of 43 words", f"{DOCS}/a.md:6: a sentence of 41 words")

    def test_mean(self):
        self.expect({f"{DOCS}/a.md": f"{words(18)} {words(19)}\n"}, f"{DOCS}/a.md:1: 18.5 words a sentence")

    def test_words_that_are_not_ours(self):
        self.expect({f"{DOCS}/a.md": "The thread that waits.\n\nThe one\nwho waits. Nobody is told.\n\nThe user who waits.\n"},
                    f'{DOCS}/a.md:4: "who"', f'{DOCS}/a.md:4: "Nobody"', f'{DOCS}/a.md:4: "told"')

    def test_measurements_are_logs(self):
        self.expect({f"{DOCS}/measurements/a.md": f"{words(60)} Nobody was told.\n"})

    def test_marker(self):
        self.expect({f"{DOCS}/a.md": f"<!-- words: a quotation -->\n{words(15)}\nNobody knows.\n"})
        self.expect({f"{DOCS}/a.md": "<!-- words: -->\nNobody knows.\n"}, f"{DOCS}/a.md:1: a marker without a reason", f'{DOCS}/a.md:2: "Nobody"')

    def test_sizes(self):
        text = f"{words(10)}\n\n"
        self.expect({"README.md": text * 71}, "README.md:1: 710 words in README.md; at most 700")
        self.expect({f"{DOCS}/how-to/a.md": text * 30, f"{DOCS}/how-to/b.md": text * 31},
                    f"{DOCS}/how-to/b.md:1: 310 words in {DOCS}/how-to/b.md; at most 300")
        self.expect({f"{DOCS}/explanation/a.md": text * 200, f"{DOCS}/explanation/b.md": text * 201},
                    f"{DOCS}/explanation/a.md:1: 4010 words in {DOCS}/explanation/a.md, {DOCS}/explanation/b.md; at most 4000")
        self.expect({f"{DOCS}/a.md": text * 2001}, "README.md:1: 20010 words in all documents; at most 20000")
        self.expect({"CHANGELOG.md": "- one\n" * 26}, "CHANGELOG.md:26: at most 25 lines")

    def test_comments_of_interfaces(self):
        for name in ("include/lms/a.h", "shim/device/port.h", "policy/a.cpp"):
            self.expect({name: f"/* {words(4)}\n *\n * Nobody knows. */\nint a;  // soiled memory\nint b;\n// {words(41)}\nint told;\n"},
                        f'{name}:3: "Nobody"', f'{name}:4: "soiled"', f"{name}:6: a sentence of 41 words")
        self.expect({"include/lms/a.h": "int a;  // words: its name in CUDA; nobody\n", "shim/engine/a.h": "// Nobody knows.\n"})

    def test_messages(self):
        long = "four words and more " * 8
        self.expect({"shim/a/a.cpp": f'f();\nlog::warn("{long}"\n    "{{}}", value);\nlog::warn("{long[:150]}");\n'},
                    "shim/a/a.cpp:2: a message of 173 characters")
        self.expect({"tools/lms/a.cpp": 'fail("the program is told of it, too late\\n");\n'}, 'tools/lms/a.cpp:1: "told"')

    def test_messages_by_the_longest_value(self):
        text = "four words and more " * 5 + "{} and {}"
        self.expect({"policy/a.cpp": f'log::warn("{text}", n, b ? "{"x" * 40}" : "");\n'})
        self.expect({"policy/a.cpp": f'log::warn("{text}", n, b ? "{"x" * 50}" : "");\n'}, "policy/a.cpp:1: a message of 168 characters")


if __name__ == "__main__":
    unittest.main()
