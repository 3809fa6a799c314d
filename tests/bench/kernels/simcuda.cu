// What the benchmark of the simulated GPU runs, compiled to PTX.
#include <cuda_runtime.h>

extern "C" {

// c = a b, square matrices of n rows, by tiles of 16 x 16 in shared memory.
__global__ void sgemm(const float* a, const float* b, float* c, unsigned n) {
    __shared__ float left[16][16], right[16][16];
    const unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (unsigned tile = 0; tile < n; tile += 16) {
        left[threadIdx.y][threadIdx.x] = a[y * n + tile + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + x];
        __syncthreads();
        for (unsigned k = 0; k < 16; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[y * n + x] = sum;
}

__global__ void triad(const float* a, const float* b, float* c, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + 3 * b[i];
}

// Adds the values to *sum: over the grid, the warp, the block, all blocks.
__global__ void reduction(const float* values, float* sum, unsigned n) {
    __shared__ float partial[32];
    float mine = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += values[i];
    for (unsigned offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(~0u, mine, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    mine = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    for (unsigned offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(~0u, mine, offset);
    if (threadIdx.x == 0) atomicAdd(sum, mine);
}

// A radix sort by 4 bits a pass, blocks of 256 keys: counts[digit][block], their running sums, places.
__global__ void radix_count(const unsigned* keys, unsigned* counts, unsigned shift) {
    __shared__ unsigned count[16];
    if (threadIdx.x < 16) count[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&count[keys[blockIdx.x * 256 + threadIdx.x] >> shift & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) counts[threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

__global__ void radix_scan(unsigned* counts, unsigned n) {
    __shared__ unsigned sums[1024];
    unsigned carry = 0;
    for (unsigned first = 0; first < n; first += 1024) {
        const unsigned mine = first + threadIdx.x < n ? counts[first + threadIdx.x] : 0;
        sums[threadIdx.x] = mine;
        __syncthreads();
        for (unsigned offset = 1; offset < 1024; offset *= 2) {
            const unsigned below = threadIdx.x >= offset ? sums[threadIdx.x - offset] : 0;
            __syncthreads();
            sums[threadIdx.x] += below;
            __syncthreads();
        }
        if (first + threadIdx.x < n) counts[first + threadIdx.x] = carry + sums[threadIdx.x] - mine;
        carry += sums[1023];
        __syncthreads();
    }
}

__global__ void radix_place(const unsigned* keys, unsigned* sorted, const unsigned* places, unsigned shift) {
    __shared__ unsigned before[8][16];  // keys of a digit in the block's warps, then in those before each
    const unsigned key = keys[blockIdx.x * 256 + threadIdx.x], digit = key >> shift & 15;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane < 16) before[warp][lane] = 0;
    __syncwarp();
    unsigned peers = ~0u;
    for (unsigned bit = 0; bit < 4; ++bit) {
        const bool set = digit >> bit & 1;
        const unsigned ballot = __ballot_sync(~0u, set);
        peers &= set ? ballot : ~ballot;
    }
    const unsigned rank = __popc(peers & ((1u << lane) - 1));
    if (rank == 0) before[warp][digit] = __popc(peers);
    __syncthreads();
    if (threadIdx.x < 16) {
        unsigned sum = 0;
        for (unsigned w = 0; w < 8; ++w) {
            const unsigned count = before[w][threadIdx.x];
            before[w][threadIdx.x] = sum;
            sum += count;
        }
    }
    __syncthreads();
    sorted[places[digit * gridDim.x + blockIdx.x] + before[warp][digit] + rank] = key;
}

// A step of heat in a square of n x n, by tiles with their rims in shared memory; the square's own rim stays.
__global__ void stencil(const float* from, float* to, unsigned n) {
    __shared__ float tile[18][18];
    const unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    const unsigned column = threadIdx.x + 1, row = threadIdx.y + 1;
    const bool inside = x > 0 && y > 0 && x < n - 1 && y < n - 1;
    tile[row][column] = from[y * n + x];
    if (inside && threadIdx.x == 0) tile[row][0] = from[y * n + x - 1];
    if (inside && threadIdx.x == 15) tile[row][17] = from[y * n + x + 1];
    if (inside && threadIdx.y == 0) tile[0][column] = from[(y - 1) * n + x];
    if (inside && threadIdx.y == 15) tile[17][column] = from[(y + 1) * n + x];
    __syncthreads();
    if (inside)
        to[y * n + x] = 0.5f * tile[row][column] + 0.125f * (tile[row][column - 1] + tile[row][column + 1] +
                                                             tile[row - 1][column] + tile[row + 1][column]);
}

// One step of n bodies that attract each other.
__global__ void nbody(const float4* bodies, float4* accelerations, unsigned n) {
    __shared__ float4 tile[256];
    const unsigned i = blockIdx.x * 256 + threadIdx.x;
    const float4 me = bodies[i];
    float4 sum = {0, 0, 0, 0};
    for (unsigned first = 0; first < n; first += 256) {
        tile[threadIdx.x] = bodies[first + threadIdx.x];
        __syncthreads();
        for (unsigned j = 0; j < 256; ++j) {
            const float x = tile[j].x - me.x, y = tile[j].y - me.y, z = tile[j].z - me.z;
            const float inverse = rsqrtf(x * x + y * y + z * z + 1e-9f);
            const float pull = tile[j].w * inverse * inverse * inverse;
            sum.x += x * pull, sum.y += y * pull, sum.z += z * pull;
        }
        __syncthreads();
    }
    accelerations[i] = sum;
}

// Nothing but waiting.
__global__ void barriers(unsigned n) {
    for (unsigned i = 0; i < n; ++i) __syncthreads();
}

__global__ void shuffles(unsigned* out, unsigned n) {
    unsigned value = threadIdx.x;
    for (unsigned i = 0; i < n; ++i) value = __shfl_xor_sync(~0u, value, 1) + 1;
    if (value == 0) *out = 0;
}
}
