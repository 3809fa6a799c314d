// A bare device for tests.
#include "tests/ptx/device.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "tests/ptx/coverage.h"

namespace simcuda::testing {
namespace {

constexpr int kFreshPattern = 0xa7;

DeviceAddress next_address(std::size_t bytes) {
    // A gap behind each allocation, so that running over its end faults.
    static std::atomic<DeviceAddress> next{kDeviceWindowBegin + (std::uint64_t{1} << 30)};
    return next.fetch_add((bytes + 0xffff + 0x10000) & ~std::uint64_t{0xffff});
}

}  // namespace

void use_private_cache() {
    static const std::string folder = [] {
        std::string name =
            (std::filesystem::temp_directory_path() / fmt::format("simcuda-test-{}", getpid())).string();
        setenv("SIMCUDA_CACHE", name.c_str(), 1);
        std::atexit([] { std::filesystem::remove_all(std::getenv("SIMCUDA_CACHE")); });
        return name;
    }();
}

DeviceMemory::DeviceMemory(std::size_t bytes) : address_(next_address(bytes)), bytes_(bytes ? bytes : 1) {
    void* memory = mmap(to_host(address_), bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no device memory");
    std::memset(memory, kFreshPattern, bytes_);
}

DeviceMemory::~DeviceMemory() {
    munmap(to_host(address_), bytes_);
}

Module::Module(std::string_view ptx) : image_(std::make_shared<exec::Image>()) {
    use_private_cache();
    std::string error;
    image_->program = ptx::Program::translate(ptx, error);
    if (!image_->program) throw std::runtime_error(error);
    note_module(program(), ptx);
    for (const ptx::Variable& variable : program().variables()) {
        memory_.push_back(std::make_unique<DeviceMemory>(variable.bytes));
        image_->variable_addresses.push_back(memory_.back()->address());
        std::memset(memory_.back()->as<char>(), 0, variable.bytes);
        std::memcpy(memory_.back()->as<char>(), variable.initial.data(), variable.initial.size());
    }
    for (std::size_t i = 0; i < memory_.size(); ++i)
        for (const ptx::Relocation& relocation : program().variables()[i].relocations) {
            const DeviceAddress target =
                variable(relocation.symbol) + static_cast<std::uint64_t>(relocation.addend);
            std::memcpy(memory_[i]->as<char>() + relocation.offset, &target, sizeof target);
        }
}

const ptx::Kernel& Module::kernel(std::string_view name) const {
    for (const ptx::Kernel& kernel : program().kernels())
        if (kernel.name == name) return kernel;
    throw std::runtime_error(fmt::format("no kernel {}", name));
}

DeviceAddress Module::variable(std::string_view name) const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
        if (program().variables()[i].name == name) return memory_[i]->address();
    throw std::runtime_error(fmt::format("no variable {}", name));
}

exec::Launch Module::launch(std::string_view kernel_name, std::vector<std::byte> parameters) const {
    exec::Launch launch;
    launch.image = image_;
    launch.kernel = &kernel(kernel_name);
    launch.parameters = std::move(parameters);
    return launch;
}

void append_parameter(std::vector<std::byte>& block, const void* value, std::size_t bytes,
                      std::size_t alignment) {
    const std::size_t at = (block.size() + alignment - 1) / alignment * alignment;
    block.resize(at + bytes);
    std::memcpy(block.data() + at, value, bytes);
}

Result run(exec::Launch launch, unsigned workers) {
    const ptx::Kernel& kernel = *launch.kernel;
    const auto image = launch.image;
    const std::unique_ptr<exec::Grid> grid = exec::Grid::create(std::move(launch));
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < workers; ++i)
        threads.emplace_back([&grid] {
            while (grid->run(1)) {
            }
        });
    while (grid->run(1)) {
    }
    for (std::thread& thread : threads) thread.join();
    if (grid->outcome() == exec::Outcome::Finished || grid->outcome() == exec::Outcome::Trap)
        note_run(kernel);
    return {grid->outcome(), grid->fault_address(), grid->message()};
}

}  // namespace simcuda::testing
