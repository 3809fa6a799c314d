"""NVIDIA's own user-space drivers, which load without a device, with the shim and without: make real-drivers-check.

Fetches Debian's libcuda1 packages (section non-free, from the mirror that this machine has in its sources) into
build/real_drivers/ and compares, for each, all that answers.py asks for. What the drivers answered is kept in
recorded.txt, to which the simulated driver is held by `make test`. Skipped with one line where the section cannot be
reached. Ends with 0 if nothing differs.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

import recorded

HERE = pathlib.Path(__file__).resolve().parent
SUITES = ["bookworm", "trixie", "sid", "experimental"]
SECTIONS = ["version", "exports", "lookups", "errors", "before", "given", "after"]
DRIVER = "usr/lib/x86_64-linux-gnu/nvidia/current"
WHEELS = {
    "numba": "from numba import cuda; print(cuda.is_available()); cuda.detect()",
    "cupy-cuda12x": "import cupy; print(cupy.cuda.runtime.getDeviceCount())",
    "cuda-bindings": "from cuda.bindings import driver; print(driver.cuInit(0)); print(driver.cuDeviceGetCount())",
    "jax[cuda12]": "import jax; print(jax.devices())",
    "torch": "import torch; print(torch.cuda.is_available(), torch.cuda.device_count()); torch.zeros(1, device='cuda')",
}


class Unreachable(Exception):
    pass


def run(command, environment=None, **options):
    whole = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **(environment or {})}
    return subprocess.run(command, env=whole, text=True, capture_output=True, **options)


class Apt:
    """apt with sources and state of its own, so that nothing of the machine's changes."""

    def __init__(self, folder):
        self.folder = folder
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        mirror = self.mirror()
        (folder / "sources.list").write_text("".join(
            f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} non-free\n"
            for suite in SUITES))
        (folder / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "-";\n'
            f'Dir::State "{folder}/state";\nDir::State::status "{folder}/status";\nDir::Cache "{folder}/cache";\n'
            'Acquire::Languages "none";\nAcquire::http::Timeout "20";\n'
            + ('APT::Sandbox::User "root";\n' if os.getuid() == 0 else ""))

    @staticmethod
    def mirror():
        try:
            listed = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(RELEASE)",
                          "Created-By: Packages"])
        except FileNotFoundError:
            raise Unreachable("there is no apt-get") from None
        for line in listed.stdout.splitlines():
            uri, origin, release = (line.split() + ["", "", ""])[:3]
            if origin == "Debian" and not release.endswith("-security"):
                return uri
        raise Unreachable("apt has no Debian mirror in its sources")

    def call(self, *command):
        done = run(command, {"APT_CONFIG": str(self.folder / "apt.conf")}, cwd=self.folder)
        if done.returncode != 0 or "Failed to fetch" in done.stderr:
            last = (done.stderr.strip() or "no reason given").splitlines()[-1]
            raise Unreachable(re.sub(r"\b\w+://\S+", "the mirror", last))
        return done.stdout

    def packages(self):
        """The newest package of each driver version."""
        self.call("apt-get", "update")
        newest = {}
        for line in self.call("apt-cache", "madison", "libcuda1").splitlines():
            package = line.split("|")[1].strip()
            newest.setdefault(package.rpartition("-")[0], package)
        return newest

    def fetch(self, package, into):
        if not (into / DRIVER / "libcuda.so.1").exists():
            self.call("apt-get", "download", f"libcuda1={package}")
            found = next(self.folder.glob(f"libcuda1_{package.replace(':', '%3a')}_*.deb"))
            subprocess.run(["dpkg-deb", "-x", found, into], check=True)
        return into / DRIVER


