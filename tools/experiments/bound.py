"""The least that a step can take on a GPU that is too small, whoever moves the bytes and however well.

Take a stretch of the step, of any length. The bytes that it reads and did not make were there before. At most the
memory's size of them can have been on the GPU when the stretch began. The rest comes in before it ends, so it lasts at
least as long as that takes on the link. Likewise for the bytes that it made and a later kernel reads: at its end at most
the memory's size is on the GPU, the rest has gone out. Each stretch also lasts as long as its kernels.

A step repeats. Its bound is the sum over the stretches into which it is best cut. Tensors may be split, and copies run
both ways beside kernels. A kernel that writes a tensor that stays counts as reading it, for nothing tells that the old
bytes are of no use.
"""

from machines import CONTEXT, kernel_ns

PLACES = 96  # at which a stretch may begin or end


def lives(step):
    """For each kernel [(tensor, bytes, read?, written?)]; a tensor is its id and the kernel after its allocation."""
    now = {each.id: (each.id, 0) for each in step.changes("P")}
    size = {now[each.id]: each.bytes for each in step.changes("P")}
    touched = []
    for event in step.events:
        if not hasattr(event, "what"):
            reads, writes = ({now[each] for each in ids} for ids in (event.reads, event.writes))
            touched.append([(tensor, size[tensor], tensor in reads or tensor[1] == 0, tensor in writes)
                            for tensor in reads | writes])
        elif event.what == "A":
            now[event.id] = (event.id, len(touched) + 1)
            size[now[event.id]] = event.bytes
    return touched


def read_next(touched):
    """Of each kernel's tensors those that are read later, in this step or, if they stay, in the next."""
    later, needed = {}, [None] * len(touched)
    for _ in range(2):  # the second time with what the next step reads
        for k in reversed(range(len(touched))):
            needed[k] = {tensor for tensor, *_ in touched[k] if later.get(tensor)}
            for tensor, _, read, _ in touched[k]:
                later[tensor] = read
        later = {tensor: read for tensor, read in later.items() if tensor[1] == 0}
    return needed


def bound_ms(step, machine, factor=1.0, memory=None):
    room = (memory or machine.memory) - CONTEXT
    costs = [kernel_ns(kernel, step, machine, factor) / 1e6 for kernel in step.kernels()]
    touched = lives(step)
    needed = read_next(touched)
    total, count = sum(costs), len(costs)
    cuts, spent = [0], 0.0
    for k in range(1, count):
        spent += costs[k - 1]
        if spent >= total / PLACES:
            cuts.append(k)
            spent = 0.0
    places = len(cuts)

    def lengths(first):
        """Of the stretches of 1, 2, ... places from here on, around the end of the step."""
        found, own = [], 0.0
        old = made = 0  # bytes that were there before, and that were made and are needed later
        seen, fresh = set(), {}
        for k in range(count):
            at = (cuts[first] + k) % count
            if at in ends and k:
                found.append(max(own, (old - room) / machine.into / 1e6, (made - room) / machine.out / 1e6))
            own += costs[at]
            for tensor, size, read, written in touched[at]:
                if tensor not in seen and read:
                    old += size
                seen.add(tensor)
                made -= fresh.pop(tensor, 0) if written or tensor in fresh and tensor not in needed[at] else 0
                if written and tensor in needed[at]:
                    fresh[tensor] = size
                    made += size
        return [*found, max(own, (old - room) / machine.into / 1e6, (made - room) / machine.out / 1e6)]

    ends = set(cuts)
    stretch = [lengths(first) for first in range(places)]
    best = 0.0
    for start in range(0, places, 8):  # a step is cut at any of them first
        longest = [0.0] * (places + 1)
        for end in range(1, places + 1):
            longest[end] = max(longest[begin] + stretch[(start + begin) % places][end - begin - 1] for begin in range(end))
        best = max(best, longest[places])
    return best
