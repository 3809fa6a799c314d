// Lists and trees that the host builds and uploads: of each a kernel is given the head or the root alone.
// Every one of them has its nodes in two buffers; some are cut out, linked again and uploaded in part. The
// second argument is the seed.
#include <random>

#include "check.h"

constexpr std::size_t kBytes = 256 << 10;

struct Node {
    Node* left;  // of a list: the next
    Node* right;
    unsigned value;
    unsigned visits;
};
constexpr unsigned kNodes = kBytes / sizeof(Node);  // of a buffer
constexpr unsigned kChains = 32;

// One thread a chain; the chains are disjoint.
__global__ void walk(Node* heads, unsigned long long* sums, unsigned round) {
    unsigned chain = threadIdx.x;
    unsigned long long sum = 0;
    for (Node* node = heads[chain].left; node != nullptr; node = node->left) {
        sum += node->value;
        node->value = node->value * 5 + round;
        ++node->visits;
    }
    sums[chain] = sum;
}

// Every thread looks for its own values and counts the nodes it comes through.
__global__ void search(Node* root, const unsigned* wanted, unsigned count, unsigned long long* found) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    Node* node = root;
    while (node != nullptr && node->value != wanted[i]) {
        atomicAdd(&node->visits, 1u);
        node = wanted[i] < node->value ? node->left : node->right;
    }
    if (node != nullptr) atomicAdd(found, 1ull);
}

// Two buffers of nodes, here and on the device.
struct Forest {
    Node* device[2];
    std::vector<Node> host[2];

    Forest() {
        for (int b = 0; b < 2; ++b) {
            CHECK(cudaMalloc(&device[b], kBytes));
            host[b].assign(kNodes, Node{});
        }
    }
    Node& at(unsigned n) { return host[n % 2][n / 2]; }
    Node* address(unsigned n) { return device[n % 2] + n / 2; }
    Node& at(const Node* node) {
        const bool second = node >= device[1] && node < device[1] + kNodes;
        return host[second][node - device[second]];
    }
    void upload(unsigned buffer, unsigned first, unsigned count) {
        CHECK(cudaMemcpy(device[buffer] + first, host[buffer].data() + first, count * sizeof(Node),
                         cudaMemcpyHostToDevice));
    }
    void compare(const char* what) {
        for (int b = 0; b < 2; ++b) {
            std::vector<Node> found(kNodes);
            CHECK(cudaMemcpy(found.data(), device[b], kNodes * sizeof(Node), cudaMemcpyDeviceToHost));
            for (unsigned i = 0; i < kNodes; ++i) {
                if (found[i].value != host[b][i].value || found[i].visits != host[b][i].visits)
                    FAIL("%s: node %u of buffer %d: %u (%u), not %u (%u)", what, i, b, found[i].value,
                         found[i].visits, host[b][i].value, host[b][i].visits);
            }
        }
    }
    void free() {
        for (Node* buffer : device) CHECK(cudaFree(buffer));
    }
};

struct Lists : Forest {
    explicit Lists(std::mt19937& random) : order(2 * kNodes) {
        for (unsigned n = 0; n < 2 * kNodes; ++n) order[n] = n;
        std::shuffle(order.begin() + kChains, order.end(), random);
        // The first nodes are the heads. The rest hang on them in turn.
        for (unsigned n = 0; n < 2 * kNodes; ++n) {
            at(order[n]).value = random();
            if (n >= kChains) at(order[n - kChains]).left = address(order[n]);
        }
        // Heads lie side by side in the first buffer.
        std::vector<Node> heads;
        for (unsigned chain = 0; chain < kChains; ++chain) heads.push_back(at(order[chain]));
        head.resize(kChains);
        for (unsigned chain = 0; chain < kChains; ++chain) head[chain] = heads[chain];
        CHECK(cudaMalloc(&head_device, kChains * sizeof(Node)));
        CHECK(cudaMemcpy(head_device, head.data(), kChains * sizeof(Node), cudaMemcpyHostToDevice));
        for (unsigned b = 0; b < 2; ++b) upload(b, 0, kNodes);
    }
    // Takes the node after the n-th of some chain out, on the host and by one small copy.
    void cut(unsigned n) {
        Node& before = at(n);
        if (before.left == nullptr) return;
        before.left = at(before.left).left;
        upload(n % 2, n / 2, 1);
    }
    // What walking does.
    unsigned long long follow(unsigned chain, unsigned round) {
        unsigned long long sum = 0;
        for (const Node* node = head[chain].left; node != nullptr;) {
            Node& here = at(node);
            sum += here.value;
            here.value = here.value * 5 + round;
            ++here.visits;
            node = here.left;
        }
        return sum;
    }

