// The probes' kernels. Every one that waits has a limit in time, so that none outlives its probe.

__device__ unsigned long long now_ns() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

// signals[0]: set by the kernel once it runs; signals[1]: set by the host to end it. Pinned memory.
__device__ bool goes_on(const volatile unsigned* signals, unsigned long long begin,
                        unsigned long long limit_ns) {
    return signals[1] == 0 && now_ns() - begin < limit_ns;
}

extern "C" __global__ void spin(volatile unsigned* signals, unsigned long long limit_ns) {
    const unsigned long long begin = now_ns();
    signals[0] = 1;
    while (goes_on(signals, begin, limit_ns)) {
    }
}

// Adds 1 to every word, round after round. results[0]: rounds; results[1]: the longest round, ns. One block.
extern "C" __global__ void keep_adding(unsigned* words, unsigned count, volatile unsigned* signals,
                                       unsigned long long limit_ns, volatile unsigned long long* results) {
    const unsigned long long begin = now_ns();
    unsigned long long last = begin;
    __shared__ bool more;
    do {
        for (unsigned i = threadIdx.x; i < count; i += blockDim.x) words[i] += 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            const unsigned long long now = now_ns();
            results[0] += 1;
            if (now - last > results[1]) results[1] = now - last;
            last = now;
            signals[0] = 1;
            more = goes_on(signals, begin, limit_ns);
        }
        __syncthreads();
    } while (more);
}

__device__ unsigned pattern(unsigned i, unsigned seed) {
    unsigned x = seed ^ (i * 0x9e3779b9u);
    x ^= x >> 16;
    return x * 0x85ebca6bu;
}

extern "C" __global__ void fill(unsigned* words, unsigned count, unsigned seed) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        words[i] = pattern(i, seed);
    }
}

// Adds to *wrong the words that are not what fill() writes.
extern "C" __global__ void compare(const unsigned* words, unsigned count, unsigned seed, unsigned* wrong) {
    unsigned found = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        found += words[i] != pattern(i, seed);
    }
    if (found != 0) atomicAdd(wrong, found);
}

extern "C" __global__ void read_all(const uint4* data, unsigned count, unsigned* out) {
    unsigned sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const uint4 value = data[i];
        sum += value.x ^ value.y ^ value.z ^ value.w;
    }
    if (sum == 0x12345678) *out = sum;  // hardly ever; keeps the reads
}

extern "C" __global__ void write_all(uint4* data, unsigned count, unsigned value) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        data[i] = make_uint4(value, value + 1, value + 2, value + 3);
    }
}

// Every thread adds `times` to each of the two counters, one at a time.
extern "C" __global__ void count_up(unsigned* narrow, unsigned long long* wide, unsigned times) {
    for (unsigned i = 0; i < times; ++i) {
        atomicAdd(narrow, 1u);
        atomicAdd(wide, 1ull);
    }
}

extern "C" __global__ void nothing() {}
