"""make deb, make wheel, make install: each installed where nothing else is, tried, and removed.

No other test runs make: two at once would make the same files.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.getcwd()
BUILD = os.environ.get("BUILD", "build")
PROGRAM = os.path.join(ROOT, BUILD, "apps", "vector_add")
COMMANDS = ("run", "demo", "plan", "settings", "doctor", "top", "set", "report", "replay", "diff", "export", "trace")
LIBRARIES = {"libcudart.so.13", "libgcc_s.so.1", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
BINARIES = {"demo", "lms", "liblmsshim.so", "libcuda.so.1", "libcudart.so.13", "libnvidia-ml.so.1", "lru.so"}
problems = []


def run(*command, **more):
    env = {name: value for name, value in os.environ.items() if not re.match("LMS_|SIMCUDA_|LD_|MAKE|MFLAGS", name)}
    env.update(more.pop("env", {}))
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False, env=env, **more)
    return done.returncode, done.stdout, done.stderr


def expect(condition, what, said=""):
    if not condition:
        problems.append(what)
        print(f"{what}\n{said}", flush=True)


def must(*command, **more):
    status, out, err = run(*command, **more)
    expect(status == 0, f"{' '.join(map(str, command))} ended with {status}", out + err)
    return out


def moves_memory(name, *lms):
    """The program that needs more than the GPU has runs, and memory was moved."""
    status, out, err = run(*lms, "run", "--sim", "--sim-memory", "8M", "--threshold", "64K", "--", PROGRAM, "16")
    expect(status == 0, f"{name}: vector_add ended with {status}", out + err)
    expect(re.search(r"moved|came in|went out", err), f"{name}: nothing says that memory moved", err)


def shows_demo(name, folder, *lms):
    """Without a compiler: of programs only those that the demo calls can be found."""
    home = os.path.join(folder, "home")
    os.makedirs(f"{home}/bin")
    for tool in ("awk", "cat", "cmp", "dirname", "grep", "head", "mktemp", "rm", "sed", "sh", "sha256sum", "tee"):
        os.symlink(shutil.which(tool), f"{home}/bin/{tool}")
    env = {"PATH": f"{home}/bin", "HOME": home, "XDG_CACHE_HOME": f"{home}/cache"}
    status, out, err = run(*lms, "demo", "--steps", "6", env=env)
    expect(status == 0 and out.count("\n  ok ") == 8, f"{name}: the demo ended with {status}", out + err)
    expect(not os.path.exists(f"{home}/cache/simcuda"), f"{name}: the demo compiled kernels")
    status, out, err = run(*lms, "demo", "--steps", "6", os.path.join(ROOT, "LICENSE"), env=env)
    expect(status == 0, f"{name}: the demo of another text ended with {status}", out + err)
    shutil.rmtree(home)


def runs_scripts(name, folder, python, *lms):
    script = os.path.join(folder, "train.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("import os, sys\nprint(sys.executable, sys.argv[1:], 'LMSSHIM_PYTHON' in os.environ)\n")
    status, out, err = run(*lms, "run", "--summary=off", script, "--epochs", "2")
    expect(status == 0 and out == f"{python} ['--epochs', '2'] False\n", f"{name}: train.py", out + err)


def files_below(folder):
    return {os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names}


def runs_with_old_glibc(name, tree):
    """Every binary needs these alone: glibc 2.28, of libgcc what GCC 4 had, and CUDA's runtime."""
    seen = set()
    for file in sorted(files_below(tree)):
        with open(os.path.join(tree, file), "rb") as content:
            if content.read(4) != b"\x7fELF":
                continue
        seen.add(os.path.basename(file))
        dynamic = must("readelf", "--wide", "--dynamic", "--version-info", os.path.join(tree, file))
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        expect(needed <= LIBRARIES, f"{name}: {file} needs {needed - LIBRARIES}")
        versions = {tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_([\d.]+)", dynamic)}
        expect(max(versions, default=(9,) if needed else ()) <= (2, 28), f"{name}: {file} needs glibc {versions}")
        others = set(re.findall(r"Name: ((?!GLIBC_\d|GCC_[34]\.)\S+)  Flags", dynamic))
        expect(others <= LIBRARIES, f"{name}: {file} needs {others - LIBRARIES}")
    expect(seen >= BINARIES, f"{name}: without {BINARIES - seen}")


def debian_package(folder):
    must("make", "-s", "deb")
    (package,) = glob.glob(f"{BUILD}/lmsshim_*.deb")
    root = os.path.join(folder, "root")
    for each in ("updates", "info"):
        os.makedirs(f"{root}/var/lib/dpkg/{each}")
    open(f"{root}/var/lib/dpkg/status", "w", encoding="utf-8").close()
    dpkg = ("dpkg", f"--root={root}", "--force-depends", "--force-not-root", "--force-bad-path")
    before = files_below(root)
    # Others than root cannot have files that are root's: for them the package is only unpacked.
    install_it, remove_it = ((*dpkg, "-i", package), (*dpkg, "-P", "lmsshim")) if os.geteuid() == 0 else (
        ("dpkg-deb", "-x", package, root), ("rm", "-r", f"{root}/usr"))
    must(*install_it)
    moves_memory("deb", f"{root}/usr/bin/lms")
    shows_demo("deb", folder, f"{root}/usr/bin/lms")
    depends = must("dpkg-deb", "-f", package, "Depends")
    expect(depends == "libc6 (>= 2.28)\n", "deb: depends on other than libc6", depends)
    runs_with_old_glibc("deb", f"{root}/usr")
    for page in ("lms", "lms-run", "lms-top"):
        expect(os.path.exists(f"{root}/usr/share/man/man1/{page}.1.gz"), f"deb: no page {page}")
    must(*remove_it)
    left = {each for each in files_below(root) - before if not each.startswith("var/")}
    expect(not left, f"deb: left behind {left}")


def wheel(folder):
    must("make", "-s", "wheel")
    (package,) = glob.glob(f"{BUILD}/lmsshim-*.whl")
    expect(package.endswith("-manylinux_2_28_x86_64.whl"), f"wheel: {package}")
    must(sys.executable, "-m", "venv", f"{folder}/venv")
    python = f"{folder}/venv/bin/python"
    before = files_below(folder)
    must(python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", package)
    expect(must(f"{folder}/venv/bin/lms", "--version").startswith("lms "), "wheel: no lms --version")
    runs_with_old_glibc("wheel", must(python, "-c", "import lms; print(lms.__path__[0])").strip())
    moves_memory("wheel", python, "-m", "lms")
    shows_demo("wheel", folder, python, "-m", "lms")
    runs_scripts("wheel", folder, python, python, "-m", "lms")
    shim = must(python, "-c", "import lms; print(lms.SHIM)").strip()
    expect(os.path.exists(shim), f"wheel: no {shim}")
    must(python, "-m", "pip", "uninstall", "-q", "-y", "lmsshim")
    left = {each for each in files_below(folder) - before if not each.endswith(("train.py", ".pyc"))}
    expect(not left, f"wheel: left behind {left}")


def completion(prefix):
    """Offers what there is: all that --help lists, and nothing else."""
    script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lms; printf "%s\\n" "${COMPREPLY[@]}"'
    path = {"PATH": f"{prefix}/bin:" + os.environ["PATH"]}

    def offered(*words):
        return sorted(must("bash", "-c", script, f"{prefix}/share/bash-completion/completions/lms", "lms", *words, env=path).split())

    expect(offered("") == sorted(COMMANDS), "completion: the commands", offered(""))
    for command in COMMANDS:
        options = re.findall(r"^  (?:-\w,)?(--[a-z-]+)", must(f"{prefix}/bin/lms", command, "--help"), re.MULTILINE)
        expect(offered(command, "--") == sorted(options), f"completion: the options of {command}", offered(command, "--"))
    expect(offered("run", "--pol") == ["--policy"], "completion: one option")
    expect(offered("run", "--", "python", "--pol") == [], "completion: the program's own options", offered("run", "--", "python", "--pol"))
    expect(offered("trace", "1", "st") == ["start", "stop"], "completion: what a trace does")
    expect(offered("set", "1", "p") == ["pause", "policy="], "completion: what is changed")


def pages(prefix):
    """Each command has a page, which tells what its --help does."""
    for command in ("", *COMMANDS):
        page = "-".join(filter(None, ("lms", command)))
        with open(f"{prefix}/share/man/man1/{page}.1", encoding="utf-8") as file:
            shown = file.read().replace("\\-", "-")
        expect(f"{page} - " in shown, f"pages: the name of {page}", shown)
        told = must(f"{prefix}/bin/lms", *filter(None, (command,)), "--help")
        for option in re.findall(r"^  (?:-\w,)?(--[a-z-]+)", told, re.MULTILINE):
            expect(option in shown, f"pages: {option} in {page}", shown)


def install(folder):
    prefix = f"{folder}/prefix"
    must("make", "-s", "install", f"PREFIX={prefix}")
    moves_memory("install", f"{prefix}/bin/lms")
    found = json.loads(must(f"{prefix}/bin/lms", "doctor", "--sim", "--json"))["shim"]["path"]
    expect(found == f"{prefix}/lib/lmsshim/liblmsshim.so", f"install: the shim is {found}")
    for file in ("lib/lmsshim/policy/lru.so", "include/lms/policy.h"):
        expect(os.path.exists(f"{prefix}/{file}"), f"install: no {file}")
    # A folder that ldconfig reads would make the shim the machine's libcuda.
    beside = [each.name for each in os.scandir(f"{prefix}/lib") if not each.is_dir()]
    expect(not beside, f"install: in lib {beside}")
    env = {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
    flags = must("pkg-config", "--cflags", "lmsshim", env=env)
    expect(flags.strip() == f"-I{prefix}/include", "install: pkg-config --cflags", flags)
    shim = must("pkg-config", "--variable=shim", "lmsshim", env=env).strip()
    expect(os.path.exists(shim), f"install: pkg-config names {shim}")
    completion(prefix)
    pages(prefix)
    must("make", "-s", "uninstall", f"PREFIX={prefix}")
    expect(not files_below(prefix), f"uninstall: left behind {files_below(prefix)}")


for check in (debian_package, wheel, install):
    with tempfile.TemporaryDirectory(prefix="lmsshim-package-") as folder:
        check(folder)
print(f"{len(problems)} problems")
sys.exit(1 if problems else 0)
