// A kernel that is another where it may use what only its GPU has.
extern "C" __global__ void choose(float* a, float* b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    a[threadIdx.x] = 1;
#else
    b[threadIdx.x] = 1;
#endif
}
