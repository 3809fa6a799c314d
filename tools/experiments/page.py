#!/usr/bin/env python3
"""Writes what make experiments found (BUILD/experiments/results.json, ddl.json) as docs/experiments.svg and into
docs/experiments.md and README.md, between their marks `<!-- generated: NAME -->` and `<!-- end -->`, with the models beside it.
Series that are not in the results keep their text."""

import json
import pathlib
import re

from bound import bound_ms
from experiments import ALLOCATORS, SERIES
from ibm import eager_ms, swapped
from machines import GB, MACHINES, step_ms
from plot import Panel, drawing
from pools import POOLS, as_placed
from replay import BUILD, PINNING
from steps import Step
from uvm import uvm_ms

IBM_DDL = {4: "98.3 %"}
DOCS = pathlib.Path(__file__).parents[2] / "docs"


def times(value, base):
    return f"{value / base:.2f}x"


def rates(point):
    """GPU busy, and GB/s each way, with the shim."""
    shim = point["shim"]
    busy = min(1, point["ms"] / shim["ms"])
    return [f"{100 * busy:.0f} %", *(f"{shim[way] / 1e6 / shim['ms']:.1f}" for way in ("in", "out"))]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def with_models(point):
    """The point with what no run is needed for."""
    series = SERIES[point["series"]]
    step, machine = Step(series.step, series.n(point["size"])), MACHINES[series.machine]
    models = {"bound": max(bound_ms(step, machine, series.factor), point["ms"]), "uvm": uvm_ms(step, machine, series.factor)}
    return point | models | ({"eager": eager_ms(step, machine, series.factor)} if series.eager else {})


def series_table(key, points):
    series, machine = SERIES[key], MACHINES[SERIES[key].machine]
    rows = []
    for point in points:
        ms = point["ms"]
        shim, size = point["shim"], point["size"]
        row = [f"{size}^3" if series.x == "cube" else size, f"{point['needs'] / GB:.1f}", f"{ms:.0f}",
               "runs" if point["bare"] else "out of memory", f"**{times(shim['ms'], ms)}**", times(point["lru"]["ms"], ms)]
        if series.eager:
            row.append(times(point["eager"], ms))
        row.append(times(point["uvm"], ms))
        if series.ibm:
            row.append(f"{series.ibm[size]:.2f}x" if size in series.ibm else "")
        rows.append([*row, times(point["bound"], ms), f"{shim['ms'] / point['bound']:.3f}", *rates(point),
                     *(f"{shim[peak] / GB:.1f}" for peak in ("peak_gpu", "peak_host"))])
    head = [series.x, "GB needed", "ms in memory", "no shim", "shim", "`lru`",
            *(["IBM's way, modelled"] if series.eager else []), "Unified Memory, modelled", *(["IBM"] if series.ibm else []),
            "bound", "shim / bound", "GPU busy", "GB/s in", "out", "GB on the GPU", "on the host"]
    about = f"{machine.memory >> 30} GiB, {machine.into:g} GB/s in and {machine.out:g} out."
    return f"### {series.title}\n\n{about}\n\n{table(head, rows)}"


def kept_bound_ms(point):
    """The bound where the allocator tells nothing of tensors."""
    if point["allocator"] not in POOLS:
        return point["bound"]
    series = SERIES[point["series"]]
    step, machine = Step(series.step, series.n(point["size"])), MACHINES[series.machine]
    return max(bound_ms(as_placed(step, point["allocator"]), machine, series.factor), point["ms"])


def allocators_table(points):
    rows = [[ALLOCATORS[point["allocator"]], *(times(point[how]["ms"], point["ms"]) for how in ("shim", "lru")),
             *(f"{point['shim']['ms'] / bound:.3f}" for bound in (point["bound"], kept_bound_ms(point))), *rates(point)]
            for point in sorted(points, key=lambda point: list(ALLOCATORS).index(point["allocator"]))]
    return table(["allocator", "shim", "`lru`", "shim / bound", "contents kept", "GPU busy", "GB/s in", "out"], rows)


def ddl_table():
    """Of several GPUs; IBM's efficiency at as many."""
    rows = []
    for row in json.loads((BUILD / "experiments/ddl.json").read_text()):
        ibm = IBM_DDL.get(row["ranks"], "") if row["series"] == "unet3d-nvlink2" else ""
        rows.append([MACHINES[SERIES[row["series"]].machine].title, row["ranks"], f"{row['ms']:.0f}",
                     f"{100 * row['efficiency']:.1f} %", ibm, f"{row['gpu'] / GB:.1f}",
                     f"{row['host'] / GB:.1f} of {row['host_limit'] / GB:.0f}"])
    return table(["machine", "GPUs", "ms a step", "efficiency", "IBM", "GB on each GPU", "on the host, for each"], rows)


