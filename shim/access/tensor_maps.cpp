#include "shim/access/tensor_maps.h"

#include "shim/program/memory_changes.h"
#include "shim/util/mutex.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <unordered_map>

namespace lms::access {

namespace {

using Words = std::array<std::uint64_t, sizeof(CUtensorMap) / sizeof(std::uint64_t)>;

struct Hash {
    std::size_t operator()(const Words& words) const {
        std::uint64_t hash = 0;
        for (const std::uint64_t word : words) hash = (hash ^ word) * 0x9e3779b97f4a7c15 + (hash >> 29);
        return hash;
    }
};

// Never destroyed: other libraries' exit handlers launch kernels too.
struct TensorMapRegistry {
    std::atomic<bool> any{false};
    util::SharedMutex mutex{util::LockOrder::Table};
    std::unordered_map<Words, engine::Address, Hash> maps LMS_GUARDED_BY(mutex);
};

TensorMapRegistry& tensor_map_registry() {
    static TensorMapRegistry& instance = *new TensorMapRegistry;
    return instance;
}

// The map's contents without what programs edit in them: Triton clears bit 21 of word 1.
Words contents(const void* map) {
    constexpr std::uint64_t kEdited = 1u << 21;
    Words words;
    std::memcpy(words.data(), map, sizeof words);
    words[1] &= ~kEdited;
    return words;
}

}  // namespace

void note_tensor_map(const CUtensorMap& map, engine::Address address) {
    const Words words = contents(&map);
    // Where the address shows, a scan of the arguments finds it.
    for (const std::uint64_t word : words) {
        if (word == address) return;
    }
    const util::Lock lock(tensor_map_registry().mutex);
    tensor_map_registry().maps[words] = address;
    ++program::memory_changes;
    tensor_map_registry().any.store(true, std::memory_order_release);
}

void find_tensor_maps(const void* data, std::size_t offset, std::size_t bytes,
                      std::pmr::vector<engine::Address>& found) {
    if (!tensor_map_registry().any.load(std::memory_order_acquire)) return;
    // Since CUDA 13 they are aligned to 128 bytes, before that to 64.
    constexpr std::size_t kAlignment = 64;
    const util::SharedLock lock(tensor_map_registry().mutex);
    for (std::size_t at = (kAlignment - offset % kAlignment) % kAlignment; at + sizeof(Words) <= bytes;
         at += kAlignment) {
        const auto it = tensor_map_registry().maps.find(contents(static_cast<const char*>(data) + at));
        if (it != tensor_map_registry().maps.end()) found.push_back(it->second);
    }
}

}  // namespace lms::access
