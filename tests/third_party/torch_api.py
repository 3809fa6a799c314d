"""What torch_train.py asks of the shim by the Python package after each step, with "api" among its words. Without the shim every
call does nothing, and says so."""

import json
import os
import subprocess
import sys

import lms


def here(tensor):
    """The buffer that holds it."""
    found = [each for each in lms.snapshot() if each.address <= tensor.data_ptr() < each.address + each.bytes]
    assert len(found) == 1, (hex(tensor.data_ptr()), lms.snapshot())
    return found[0]


def moved(call, tensor):
    """Whether all of it went there; where other work uses it still it is asked for again."""
    return any(call(tensor) for _ in range(100))


def ask(tensor):
    told = lms.stats()
    assert told["launches"] > 0 and told["gpus"][0]["budget_bytes"] > 0, told
    assert moved(lms.evict, tensor) and here(tensor).resident_bytes == 0
    assert lms.prefetch(tensor) and here(tensor).resident_bytes == here(tensor).bytes
    assert lms.pin(tensor) and here(tensor).pinned_bytes > 0
    assert lms.unpin(tensor) and here(tensor).pinned_bytes == 0


def limit(tensor):
    half = lms.stats()["gpus"][0]["budget_bytes"] // 2
    assert lms.limit(half)
    assert lms.stats()["gpus"][0]["budget_bytes"] <= half, lms.stats()
    assert lms.limit(0)
    assert moved(lambda _: lms.pause(), tensor)
    assert sum(each.resident_bytes for each in lms.snapshot()) == 0
    assert lms.resume()


def look():
    """What lms top says of this process."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    top = subprocess.run([os.environ["LMS_PROGRAM"], "top", "--json", str(os.getpid())], capture_output=True, check=True, env=environment)
    [process] = json.loads(top.stdout)
    assert process["process"] == os.getpid() and process["launches"] > 0, process


def after(step, model):
    weight = next(model.parameters())
    if not lms.present():
        assert lms.stats() == {} and lms.snapshot() == []
        assert not (lms.pin(weight) or lms.evict(weight) or lms.limit(1 << 20) or lms.pause() or lms.resume())
    elif step == 1:
        ask(weight)
    elif step == 2:
        limit(weight)
        look()


def trace(path, stats):
    """What load_trace() tells of a run is what its counters say."""
    events = lms.load_trace(path)
    with open(stats, encoding="utf-8") as file:
        counted = json.load(file)
    for name, key in (("move in", "bytes_in"), ("move out", "bytes_out")):
        assert events[events["event"] == name]["bytes"].sum() == counted[key], (name, counted[key])
    assert (events["event"] == "launch").sum() == counted["launches"]
    assert {"forward", "backward", "optimizer"} <= set(events[events["event"] == "region"]["what"])


if __name__ == "__main__":
    trace(*sys.argv[1:])
