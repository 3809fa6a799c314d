// A member that nobody needs, and that could not be linked beside the others.
extern "C" __device__ unsigned local = 7;
extern "C" __device__ unsigned which() {
    return 0;
}
