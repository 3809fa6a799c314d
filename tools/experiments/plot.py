"""Panels of lines as one SVG that follows the reader's light or dark."""

import dataclasses
import math

WIDTH, HEIGHT, COLUMNS = 300, 200, 3
LEFT, TOP, RIGHT, BOTTOM = 38, 30, 12, 36  # of a panel, around its lines
MOST = 6  # times as long, the top of a panel
LEGEND = {"shim": "the shim", "lru": "with lru", "eager": "IBM's way, modelled", "uvm": "Unified Memory, modelled",
          "bound": "bound", "ibm": "IBM's own", "room": "runs without it"}
COLOURS = (  # light, dark
    ("svg", "background", "#fff", "#14171a"), ("text", "fill", "#222", "#ddd"), (".grid", "stroke", "#ddd", "#3a3f44"),
    (".room", "fill", "#e4efe4", "#1e2c22"), (".shim", "stroke", "#0a6fc2", "#5db2ff"),
    (".lru", "stroke", "#c26a0a", "#f0a050"),
    (".eager", "stroke", "#b3261e", "#ff8077"), (".uvm", "stroke", "#5b7f2b", "#a5c96b"),
    (".bound", "stroke", "#777", "#999"), (".ibm", "fill", "#b3261e", "#ff8077"),
)
LIGHT, DARK = (" ".join(f"{what} {{ {how}: {shades[k]} }}" for what, how, *shades in COLOURS) for k in range(2))
STYLE = f"""svg {{ font: 11px sans-serif }} .title {{ font-weight: bold }} polyline {{ fill: none; stroke-width: 2 }}
.bound {{ stroke-dasharray: 4 3 }} {LIGHT}
@media (prefers-color-scheme: dark) {{ {DARK} }}
"""


@dataclasses.dataclass
class Panel:
    title: str
    x: str
    lines: dict  # {name: [(x, times as long)]}
    points: list  # IBM's
    fits: float | None  # the largest that runs without the shim


def label(x, y, text, anchor="middle", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{text}</text>'


def polyline(name, places):
    return f'<polyline class="{name}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'


def drawn(panel):
    sizes = [x for x, _ in panel.lines["shim"]]

    def across(x):
        return LEFT + (x - sizes[0]) / (sizes[-1] - sizes[0]) * (WIDTH - LEFT - RIGHT)

    def up(value):
        return HEIGHT - BOTTOM - math.log(min(max(value, 1), MOST)) / math.log(MOST) * (HEIGHT - TOP - BOTTOM)

    parts = [label(WIDTH / 2, 18, panel.title, kind="title"), label(WIDTH / 2, HEIGHT - 6, panel.x)]
    if panel.fits:
        room = across(panel.fits) - LEFT
        parts.append(f'<rect class="room" x="{LEFT}" y="{TOP}" width="{room:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>')
    for value in (1, 1.5, 2, 3, 4, MOST):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value):.1f}" y2="{up(value):.1f}"/>')
        parts.append(label(LEFT - 5, up(value) + 4, f"{value}x", "end"))
    parts += [label(across(x), HEIGHT - 21, x) for x in sizes]
    parts += [polyline(name, [(across(x), up(value)) for x, value in line]) for name, line in panel.lines.items()]
    parts += [f'<circle class="ibm" cx="{across(x):.1f}" cy="{up(value):.1f}" r="4"/>' for x, value in panel.points]
    return parts


def legend(y):
    parts, x = [], 12
    for name, text in LEGEND.items():
        if name == "ibm":
            parts.append(f'<circle class="ibm" cx="{x + 12}" cy="{y - 4}" r="4"/>')
        elif name == "room":
            parts.append(f'<rect class="room" x="{x}" y="{y - 12}" width="24" height="14"/>')
        else:
            parts.append(polyline(name, [(x, y - 4), (x + 24, y - 4)]))
        parts.append(label(x + 30, y, text, "start"))
        x += 48 + 6 * len(text)
    return parts


def drawing(panels):
    height = HEIGHT * math.ceil(len(panels) / COLUMNS)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * COLUMNS} {height + 30}"><style>{STYLE}</style>']
    for k, panel in enumerate(panels):
        parts += [f'<g transform="translate({k % COLUMNS * WIDTH} {k // COLUMNS * HEIGHT})">', *drawn(panel), "</g>"]
    return "\n".join([*parts, *legend(height + 18), "</svg>", ""])
