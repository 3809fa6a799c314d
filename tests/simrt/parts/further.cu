// A member that only another member needs.
extern "C" __device__ unsigned further() {
    return 1000;
}