    std::vector<unsigned> order;
    std::vector<Node> head;
    Node* head_device = nullptr;
};

struct Tree : Forest {
    explicit Tree(std::mt19937& random) {
        std::vector<unsigned> values(2 * kNodes);
        for (unsigned n = 0; n < values.size(); ++n) values[n] = 2 * n + 1;
        std::vector<unsigned> places(values.size());
        for (unsigned n = 0; n < places.size(); ++n) places[n] = n;
        std::shuffle(places.begin(), places.end(), random);
        root = build(values, places, 0, static_cast<unsigned>(values.size()));
        for (unsigned b = 0; b < 2; ++b) upload(b, 0, kNodes);
    }
    // A balanced tree of the values [begin, end), each at its place.
    Node* build(const std::vector<unsigned>& values, const std::vector<unsigned>& places, unsigned begin,
                unsigned end) {
        if (begin == end) return nullptr;
        const unsigned middle = (begin + end) / 2;
        Node& node = at(places[middle]);
        node.value = values[middle];
        node.left = build(values, places, begin, middle);
        node.right = build(values, places, middle + 1, end);
        return address(places[middle]);
    }
    bool find(unsigned wanted) {
        const Node* node = root;
        while (node != nullptr) {
            Node& here = at(node);
            if (here.value == wanted) return true;
            ++here.visits;
            node = wanted < here.value ? here.left : here.right;
        }
        return false;
    }

    Node* root = nullptr;
};

int main(int argc, char** argv) {
    std::mt19937 random(argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1);
    const std::size_t pairs = std::max<std::size_t>(bytes_to_use(argc, argv, 4) / (4 * kBytes), 1);
    std::vector<Lists> lists;
    std::vector<Tree> trees;
    for (std::size_t i = 0; i < pairs; ++i) {
        lists.emplace_back(random);
        trees.emplace_back(random);
    }
    constexpr unsigned kWanted = 512;
    unsigned long long *sums, *found;
    unsigned* wanted;
    CHECK(cudaMalloc(&sums, kChains * sizeof(*sums)));
    CHECK(cudaMalloc(&found, sizeof(*found)));
    CHECK(cudaMalloc(&wanted, kWanted * sizeof(*wanted)));

    for (unsigned round = 1; round <= 6 * pairs; ++round) {
        Lists& list = lists[random() % pairs];
        for (int i = 0; i < 5; ++i) list.cut(static_cast<unsigned>(random() % (2 * kNodes)));
        walk<<<1, kChains>>>(list.head_device, sums, round);
        CHECK_LAUNCH();

        Tree& tree = trees[random() % pairs];
        std::vector<unsigned> values(kWanted);
        for (unsigned& value : values) value = static_cast<unsigned>(random() % (4 * kNodes + 4));
        unsigned long long zero = 0, there = 0;
        CHECK(cudaMemcpy(wanted, values.data(), kWanted * sizeof(unsigned), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(found, &zero, sizeof(zero), cudaMemcpyHostToDevice));
        search<<<blocks_for(kWanted, 128), 128>>>(tree.root, wanted, kWanted, found);
        CHECK_LAUNCH();
        for (const unsigned value : values) there += tree.find(value);

        unsigned long long found_sums[kChains], found_count;
        CHECK(cudaMemcpy(found_sums, sums, sizeof(found_sums), cudaMemcpyDeviceToHost));
        for (unsigned chain = 0; chain < kChains; ++chain)
            CHECK_EQUAL(list.follow(chain, round), found_sums[chain]);
        CHECK(cudaMemcpy(&found_count, found, sizeof(found_count), cudaMemcpyDeviceToHost));
        CHECK_EQUAL(there, found_count);
    }
    for (Lists& list : lists) {
        list.compare("list");
        list.free();
        CHECK(cudaFree(list.head_device));
    }
    for (Tree& tree : trees) {
        tree.compare("tree");
        tree.free();
    }
    CHECK(cudaFree(sums));
    CHECK(cudaFree(found));
    CHECK(cudaFree(wanted));
    return succeed();
}
