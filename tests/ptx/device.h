// A bare device for tests of the translator and the executor: memory at device addresses, modules, launches.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tools/simcuda/address.h"
#include "tools/simcuda/exec/grid.h"
#include "tools/simcuda/ptx/program.h"

namespace simcuda::testing {

// Points the cache of compiled code at a folder of this process's own, so that tests compile what they test.
void use_private_cache();

// Memory at a device address, filled with a pattern; unmapped at the end.
class DeviceMemory {
  public:
    explicit DeviceMemory(std::size_t bytes);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    DeviceAddress address() const { return address_; }
    template <typename T>
    T* as() const {
        return static_cast<T*>(to_host(address_));
    }

  private:
    DeviceAddress address_;
    std::size_t bytes_;
};

class Module {
  public:
    explicit Module(std::string_view ptx);  // throws std::runtime_error with the reason

    const ptx::Kernel& kernel(std::string_view name) const;
    DeviceAddress variable(std::string_view name) const;
    const ptx::Program& program() const { return *image_->program; }

    exec::Launch launch(std::string_view kernel_name, std::vector<std::byte> parameters) const;

  private:
    std::shared_ptr<exec::Image> image_;
    std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

// Adds a parameter to the end of a parameter block.
void append_parameter(std::vector<std::byte>& block, const void* value, std::size_t bytes,
                      std::size_t alignment);

// The parameter block of a kernel with these parameters.
template <typename... T>
std::vector<std::byte> pack(const T&... values) {
    static_assert((std::is_trivially_copyable_v<T> && ...));
    std::vector<std::byte> block;
    (append_parameter(block, &values, sizeof values, alignof(T)), ...);
    return block;
}

struct Result {
    exec::Outcome outcome;
    DeviceAddress fault_address;
    std::string message;
};

// Runs a launch to its end on `workers` threads.
Result run(exec::Launch launch, unsigned workers = 1);

template <typename... T>
Result run(const Module& module, std::string_view kernel, std::uint32_t grid, std::uint32_t block,
           const T&... parameters) {
    exec::Launch launch = module.launch(kernel, pack(parameters...));
    launch.grid[0] = grid;
    launch.block[0] = block;
    return run(std::move(launch));
}

}  // namespace simcuda::testing
