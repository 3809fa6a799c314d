#!/bin/sh
# What the build needs and this machine lacks: Debian packages are named, or with `install` installed (by root or sudo;
# otherwise the line to run is printed), and where there is no CUDA toolkit the parts needed are fetched into the build
# folder. `make` runs this before everything else; when nothing is missing it only looks at some files.
#
# BUILD is the build folder, CUDA_HOME where the Makefile looks for the toolkit; with LINT=1 what `make lint` needs too, with
# MPI=1 what `make experiments` does, with BENCH=1 what `make bench` does.
set -eu

build=${BUILD:-build}
cuda_home=${CUDA_HOME:?the folder of the CUDA toolkit}
oldest_cuda=13000

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$@"
    exit 1
}

# ---- Debian packages

missing=
# A package is needed if its file is not there.
needs() { [ -e "$2" ] || missing="$missing $1"; }
needs_command() { command -v "$2" >/dev/null 2>&1 || missing="$missing $1"; }

needs_command g++ g++
needs_command gcc gcc
needs_command binutils readelf
needs_command ccache ccache
needs_command python3 python3
needs libfmt-dev /usr/include/fmt/format.h
needs libunwind-14-dev /usr/include/libunwind/libunwind.h
needs doctest-dev /usr/include/doctest/doctest.h
needs libbenchmark-dev /usr/include/benchmark/benchmark.h
needs libcli11-dev /usr/include/CLI/CLI.hpp
needs nlohmann-json3-dev /usr/include/nlohmann/json.hpp
needs libzstd-dev /usr/include/zstd.h
needs liblz4-dev /usr/include/lz4.h
needs libncurses-dev /usr/include/curses.h
needs libxxhash-dev /usr/include/xxhash.h
needs_command help2man help2man
needs_command pkg-config pkg-config
# Debian's own Python is checked, because tests/third_party uses it whichever comes first on PATH. venv's own check comes too
# late: Debian packages its pip separately.
python=python3
[ ! -x /usr/bin/python3 ] || python=/usr/bin/python3
$python -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"

if [ -n "${LINT:-}" ]; then
    needs_command clang-format clang-format
    needs_command clang-tidy clang-tidy
fi
if [ -n "${BENCH:-}" ]; then
    needs python3-scipy /usr/lib/python3/dist-packages/scipy/__init__.py
fi
if [ -n "${MPI:-}" ]; then
    needs_command openmpi-bin mpirun
    needs_command libopenmpi-dev mpicxx
fi

has_pip() { $python -m pip --version >/dev/null 2>&1; }
if [ ! -x "$cuda_home/bin/nvcc" ]; then
    needs ca-certificates /etc/ssl/certs/ca-certificates.crt
    has_pip || missing="$missing python3-pip"
fi

install() {
    say "installing$missing"
    "$@" env DEBIAN_FRONTEND=noninteractive apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    "$@" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
}

if [ -n "$missing" ]; then
    line="apt-get install --no-install-recommends$missing"
    command -v apt-get >/dev/null 2>&1 || die "install what Debian calls:$missing"
    if [ "${1:-}" != install ]; then
        die "missing:$missing; make setup${LINT:+ LINT=1}${MPI:+ MPI=1}${BENCH:+ BENCH=1} installs them, or run (as root): $line"
    elif [ "$(id -u)" = 0 ]; then
        install || die "that failed; needed is: $line"
    elif sudo -n true 2>/dev/null; then
        install sudo -n || die "that failed; needed is: sudo $line"
    else
        die "not root, and sudo asks for a password; run: sudo $line"
    fi
fi

# ---- CUDA toolkit

# The wheels hold what the toolkit's folders hold, less the links and the stand-in for the driver to link with.
fetch_cuda() {
    part=$build/cuda.part
    rm -rf "$part"
    $python -m pip install --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --retries 2 \
        --target "$part" --requirement tools/cuda-toolkit.txt >"$build/cuda-fetch.log" 2>&1 || return 1
    root=$part/nvidia/cu13
    chmod +x "$root"/bin/* "$root"/nvvm/bin/* 2>/dev/null || true
    ln -s lib "$root/lib64"
    ln -s libcudart.so.13 "$root/lib/libcudart.so"
    make_driver_stub "$root"
    mv "$root" "$build/cuda"
    rm -rf "$part"
}

# An empty libcuda.so with every name that cuda.h can make of a function: as declared, and per-thread.
make_driver_stub() {
    mkdir -p "$1/lib/stubs"
    grep -oE '\bcu[A-Z][A-Za-z0-9_]*' "$1/include/cuda.h" | sort -u |
        sed 's/.*/void &(void) {}\nvoid &_ptds(void) {}\nvoid &_ptsz(void) {}/' | sort -u |
        gcc -x c -w -fno-builtin -shared -o "$1/lib/stubs/libcuda.so" -Wl,-soname,libcuda.so.1 -
}

cuda_version() { sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/include/cuda.h" 2>/dev/null; }

if [ ! -x "$cuda_home/bin/nvcc" ]; then
    mkdir -p "$build"
    [ "$cuda_home" = "$(cd "$build" && pwd)/cuda" ] || die "CUDA_HOME=$cuda_home: expected a folder with bin/nvcc"
    say "no CUDA toolkit here; fetching what is needed of it (100 MB) into $build/cuda"
    fetch_cuda || die "that failed (why is in $build/cuda-fetch.log);" \
        "install the CUDA toolkit 13.0 or newer and set CUDA_HOME to its folder"
fi

version=$(cuda_version "$cuda_home")
[ "${version:-0}" -ge "$oldest_cuda" ] ||
    die "CUDA_HOME=$cuda_home: expected CUDA 13.0 or newer (make CUDA_HOME=\$PWD/$build/cuda fetches it)"
