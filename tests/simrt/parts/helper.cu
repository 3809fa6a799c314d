// A member of an archive: what link_test.cpp's caller lacks.
extern "C" __device__ unsigned elsewhere = 20;
extern "C" __device__ unsigned further();
extern "C" __device__ unsigned helper() {
    return further() + 3;
}