def model_table():
    """IBM's way, modelled, against what IBM published."""
    rows = []
    for what, key, size, own, busy in (("3D U-Net 192^3, PCIe 3", "unet3d-pcie3", 192, 3.14, 29.1),
                                       ("3D U-Net 192^3, NVLink 2", "unet3d-nvlink2", 192, 1.26, 73.5),
                                       ("VDSR, NVLink 2", "vdsr-nvlink2", 8, 2.75, None)):
        series, machine = SERIES[key], MACHINES[SERIES[key].machine]
        step = Step(series.step, series.n(size))
        compute, eager = step_ms(step, machine, series.factor), eager_ms(step, machine, series.factor)
        moved = swapped(step)
        rows.append([what, f"{own:.2f}x", times(eager, compute), f"{busy} %" if busy else "-",
                     f"{100 * compute / eager:.1f} %", f"{moved / GB:.1f}", f"{compute:.0f}",
                     f"{2 * moved / 1e6 / (own - 1) / compute:.1f}"])
    return table(["", "IBM, time", "modelled", "IBM, GPU busy", "modelled", "GB moved each way", "ms of kernels",
                  "GB/s that would give IBM's time"], rows)


def vdsr_text():
    """What the model leaves of IBM's time, and what page-locking would do in it."""
    series = SERIES["vdsr-nvlink2"]
    step, machine = Step(series.step, series.n(8)), MACHINES[series.machine]
    rest = series.ibm[8] * step_ms(step, machine) - eager_ms(step, machine)
    return (f"What the model leaves of a step of batch 8 is {rest:.0f} ms. Page-locking takes as long for {rest * PINNING / 1e3:.1f} of "
            f"the {swapped(step) / GB:.1f} GB.")


def uvm_text():
    """What more faults a block cost."""
    series = SERIES["unet3d-pcie3"]
    step, machine = Step(series.step, series.n(192)), MACHINES[series.machine]
    compute = step_ms(step, machine, series.factor)
    one, six = (times(uvm_ms(step, machine, series.factor, faults), compute) for faults in (1, 6))
    return f"takes {six} instead of {one}"


def panel(key, points):
    series = SERIES[key]
    lines = {"uvm": [(point["size"], point["uvm"] / point["ms"]) for point in points]}  # below the others
    lines |= {how: [(point["size"], point[how]["ms"] / point["ms"]) for point in points] for how in ("lru", "shim")}
    lines["bound"] = [(point["size"], point["bound"] / point["ms"]) for point in points]
    if series.eager:
        lines["eager"] = [(point["size"], point["eager"] / point["ms"]) for point in points]
    fits = max((point["size"] for point in points if point["bare"]), default=None)
    return Panel(series.title, series.x, lines, list(series.ibm.items()), fits)


def headlines(results):
    """What the README says of the two steps that IBM published."""

    def point(key, size):
        wanted = (key, size, SERIES[key].allocator)
        return next((each for each in results if (each["series"], each["size"], each["allocator"]) == wanted), None)

    unet3d, vdsr = point("unet3d-pcie3", 192), point("vdsr-nvlink2", 32)
    found = {}
    if unet3d:
        found["unet3d"] = f"{unet3d['shim']['ms'] / unet3d['ms']:.2f} times as long, with the GPU {rates(unet3d)[0]} busy"
    if vdsr:
        found["vdsr"] = f"{vdsr['shim']['ms'] / vdsr['ms']:.2f} times as long"
    return found


def fill(file, blocks):
    """Writes each block between its marks."""
    text = file.read_text()
    for name, block in blocks.items():
        place = re.compile(f"(<!-- generated: {name} -->)(\n?).*?(<!-- end -->)", re.S)
        text, found = place.subn(rf"\g<1>\g<2>{block}\g<2>\g<3>", text)
        if found != 1:
            raise RuntimeError(f"{file.name} has no place for {name}")
    file.write_text(text)


def main():
    results = [with_models(point) for point in json.loads((BUILD / "experiments/results.json").read_text())]
    blocks, panels = {"model": model_table(), "uvm": uvm_text(), "vdsr-rest": vdsr_text()}, []
    if (BUILD / "experiments/ddl.json").exists():
        blocks["ddl"] = ddl_table()
    for key in SERIES:
        points = [each for each in results if each["series"] == key and each["allocator"] == SERIES[key].allocator]
        if points:
            blocks[key] = series_table(key, points)
            panels.append(panel(key, points))
    by_allocator = [point for point in results if point["series"] == "unet3d-pcie3" and point["size"] == 192]
    if by_allocator:
        blocks["allocators"] = allocators_table(by_allocator)
    fill(DOCS / "experiments.md", blocks)
    fill(DOCS.parent / "README.md", headlines(results))
    if len(panels) == len(SERIES):
        (DOCS / "experiments.svg").write_text(drawing(panels))


if __name__ == "__main__":
    main()
