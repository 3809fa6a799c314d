#include "shim/access/legacy_parameters.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "shim/access/arguments.h"
#include "shim/util/mutex.h"

namespace lms::access {

namespace {

// Never destroyed: other libraries' exit handlers launch kernels too.
struct BlockRegistry {
    util::Mutex mutex{util::LockOrder::Table};
    std::unordered_map<CUfunction, std::vector<std::byte>> blocks LMS_GUARDED_BY(mutex);
};

BlockRegistry& block_registry() {
    static BlockRegistry& instance = *new BlockRegistry;
    return instance;
}

}  // namespace

void set_parameters(CUfunction function, std::size_t offset, const void* data, std::size_t bytes) {
    const util::Lock lock(block_registry().mutex);
    std::vector<std::byte>& block = block_registry().blocks[function];
    block.resize(std::max(block.size(), offset + bytes));
    std::memcpy(block.data() + offset, data, bytes);
}

void add_parameters(session::WorkingSet& reach, CUfunction function) {
    std::vector<std::byte> block;
    {
        const util::Lock lock(block_registry().mutex);
        const auto it = block_registry().blocks.find(function);
        if (it != block_registry().blocks.end()) block = it->second;
    }
    std::size_t bytes = block.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, block.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    add_arguments(reach, function, nullptr, extra, nullptr);
}

}  // namespace lms::access
