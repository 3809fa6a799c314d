"""Traces of Python programs name its files and lines. Run by python_frames_test.cpp: python_frames.py SHIM DRIVER LMS."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

# Without the GIL and with it: ctypes lets go of it in calls of a CDLL alone.
PROGRAM = """\
import ctypes
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
holding = ctypes.PyDLL("libcuda.so.1")


def allocate(size, library=cuda):
    address = ctypes.c_uint64()
    if library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) != 0:
        sys.exit(f"no {size} bytes")


class Größe:
    def 生成(self, size):
        allocate(size)  # of a method


def deep(size, depth):
    if depth:
        deep(size, depth - 1)
    else:
        allocate(size)  # deepest


def generated(size):
    yield allocate(size)


device, context = ctypes.c_int(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
cuda.cuCtxSetCurrent(context)
MIB = 1 << 20
allocate(1 * MIB)
allocate(2 * MIB, holding)
Größe().生成(3 * MIB)
deep(4 * MIB, 40)
list(generated(5 * MIB))
list(map(lambda size: allocate(size, holding), [6 * MIB]))
try:
    raise KeyError("kept")
except KeyError:
    allocate(7 * MIB, holding)
    if not isinstance(sys.exc_info()[1], KeyError):
        sys.exit("the exception is another")


def in_thread():
    cuda.cuCtxSetCurrent(context)
    allocate(8 * MIB)


thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
exec(compile("allocate(9 * MIB)", "<made>", "exec"))
busy = True


def keep_busy():
    while busy:
        sys._current_frames()


others = [threading.Thread(target=keep_busy) for _ in range(2)]
for other in others:
    other.start()
for _ in range(50):
    allocate(10 * MIB)
busy = False
for other in others:
    other.join()
"""
MIB = 1 << 20


def expect(condition, what):
    if not condition:
        sys.exit(f"{what}: not so")


def pythons():
    """Those that run here, of the versions that are known: at least this one."""
    found = {}
    names = [sys.executable] + [f"python3.{minor}" for minor in range(9, 14)]
    for name in names:
        path = shutil.which(name)
        ask = [path, "-c", "import sys, sysconfig; print(sys.version_info[1], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"]
        answer = subprocess.run(ask, capture_output=True, text=True, check=False) if path else None
        if answer and answer.returncode == 0 and 9 <= int(answer.stdout.split()[0]) <= 13 and answer.stdout.split()[1] == "0":
            found.setdefault(int(answer.stdout.split()[0]), path)
    return found


def frames_of(python, folder, environment, lms):
    program = os.path.join(folder, "größe.py")
    with open(program, "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    trace = os.path.join(folder, "trace")
    run = subprocess.run([python, program], env=environment | {"LMS_TRACE": trace}, capture_output=True, text=True, check=False)
    expect(run.returncode == 0 and run.stderr == "", f"{python} runs the program ({run.stdout}{run.stderr})")
    report = json.loads(subprocess.run([lms, "report", "--json", trace], capture_output=True, text=True, check=True).stdout)
    csv = subprocess.run([lms, "export", "--csv", trace], capture_output=True, text=True, check=True).stdout
    return program, report["buffers"], csv


def check(minor, python, environment, lms):
    with tempfile.TemporaryDirectory() as folder:
        program, buffers, csv = frames_of(python, folder, environment, lms)
    python_frames = {}
    for buffer in buffers:
        frames = buffer["frames"]
        first = next((i for i, frame in enumerate(frames) if frame.startswith('File "')), len(frames))
        expect(all(frame.startswith('File "') for frame in frames[first:]), f"Python's frames come last: {frames}")
        expect(not any("PyEval" in frame for frame in frames), f"none is the interpreter's: {frames}")
        python_frames.setdefault(buffer["bytes"] >> 20, []).append(frames[first:])

    def at(text, function):
        """In the one line of the program that has the text."""
        (line,) = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if text in line]
        return f'File "{program}", line {line}, in {function}'

    def only(size):
        expect(len(python_frames[size]) == 1, f"{size} MiB are allocated at one place: {python_frames[size]}")
        return python_frames[size][0]

    qualified = minor >= 11  # earlier ones know functions by their last names
    inner = at("library.cuMemAlloc_v2", "allocate")
    expect(only(1) == [inner, at("allocate(1 *", "<module>")], f"without the GIL: {only(1)}")
    expect(only(2) == [inner, at("allocate(2 *", "<module>")], f"with it: {only(2)}")
    method = "Größe.生成" if qualified else "生成"
    expect(only(3) == [inner, at("allocate(size)  # of a method", method), at("生成(3 *", "<module>")], f"of a method: {only(3)}")
    expect(only(4) == [inner, at("allocate(size)  # deepest", "deep")] + 14 * [at("depth - 1)", "deep")], f"the innermost 16: {only(4)}")
    expect(only(5) == [inner, at("yield", "generated"), at("list(generated", "<module>")], f"of a generator: {only(5)}")
    expect(only(6) == [inner, at("[6 * MIB]", "<lambda>"), at("[6 * MIB]", "<module>")], f"of a lambda: {only(6)}")
    expect(only(7) == [inner, at("allocate(7 *", "<module>")], f"while an exception is handled: {only(7)}")
    expect(only(8)[:2] == [inner, at("allocate(8 *", "in_thread")] and "threading.py" in only(8)[2], f"of another thread: {only(8)}")
    expect(only(9) == [inner, 'File "<made>", line 1, in <module>', at('"<made>"', "<module>")], f"of code without a file: {only(9)}")
    expect(only(10) == [inner, at("allocate(10 *", "<module>")], f"while other threads look at the same frames: {only(10)}")
    # What they all share tells nothing.
    names = [buffer["call_site"] for buffer in buffers if buffer["bytes"] == MIB]
    expect(names == [at("allocate(1 *", "<module>")], f"the report names its buffers by Python's frames: {names}")
    lines = [line for line in csv.splitlines() if line.startswith("allocate,")]
    expect(all(inner.replace('"', '""') in line for line in lines), f"and so are they exported: {lines}")
    print(f"Python 3.{minor}: all frames")


def main(shim, driver, lms):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LMS_", "SIMCUDA_"))}
    environment |= {"LD_LIBRARY_PATH": os.path.dirname(driver), "LD_PRELOAD": os.path.abspath(shim), "SIMCUDA_MEMORY": "4G", "SIMCUDA_GRANULARITY": "64K", "LMS_THRESHOLD": "64K",
                    "PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "1"}
    found = pythons()
    expect(found, "some Python is here whose frames are known")
    for minor, python in found.items():
        check(minor, python, environment, lms)


main(*sys.argv[1:])
