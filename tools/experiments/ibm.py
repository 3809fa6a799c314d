"""IBM's Large Model Support, as far as its published factors tell: each activation that the backward pass reads leaves
once it was made and returns when it is read. No kernel runs meanwhile. It does so whether or not there is room."""

from machines import step_ms


def swapped(step):
    """Bytes of what the forward pass allocates and the backward pass reads."""
    kernels = step.kernels()
    backward = next(k for k, kernel in enumerate(kernels) if kernel.name == "wgrad")
    made, at, total = {}, 0, 0
    for event in step.events:
        if hasattr(event, "what"):
            made.pop(event.id, None)
            if event.what == "A" and at < backward:
                made[event.id] = event.bytes
        else:
            if at >= backward:
                total += sum(made.pop(each, 0) for each in event.reads)
            at += 1
    return total


def eager_ms(step, machine, factor=1.0):
    return step_ms(step, machine, factor) + swapped(step) / 1e6 * (1 / machine.into + 1 / machine.out)
