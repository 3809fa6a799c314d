#!/bin/sh
# Runs a JAX program on the simulated GPU: sh jax_simulated.sh PYTHON SCRIPT [ARGUMENT ...], under `lms run --sim` or `lms plan`.
# PYTHON is that of a virtual environment with jax, jax-cuda13-plugin and jax-cuda13-pjrt. XLA_FLAGS are kept.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1
shift

# XLA loads cuDNN, and has no use for it here.
lib=$(cd "$(dirname "$python")/.." && pwd)/lib/simulated
[ -e "$lib/libcudnn.so.9" ] || { mkdir -p "$lib" && cc -shared -fPIC -o "$lib/libcudnn.so.9" "$here/cudnn.c"; }

# XLA's libraries are native code alone; so would its kernels be, but for the ptxas.
flags="--xla_gpu_experimental_disable_binary_libraries=true --xla_gpu_autotune_level=0"
flags="$flags --xla_gpu_enable_libnvptxcompiler=false --xla_gpu_enable_libnvjitlink=false"
export XLA_FLAGS="$flags --xla_gpu_cuda_data_dir=$here ${XLA_FLAGS:-}"
export PATH="$here/bin:$PATH" LD_LIBRARY_PATH="$lib:${LD_LIBRARY_PATH:-}:${CUDA_HOME:-/usr/local/cuda}/lib64"
# Triton's kernels are for GPUs that are newer.
export SIMCUDA_ARCH="${SIMCUDA_ARCH:-80}"

# JAX asks the driver for GPUs only where the machine has NVIDIA's device files, and the simulated GPU has none.
exec "$python" -c 'import runpy, sys; from jax._src import hardware_utils
hardware_utils.has_visible_nvidia_gpu = lambda: True
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
