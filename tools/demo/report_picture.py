#!/usr/bin/env python3
"""docs/report.svg: the beginning of `lms report --html` for a short run of the demo on the simulated GPU. Expects everything
built.

    python3 tools/demo/report_picture.py                 # runs the demo
    python3 tools/demo/report_picture.py PAGE PICTURE    # of a page that there is
"""

import glob
import html
import html.parser
import os
import subprocess
import sys
import tempfile

WIDTH, HEIGHT = 960, 1530
VOID = {"meta", "br", "hr", "img", "input", "link"}
SCHEMES = """.page { background: #fff; color: #111; overflow: hidden }
@media (prefers-color-scheme: dark) { .page { background: #14171a; color: #ddd } }"""


class Xml(html.parser.HTMLParser):
    """The body of the page as XML, which is stricter; and its style."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.style, self.body, self.inside = "", [], None

    def handle_starttag(self, tag, attrs):
        if tag in ("style", "body"):
            self.inside = tag
        elif self.inside == "body":
            # The parser lowers all names; XML does not.
            names = {"viewbox": "viewBox", "preserveaspectratio": "preserveAspectRatio"}
            given = "".join(f' {names.get(name, name)}="{html.escape(value or "")}"' for name, value in attrs)
            space = ' xmlns="http://www.w3.org/2000/svg"' if tag == "svg" and not dict(attrs).get("xmlns") else ""
            self.body.append(f"<{tag}{space}{given}{'/' if tag in VOID else ''}>")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID and self.inside == "body":
            self.body.append(f"</{tag}>")

    def handle_endtag(self, tag):
        if tag in ("style", "body"):
            self.inside = None
        elif self.inside == "body" and tag not in VOID:
            self.body.append(f"</{tag}>")

    def handle_data(self, data):
        if self.inside == "style":
            self.style += data
        elif self.inside == "body":
            self.body.append(html.escape(data, quote=False))


def draw(page, picture):
    parsed = Xml()
    with open(page, encoding="utf-8") as file:
        parsed.feed(file.read())
    body = "".join(parsed.body)
    # What is below the picture is not shown.
    body = body[: body.index("<h2>Kernels")] if "<h2>Kernels" in body else body
    style = parsed.style.replace("body{", ".page{").replace("max-width:920px;margin:2em auto", "height:100%;box-sizing:border-box")
    with open(picture, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n<style>{style}\n{SCHEMES}</style>\n'
                   f'<foreignObject width="{WIDTH}" height="{HEIGHT}"><div xmlns="http://www.w3.org/1999/xhtml" class="page">'
                   f"{body}</div></foreignObject>\n</svg>\n")


def main():
    if len(sys.argv) == 3:
        return draw(*sys.argv[1:])
    os.chdir(os.path.join(os.path.dirname(__file__), "..", ".."))
    with tempfile.TemporaryDirectory() as work:
        trace, page = os.path.join(work, "trace"), os.path.join(work, "page.html")
        texts = ["README.md", *sorted(glob.glob("docs/*.md") + glob.glob("docs/*/*.md"))]
        subprocess.run(["build/lms", "run", "--sim", "--sim-memory", "48M", "--trace", trace, "--", "build/demo", "--memory",
                        "96M", "--steps", "40", *texts], check=True)
        subprocess.run(["build/lms", "report", trace, "--html", page], check=True)
        return draw(page, "docs/report.svg")


if __name__ == "__main__":
    main()
