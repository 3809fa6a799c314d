// Pointers that kernels put into memory, so that nobody on the host sees them: in a __device__ variable, in a
// table, in lists. Through them, buffers are read, written and counted in while other streams work through
// others that need the room. The second argument is the seed.
#include <random>

#include "check.h"

constexpr std::size_t kBytes = 128 << 10;
constexpr unsigned kWords = kBytes / sizeof(unsigned);
constexpr unsigned kHidden = 16;
constexpr unsigned kStreams = 3;

__device__ unsigned* published[kHidden];

// The only kernel that is given a hidden buffer.
__global__ void publish(unsigned slot, unsigned* buffer, unsigned** table) {
    published[slot] = buffer;
    table[slot] = buffer + kWords / 4;
}

// Reads one hidden buffer and writes another, through the variable.
__global__ void mix(unsigned from, unsigned to, unsigned round) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kWords) return;
    published[to][i] = published[to][i] * 3 + (published[from][i] ^ round);
}

// Counts in a hidden buffer, through the table in memory.
__global__ void count(unsigned** table, unsigned slot, unsigned amount) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&table[slot][(i * 7) % (kWords / 2)], amount);
}

// Work that says what it works on.
__global__ void plain(unsigned* buffer, unsigned round) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < kWords) buffer[i] = buffer[i] * 5 + noise(i, round);
}

int main(int argc, char** argv) {
    std::mt19937 random(argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1);
    const std::size_t buffers =
        std::max<std::size_t>(bytes_to_use(argc, argv, 8) / kBytes, 2 * kHidden) - kHidden;
    std::vector<unsigned*> hidden(kHidden), open(buffers);
    std::vector<std::vector<unsigned>> hidden_host(kHidden), open_host(buffers);
    unsigned** table;
    CHECK(cudaMalloc(&table, kHidden * sizeof(*table)));
    cudaStream_t streams[kStreams];
    for (cudaStream_t& stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    const auto make = [&](unsigned*& device, std::vector<unsigned>& host, unsigned salt) {
        CHECK(cudaMalloc(&device, kBytes));
        host.resize(kWords);
        for (unsigned i = 0; i < kWords; ++i) host[i] = noise(i, salt);
        CHECK(cudaMemcpy(device, host.data(), kBytes, cudaMemcpyHostToDevice));
    };
    for (unsigned h = 0; h < kHidden; ++h) {
        make(hidden[h], hidden_host[h], h);
        publish<<<1, 1>>>(h, hidden[h], table);
        CHECK_LAUNCH();
    }
    for (std::size_t b = 0; b < buffers; ++b) make(open[b], open_host[b], 100 + static_cast<unsigned>(b));
    CHECK(cudaDeviceSynchronize());

    // The first stream has the hidden buffers, the others the rest between them.
    const unsigned blocks = blocks_for(kWords);
    for (unsigned round = 1; round <= 400; ++round) {
        const unsigned choice = static_cast<unsigned>(random() % 6);
        if (choice == 0) {
            const unsigned from = static_cast<unsigned>(random() % kHidden);
            const unsigned to = (from + 1 + static_cast<unsigned>(random() % (kHidden - 1))) % kHidden;
            mix<<<blocks, 256, 0, streams[0]>>>(from, to, round);
            for (unsigned i = 0; i < kWords; ++i)
                hidden_host[to][i] = hidden_host[to][i] * 3 + (hidden_host[from][i] ^ round);
        } else if (choice == 1) {
            const unsigned slot = static_cast<unsigned>(random() % kHidden);
            count<<<blocks, 256, 0, streams[0]>>>(table, slot, round);
            for (unsigned i = 0; i < blocks * 256; ++i)
                hidden_host[slot][kWords / 4 + (i * 7) % (kWords / 2)] += round;
        } else if (choice == 2) {
            // Now and then one of them is worked on openly, behind the work that reaches it unseen.
            const unsigned slot = static_cast<unsigned>(random() % kHidden);
            plain<<<blocks, 256, 0, streams[0]>>>(hidden[slot], round);
            for (unsigned i = 0; i < kWords; ++i)
                hidden_host[slot][i] = hidden_host[slot][i] * 5 + noise(i, round);
        } else {
            const std::size_t b = random() % buffers;
            plain<<<blocks, 256, 0, streams[1 + b % (kStreams - 1)]>>>(open[b], round);
            for (unsigned i = 0; i < kWords; ++i) open_host[b][i] = open_host[b][i] * 5 + noise(i, round);
        }
        CHECK_LAUNCH();
    }
    CHECK(cudaDeviceSynchronize());

    std::vector<unsigned> found(kWords);
    const auto compare = [&](const char* what, std::size_t which, const unsigned* device,
                             const std::vector<unsigned>& host) {
        CHECK(cudaMemcpy(found.data(), device, kBytes, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < kWords; ++i) {
            if (found[i] != host[i])
                FAIL("%s buffer %zu, word %u: %u, not %u", what, which, i, found[i], host[i]);
        }
    };
    for (unsigned h = 0; h < kHidden; ++h) compare("hidden", h, hidden[h], hidden_host[h]);
    for (std::size_t b = 0; b < buffers; ++b) compare("open", b, open[b], open_host[b]);
    for (unsigned* buffer : hidden) CHECK(cudaFree(buffer));
    for (unsigned* buffer : open) CHECK(cudaFree(buffer));
    CHECK(cudaFree(table));
    return succeed();
}
