#!/usr/bin/env python3
"""Makes SVGs of matplotlib readable for readers of light and dark pages alike.

    python3 tools/demo/schemes.py docs/residency.svg docs/pytorch.svg
"""

import pathlib
import sys

DARK = """
@media (prefers-color-scheme: dark) {
 text { fill: #ddd }
 [style*="fill: #ffffff"] { fill: #14171a !important }
 [style*="stroke: #000000"] { stroke: #ddd !important }
}
"""
STYLE_ENDS = "</style>"


def follow_reader(path):
    """Once for each file; text must be text (svg.fonttype none)."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    if DARK not in text:
        pathlib.Path(path).write_text(text.replace(STYLE_ENDS, DARK + STYLE_ENDS, 1), encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        follow_reader(each)
