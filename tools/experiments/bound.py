"""The least that a step can take on a GPU that is too small, whoever moves the bytes and however well.

Take a stretch of the step, of any length. The bytes that it reads and did not make were there before. At most the
memory's size of them can have been on the GPU when the stretch began. The rest comes in before it ends, so it lasts at
least as long as that takes on the link. Likewise for the bytes that it made and that are still allocated: at its end at
most the memory's size is on the GPU, the rest has gone out. Each stretch also lasts as long as its kernels. All tensors
of a kernel are on the GPU while it runs, so where one begins there is also room for those that it makes.

A step repeats. Its bound is the sum over the stretches into which it is best cut. Tensors may be split, and copies run
both ways beside kernels. Nothing tells that bytes are of no use but a free: what is allocated is kept, and a kernel that
writes a tensor that stays counts as reading it.
"""

from machines import CONTEXT, kernel_ns

PLACES = 96  # at which a stretch may begin or end


def lives(step):
    """For each kernel [(tensor, bytes, read?, written?)], and what is freed before it. A tensor is its id and the kernel
    after its allocation."""
    now = {each.id: (each.id, 0) for each in step.changes("P")}
    size = {now[each.id]: each.bytes for each in step.changes("P")}
    touched, freed = [], [[]]
    for event in step.events:
        if not hasattr(event, "what"):
            reads, writes = ({now[each] for each in ids} for ids in (event.reads, event.writes))
            touched.append([(tensor, size[tensor], tensor in reads or tensor[1] == 0, tensor in writes)
                            for tensor in reads | writes])
            freed.append([])
        elif event.what == "A":
            now[event.id] = (event.id, len(touched) + 1)
            size[now[event.id]] = event.bytes
        elif event.what == "F":
            freed[-1].append(now[event.id])
    freed[0] += freed.pop()  # where the step ends the next begins
    return touched, freed


def new_bytes(touched):
    """Of each kernel the bytes of the tensors that it makes."""
    seen, made = set(), []
    for each in touched:
        made.append(sum(size for tensor, size, read, _ in each if not read and tensor not in seen))
        seen.update(tensor for tensor, *_ in each)
    return made


def fullest(step):
    """The kernel beside which the most is allocated."""
    now, allocated = 0, []
    for event in step.events:
        if hasattr(event, "what"):
            now += -event.bytes if event.what == "F" else event.bytes
        else:
            allocated.append(now)
    return allocated.index(max(allocated))


def bound_ms(step, machine, factor=1.0, memory=None):
    room = (memory or machine.memory) - CONTEXT
    costs = [kernel_ns(kernel, step, machine, factor) / 1e6 for kernel in step.kernels()]
    touched, freed = lives(step)
    rooms = [max(0, room - new) for new in new_bytes(touched)]
    total, count = sum(costs), len(costs)
    cuts, spent, turn = [0], 0.0, fullest(step)
    for k in range(1, count):
        spent += costs[k - 1]
        if spent >= total / PLACES or k == turn:
            cuts.append(k)
            spent = 0.0
    places = len(cuts)

    def lengths(first):
        """Of the stretches of 1, 2, ... places from here on, around the end of the step."""
        found, own = [], 0.0
        old = made = 0  # bytes that were there before, and that were made and are kept
        seen, fresh = set(), {}
        before = rooms[cuts[first]]  # beside what the first kernel makes

        def least(end):
            return max(own, (old - before) / machine.into / 1e6, (made - rooms[end]) / machine.out / 1e6)

        for k in range(count):
            at = (cuts[first] + k) % count
            made -= sum(fresh.pop(tensor, 0) for tensor in freed[at])
            if at in ends and k:
                found.append(least(at))
            own += costs[at]
            for tensor, size, read, written in touched[at]:
                if tensor not in seen and read:
                    old += size
                seen.add(tensor)
                if written:
                    made += size - fresh.get(tensor, 0)
                    fresh[tensor] = size
        made -= sum(fresh.pop(tensor, 0) for tensor in freed[cuts[first]])
        return [*found, least(cuts[first])]

    ends = set(cuts)
    stretch = [lengths(first) for first in range(places)]
    best = 0.0
    for start in range(0, places, 8):  # a step is cut at any of them first
        longest = [0.0] * (places + 1)
        for end in range(1, places + 1):
            longest[end] = max(longest[begin] + stretch[(start + begin) % places][end - begin - 1] for begin in range(end))
        best = max(best, longest[places])
    return best
