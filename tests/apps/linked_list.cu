// Lists whose links are built on the device: from the arguments of the walking kernel only the head can be
// seen.
#include "check.h"

struct Node {
    Node* next;
    unsigned value;
    unsigned visits;
};

constexpr unsigned kLists = 8;

// Node i of list l lives in buffer (i + l) % buffers, so that every list goes through every buffer.
__global__ void build(Node* const* buffers, unsigned count, unsigned per_buffer, Node** heads) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned length = count * per_buffer / kLists;
    if (i >= length * kLists) return;
    unsigned list = i % kLists, place = i / kLists;
    auto node_at = [&](unsigned where) { return buffers[where % count] + (where / count) * kLists + list; };
    Node* node = node_at(place);
    node->next = place + 1 < length ? node_at(place + 1) : nullptr;
    node->value = noise(place, list);
    node->visits = 0;
    if (place == 0) heads[list] = node;
}

__global__ void walk(Node* const* heads, unsigned long long* sums) {
    unsigned list = threadIdx.x;
    unsigned long long sum = 0;
    for (Node* node = heads[list]; node != nullptr; node = node->next) {
        sum += node->value;
        ++node->visits;
    }
    sums[list] = sum;
}

int main(int argc, char** argv) {
    const std::size_t bytes = kMiB;
    const unsigned count =
        static_cast<unsigned>(std::max<std::size_t>(bytes_to_use(argc, argv, 4) / bytes, 1));
    const unsigned per_buffer = bytes / sizeof(Node);
    const unsigned length = count * per_buffer / kLists;
    std::vector<Node*> buffers(count);
    for (Node*& buffer : buffers) CHECK(cudaMalloc(&buffer, bytes));
    Node **table, **heads;
    unsigned long long* sums;
    CHECK(cudaMalloc(&table, count * sizeof(Node*)));
    CHECK(cudaMalloc(&heads, kLists * sizeof(Node*)));
    CHECK(cudaMalloc(&sums, kLists * sizeof(*sums)));
    CHECK(cudaMemcpy(table, buffers.data(), count * sizeof(Node*), cudaMemcpyHostToDevice));
    build<<<blocks_for(length * kLists), 256>>>(table, count, per_buffer, heads);
    CHECK_LAUNCH();
    for (int round = 0; round < 2; ++round) walk<<<1, kLists>>>(heads, sums);
    CHECK_LAUNCH();
    unsigned long long found[kLists];
    CHECK(cudaMemcpy(found, sums, sizeof(found), cudaMemcpyDeviceToHost));
    for (unsigned list = 0; list < kLists; ++list) {
        unsigned long long expected = 0;
        for (unsigned place = 0; place < length; ++place) expected += noise(place, list);
        CHECK_EQUAL(expected, found[list]);
    }
    std::vector<Node> nodes(per_buffer);
    unsigned long long visits = 0;
    for (Node* buffer : buffers) {
        CHECK(cudaMemcpy(nodes.data(), buffer, bytes, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < per_buffer; ++i) visits += nodes[i].visits;
        CHECK(cudaFree(buffer));
    }
    CHECK_EQUAL(2ull * length * kLists, visits);
    CHECK(cudaFree(table));
    CHECK(cudaFree(heads));
    CHECK(cudaFree(sums));
    return succeed();
}