class Check:
    def __init__(self, build, cuda_home):
        self.build = build
        self.shim = str(build / "liblmsshim.so")
        self.runtimes = [f"{cuda_home}/lib64", f"{cuda_home}/lib"]
        self.failures = 0

    def compare(self, what, expected, got):
        if expected == got:
            print(f"  {what}: the same, {len(expected)} lines")
            return
        self.failures += 1
        print(f"  {what}: DIFFERS")
        for line in [f"- {line}" for line in expected if line not in got][:10] + \
                    [f"+ {line}" for line in got if line not in expected][:10]:
            print(f"    {line[:240]}")

    def compare_programs(self, what, command, alone, over):
        self.compare(what, said(run(command, alone)), said(run(command, over)))

    def driver(self, folder):
        """Everything about one driver; what it answers."""
        libraries = {"LD_LIBRARY_PATH": ":".join([str(folder), *self.runtimes])}
        shimmed = {**libraries, "LD_PRELOAD": self.shim}
        named = {"LD_PRELOAD": self.shim, "LMS_DRIVER": str(folder / "libcuda.so.1")}
        more = sorted(names_of(folder / "libcuda.so.1") - names_of(self.shim))
        unknown = [name for name in more if re.match("cu[A-Z]", name)]
        print(f"  has and the table lacks: {', '.join(unknown) or 'nothing'}")
        recorded = answers(libraries, SECTIONS, more)
        self.compare("with the shim", recorded, answers(shimmed, SECTIONS, more))
        self.compare("with the shim, driver by LMS_DRIVER", recorded, answers(named, SECTIONS, more))
        hooks = answers(shimmed, ["hooks"], [])
        self.compare("hooks are the shim's", [re.sub(r"(hook \w+) .*", r"\1 liblmsshim.so", line) for line in hooks], hooks)
        for runtime in ("static", "shared"):
            program = [str(self.build / f"interpose/runtime_{runtime}")]
            self.compare_programs(f"NVIDIA's runtime, {runtime}", program, libraries, shimmed)
        return recorded

    def wheel(self, name, drivers):
        """A framework that asks for devices, over each driver; installed for that alone."""
        home = self.build / "real_drivers/wheel"
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
            subprocess.run([home / "bin/python", "-m", "pip", "install", "-q", "--no-cache-dir",
                            "--disable-pip-version-check", name], check=True)
            for version, folder in sorted(drivers.items()):
                alone = {"LD_LIBRARY_PATH": str(folder)}
                program = [str(home / "bin/python"), "-c", WHEELS[name]]
                without, over = (told(said(run(program, {**alone, **more}))) for more in ({}, {"LD_PRELOAD": self.shim}))
                self.compare(f"{name} asks for devices, {version}", without, over)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def absent(self):
        """No driver at all: NVIDIA's runtimes end alike."""
        alone = {"LD_LIBRARY_PATH": ":".join(self.runtimes)}
        for runtime in ("static", "shared"):
            program = [str(self.build / f"interpose/runtime_{runtime}")]
            self.compare_programs(f"NVIDIA's runtime, {runtime}, without a driver", program, alone,
                                  {**alone, "LD_PRELOAD": self.shim})


def said(done):
    return [f"status {done.returncode}", *done.stdout.splitlines(),
            *(f"stderr {line}" for line in done.stderr.splitlines())]


def told(lines):
    """Without times, addresses and numbers of processes."""
    return [re.sub(r"0x[0-9a-f]+|\d+", "#", line) for line in lines]


def answers(environment, sections, more):
    return said(run([sys.executable, "-B", str(HERE / "answers.py"), *sections, "--names", ",".join(more)], environment))


def names_of(library):
    symbols = run(["nm", "-D", "--defined-only", str(library)]).stdout.splitlines()
    return {line.split()[-1].partition("@")[0] for line in symbols}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cuda-home", required=True)
    parser.add_argument("--record", action="store_true", help="write what they answer into recorded.txt")
    parser.add_argument("--wheels", nargs="*", choices=WHEELS, metavar="NAME",
                        help="frameworks too, one after the other, or these: " + ", ".join(WHEELS) +
                        " (the last two install some GB)")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    folder = build / "real_drivers"
    try:
        apt = Apt(folder)
        drivers = {version: apt.fetch(package, folder / version) for version, package in apt.packages().items()}
    except Unreachable as why:
        print(f"real-drivers-check: skipped, for NVIDIA's drivers cannot be had from Debian here: {why}")
        return 0
    check, said_by = Check(build, arguments.cuda_home), {}
    for version, path in sorted(drivers.items()):
        print(f"{version}:")
        said_by[version] = check.driver(path)
    check.absent()
    for name in [] if arguments.wheels is None else arguments.wheels or WHEELS:
        check.wheel(name, drivers)
    if arguments.record:
        recorded.write(said_by)
    else:
        check.compare("recorded.txt", recorded.FILE.read_text().splitlines(), recorded.text(said_by))
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
