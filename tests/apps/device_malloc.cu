// Memory that kernels allocate and free themselves: lists that one kernel builds, a second walks and a third
// frees, beside buffers that need the device's memory.
#include "batches.h"

struct Node {
    unsigned value;
    Node* next;
};

// A list of 1 to 4 nodes for every input of each block's first thread, its values counted down from the
// input.
__global__ void build(const unsigned* in, Node** heads, unsigned lists, unsigned stride) {
    const unsigned list = blockIdx.x * blockDim.x + threadIdx.x;
    if (list >= lists) return;
    Node* head = nullptr;
    const unsigned value = in[list * stride];
    for (unsigned i = 0; i <= value % 4; ++i) {
        Node* node = static_cast<Node*>(malloc(sizeof(Node)));
        if (node == nullptr) break;
        node->value = value - i;
        node->next = head;
        head = node;
    }
    heads[list] = head;
}

__global__ void walk(Node* const* heads, const unsigned* in, unsigned* out, unsigned lists, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned sum = in[i];
    for (const Node* node = heads[i % lists]; node != nullptr; node = node->next) sum = sum * 3 + node->value;
    out[i] = sum;
}

__global__ void release(Node** heads, unsigned lists) {
    const unsigned list = blockIdx.x * blockDim.x + threadIdx.x;
    for (Node* node = list < lists ? heads[list] : nullptr; node != nullptr;) {
        Node* next = node->next;
        free(node);
        node = next;
    }
}

// An array each with new and delete.
__global__ void sorted_by_counting(const unsigned* in, unsigned* wrong) {
    const unsigned size = 16 + threadIdx.x;
    unsigned* counts = new unsigned[size];
    for (unsigned i = 0; i < size; ++i) counts[i] = 0;
    for (unsigned i = 0; i < 64; ++i) ++counts[in[threadIdx.x * 64 + i] % size];
    unsigned sum = 0;
    for (unsigned i = 0; i < size; ++i) sum += counts[i];
    if (sum != 64) atomicAdd(wrong, 1u);
    delete[] counts;
}

int main(int argc, char** argv) {
    constexpr unsigned kLists = 256;
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 128 << 10));
    std::size_t heap = 0;
    CHECK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    if (heap < 128 << 10) FAIL("a heap of %zu", heap);
    for (int round = 0; round < 2; ++round) {
        Buffer<Node*> heads(kLists);
        Buffer<unsigned> wrong(std::vector<unsigned>{0});
        bool built = false;
        over_batches<unsigned, unsigned>(
            bytes_to_use(argc, argv, 4), "walked", [](std::size_t i) { return noise(i); },
            [&](const unsigned* in, unsigned* out, unsigned n) {
                // The lists are the first batch's: the others walk them too.
                if (!built) build<<<2, 128>>>(in, heads.get(), kLists, n / kLists);
                built = true;
                sorted_by_counting<<<1, n / 64 < 64 ? n / 64 : 64>>>(in, wrong.get());
                walk<<<blocks_for(n), 256>>>(heads.get(), in, out, kLists, n);
            },
            [](const std::vector<unsigned>& in) {
                std::vector<unsigned> out(in);
                for (std::size_t i = 0; i < in.size(); ++i) {
                    const unsigned value = noise(i % kLists * (in.size() / kLists));
                    for (unsigned k = value % 4 + 1; k-- > 0;) out[i] = out[i] * 3 + value - k;
                }
                return out;
            });
        release<<<2, 128>>>(heads.get(), kLists);
        CHECK_LAUNCH();
        wrong.expect({0}, "new and delete");
    }
    return succeed();
}
