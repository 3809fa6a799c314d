# What the recipes on PyTorch share, the environment too. Its own runtime refuses a simulated driver and is taken away, so
# that the simulated one is found; Triton is given a ptxas that hands PTX on.
packages="python3-venv gcc g++ python3-dev"
# Triton's kernels are for GPUs that are newer, inductor's products for those that are larger.
settings="SIMCUDA_ARCH=80 SIMCUDA_SMS=80"
strict_shares=2
venv=../pytorch/venv

fetch() {
    [ -e ../pytorch/complete ] && return
    mkdir -p ../pytorch && python3 -m venv "$venv" &&
        "$venv/bin/pip" install -q torch==2.15.0 triton==3.9.0 numpy==2.4.6 &&
        rm "$venv"/lib/python3*/site-packages/nvidia/cu13/lib/libcudart.so.13 && : >../pytorch/complete
}
version() { "$venv/bin/python" -c 'import torch, triton; print(torch.__version__, triton.__version__)'; }

run() {
    TRITON_PTXAS_PATH=$recipes/bin/ptxas TRITON_PTXAS_BLACKWELL_PATH=$recipes/bin/ptxas TRITON_LIBCUDA_PATH=$build/sim \
        TRITON_CACHE_DIR=$PWD/triton TORCHINDUCTOR_CACHE_DIR=$PWD/inductor HOME=$PWD \
        "$venv/bin/python" "$recipes/$1" $2
}

# train NAME: with the memory of the allocator that the variant names.
train() {
    case $variant in
    soft_limit) export LMS_SOFT_LIMIT="$SIMCUDA_MEMORY" ;;
    expandable) export PYTORCH_ALLOC_CONF=expandable_segments:True ;;
    async) export PYTORCH_ALLOC_CONF=backend:cudaMallocAsync ;;
    esac
    run torch_train.py "$1"
}
