"""lms plan of the program that replays a recorded step, against that program under the shim: in simulated time, within 5 %.

    planned.py [--print]      the other figures too
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/experiments"))

from machines import CONTEXT, MACHINES
from replay import BUILD, MIB, PINNING, SCALE, program, replay
from steps import Step

# step, n, machine, steps after which the same moves come again (as in make experiments)
CASES = (("vdsr", 96, "v100-pcie3", 6), ("vdsr", 128, "v100-nvlink2", 6), ("unet3d", 2744, "v100-pcie3", 6),
         ("resnet50", 1024, "rtx4090-pcie4", 16), ("diffusion", 16, "rtx4090-pcie4", 16))


def plan(step, machine, steps):
    """The row of the machine, with bytes and links of 1/64 as the live run has them."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "program")
        pathlib.Path(file).write_text("\n".join(program(step, machine, 1.0, "async")) + "\n")
        gpu = f"{machine.gpu},{machine.memory // SCALE},{machine.into / SCALE:.6f},{machine.out / SCALE:.6f}"
        environment = {"SIMCUDA_GPU": machine.gpu, "SIMCUDA_GRANULARITY": str(2 * MIB // SCALE),
                       "SIMCUDA_CONTEXT_BYTES": str(CONTEXT // SCALE), "SIMCUDA_PIN_GBPS": f"{PINNING / SCALE:.6f}",
                       "LMS_THRESHOLD": f"{2 * MIB // SCALE // 1024}"}
        command = [BUILD / "lms", "plan", "--json", "--gpu", gpu, "--context", "0", "--",
                   BUILD / "experiments/replay", file, str(steps), "async"]
        run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"{step.name}: {run.stderr}")
    return json.loads(run.stdout)["gpus"][0]


def main():
    wrong = False
    for name, n, machine, steps in CASES:
        step, machine = Step(name, n), MACHINES[machine]
        live = replay(step, machine, steps=steps)
        planned = plan(step, machine, steps)
        error = 1e3 * planned["seconds"] / live["ms"] - 1
        if "--print" in sys.argv:
            print(f"{name} {n}, {machine.title}: live {live['ms']:.0f} ms, planned {1e3 * planned['seconds']:.0f} ({100 * error:+.1f} %); "
                  f"in {live['in'] / 1e9:.1f} and {SCALE * planned['bytes_in'] / 1e9:.1f} GB, "
                  f"host {live['peak_host'] / 1e9:.1f} and {SCALE * planned['host_bytes'] / 1e9:.1f} GB")
        if abs(error) > 0.05:
            print(f"{name}, {n}, {machine.title}: planned {1e3 * planned['seconds']:.1f} ms, live {live['ms']:.1f} ms")
            wrong = True
        if planned["fits"]:
            print(f"{name}, {n}, {machine.title}: planned to fit")
            wrong = True
    sys.exit(wrong)


main()
