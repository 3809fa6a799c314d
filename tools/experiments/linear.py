"""A bound that is tighter than bound.py's, by a linear program, and takes seconds to minutes: for steps of some 100 kernels.

    linear.py googlenet 40 p100-pcie3

Moves are fluid: any part of a tensor may move at any time, both ways at once, copies out beside kernels too. But a tensor is on
the GPU as a whole while a kernel uses it, so what the next kernel lacks comes in only as far as this one's tensors leave room.
No schedule of the step, which repeats, is faster. Needs SciPy (Debian: python3-scipy).
"""

import collections
import itertools
import sys

import numpy
from scipy import optimize, sparse

from bound import lives
from machines import CONTEXT, kernel_ns


# A tensor: megabytes, and of each kernel that uses it (read?, written?). It lives from the first of them to before the kernel `end`,
# which may be in a later step; None: it stays.
Life = collections.namedtuple("Life", "size uses end")


class Program:
    """What is to be least, and what holds."""

    def __init__(self):
        self.most = []  # of each variable; None: nothing bounds it
        self.parts = {"eq": ([], [], [], []), "ub": ([], [], [], [])}  # rows, columns, factors; right sides

    def variable(self, most=None):
        self.most.append(most)
        return len(self.most) - 1

    def add(self, kind, terms, right):
        rows, columns, factors, rights = self.parts[kind]
        for variable, factor in terms:
            rows.append(len(rights))
            columns.append(variable)
            factors.append(factor)
        rights.append(right)

    def least(self, variables):
        count = len(self.most)
        costs = numpy.zeros(count)
        costs[variables] = 1
        given = {}
        for kind, (rows, columns, factors, rights) in self.parts.items():
            given["A_" + kind] = sparse.csr_matrix((factors, (rows, columns)), shape=(len(rights), count))
            given["b_" + kind] = rights
        found = optimize.linprog(costs, bounds=[(0, most) for most in self.most], method="highs", **given)
        if found.status != 0:
            raise RuntimeError(found.message)
        return found.fun


def merged(step, machine, factor):
    """Kernels that use the same tensors one after another are as one: between them none need leave. [(ms, uses)], and what is
    freed before each."""
    costs = (kernel_ns(kernel, step, machine, factor) / 1e6 for kernel in step.kernels())
    touched, freed = lives(step)
    kernels, before = [], []
    for cost, uses, gone in zip(costs, touched, freed, strict=True):
        same = kernels and not gone and [each[0] for each in kernels[-1][1]] == [each[0] for each in uses]
        if same and all(was or not reads for (_, _, was, _), (_, _, reads, _) in zip(kernels[-1][1], uses)):
            written = [(*now[:3], now[3] or then[3]) for now, then in zip(kernels[-1][1], uses)]
            kernels[-1] = (kernels[-1][0] + cost, written)
        else:
            kernels.append((cost, uses))
            before.append(gone)
    return kernels, before


def lives_of(kernels, freed):
    """The lives of the tensors of merged()."""
    uses, ends = collections.defaultdict(dict), {}
    for k, (_, touched) in enumerate(kernels):
        for tensor, size, read, written in touched:
            uses[tensor, size / 1e6][k] = (read, written)
    for k, gone in enumerate(freed):
        ends.update(dict.fromkeys(gone, k or len(kernels)))
    for (tensor, size), own in uses.items():
        stays = tensor[1] == 0
        yield Life(size, own, None if stays else max(ends.get(tensor, len(kernels)), max(own) + 1))


def linear_bound_ms(step, machine, factor=1.0, memory=None):
    kernels, freed = merged(step, machine, factor)
    room = ((memory or machine.memory) - CONTEXT) / 1e6
    return least_ms([cost for cost, _ in kernels], lives_of(kernels, freed), room, machine.into, machine.out)


def least_ms(costs, lives_in_step, room, into_speed, out_speed):
    """Of a step of kernels that take `costs`, in `room` megabytes. A thousand million bytes a second are a megabyte a millisecond."""
    count = len(costs)
    program = Program()
    waits = [program.variable() for _ in costs]  # behind each
    # By phase (a kernel, and the wait behind it) and kernel: bytes in, bytes out; and what is on the GPU as each begins.
    moved = {key: [] for key in itertools.product(("run", "wait"), range(count), ("in", "out"))}
    there = {key: [] for key in itertools.product(("run", "wait"), range(count))}

    def goes_on(phase, k, now, then, made=False):
        """Of a tensor's (clean, dirty) parts: more come in, dirty ones are copied out, clean ones are dropped."""
        into, out, dropped = (program.variable() for _ in range(3))
        moved[phase, k % count, "in"].append(into)
        moved[phase, k % count, "out"].append(out)
        program.add("eq", [(then[0], 1), (now[0], -1), (into, -1), (out, -1), (dropped, 1)], 0)
        new = [(program.variable(), -1)] if made else []  # what is written whole need not come in
        program.add("eq", [(then[1], 1), (now[1], -1), (out, 1), *new], 0)

    for size, own, end in lives_in_step:
        alive = range(count) if end is None else range(min(own), end)
        parts = {key: (program.variable(size), program.variable(size)) for key in itertools.product(("run", "wait"), alive)}
        for (phase, k), both in parts.items():
            there[phase, k % count] += both
            program.add("ub", [(each, 1) for each in both], size)
        for k in alive:
            now, then = parts["run", k], parts["wait", k]
            if k in own:
                program.add("eq", [(each, 1) for each in now], size)
                program.add("eq", [(each, 1) for each in then], size)
            if k in own and own[k][1]:
                program.add("eq", [(then[1], 1)], size)
            else:
                goes_on("run", k, now, then)
            following = (k + 1) % count if end is None else k + 1
            if end is None or k != alive[-1]:
                made = following in own and own[following] == (False, True)
                goes_on("wait", k, then, parts["run", following], made)
    for k, cost in enumerate(costs):
        for way, speed in (("in", into_speed), ("out", out_speed)):
            program.add("ub", [(each, 1) for each in moved["run", k, way]], speed * cost)
            program.add("ub", [*((each, 1) for each in moved["wait", k, way]), (waits[k], -speed)], 0)
        for phase in ("run", "wait"):
            program.add("ub", [(each, 1) for each in there[phase, k]], room)
    return sum(costs) + program.least(waits)


def main():
    from experiments import SERIES
    from machines import MACHINES
    from steps import Step

    name, size, machine = sys.argv[1:]
    factor = next(each.factor for each in SERIES.values() if each.step == name)
    print(f"{linear_bound_ms(Step(name, int(size)), MACHINES[machine], factor):.1f} ms")


if __name__ == "__main__":
    main()
