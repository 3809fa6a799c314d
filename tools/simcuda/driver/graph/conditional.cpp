#include "tools/simcuda/driver/graph/conditional.h"

#include <atomic>
#include <map>
#include <mutex>

#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"

namespace simcuda::driver {
namespace {

struct HandleRegistry {
    std::mutex mutex;  // guards what follows
    std::map<CUgraphConditionalHandle, std::weak_ptr<Conditional>> by_handle;
};

HandleRegistry& handle_registry() {
    static auto& handle_registry = *new HandleRegistry;
    return handle_registry;
}

}  // namespace

Conditional::Conditional(Context& owner, const Graph& of, unsigned value, bool assigns)
    : graph(&of),
      context(owner.weak_from_this()),
      default_value(value),
      assigns_default(assigns),
      word_(allocate_device(owner, sizeof(unsigned), Region::Kind::Internal)),
      address_(word_.lock()->address) {
    assign_default();
}

Conditional::~Conditional() {
    {
        std::lock_guard lock(handle_registry().mutex);
        handle_registry().by_handle.erase(handle());
    }
    const RegionPtr word = word_.lock();
    if (word == nullptr || memory_map().find(address_) != word) return;
    memory_map().remove(address_);
    dispose(*word);
}

unsigned Conditional::value() const {
    return __atomic_load_n(static_cast<unsigned*>(to_host(address_)), __ATOMIC_ACQUIRE);
}

void Conditional::assign_default() const {
    __atomic_store_n(static_cast<unsigned*>(to_host(address_)), default_value, __ATOMIC_RELEASE);
}

std::shared_ptr<Conditional> create_conditional(Context& context, const Graph& graph, unsigned default_value,
                                                bool assigns_default) {
    auto conditional = std::make_shared<Conditional>(context, graph, default_value, assigns_default);
    std::lock_guard lock(handle_registry().mutex);
    handle_registry().by_handle.emplace(conditional->handle(), conditional);
    return conditional;
}

std::shared_ptr<Conditional> checked_conditional(CUgraphConditionalHandle handle) {
    std::lock_guard lock(handle_registry().mutex);
    const auto it = handle_registry().by_handle.find(handle);
    auto conditional = it == handle_registry().by_handle.end() ? nullptr : it->second.lock();
    require(conditional != nullptr, CUDA_ERROR_INVALID_VALUE);
    return conditional;
}

}  // namespace simcuda::driver
