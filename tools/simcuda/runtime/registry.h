// What a program registers before main: its fat binaries, and the kernels and variables in them, by the
// address of their host-side stand-ins. Each binary becomes a library of the driver at the first use of
// anything in it.
//
// Thread-safe. Look-ups throw Failure.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/simcuda/runtime/driver.h"

namespace simcuda::runtime {

class Binary {
  public:
    explicit Binary(const void* wrapper) : wrapper_(wrapper) {}

    // Loads the library at the first call. A failure is not remembered: it may have been a want of memory.
    CUlibrary library(const Driver& cu);

    // Gives back the library, if it was loaded.
    void unload();

    // Managed variables: the host's stand-in is a pointer that must be set before anybody follows it.
    struct Managed {
        void** pointer;
        std::string name;
    };
    std::vector<Managed> managed;

  private:
    const void* wrapper_;
    std::mutex mutex_;
    CUlibrary library_ = nullptr;
};

struct Symbol {
    void* address;  // on the device, in the current context
    std::size_t bytes;
};

class Registry {
  public:
    static Registry& instance();

    Binary* add_binary(const void* wrapper);
    void remove_binary(Binary* binary);
    void add_kernel(Binary* binary, const void* stand_in, const char* name);
    void add_variable(Binary* binary, const void* stand_in, const char* name);
    void add_managed(Binary* binary, void** pointer, const char* name);

    // The kernel that `entry` stands for: a registered function, or a CUkernel or CUfunction the driver gave
    // out, which is returned as it is. Throws cudaErrorInvalidDeviceFunction for a name the binary does not
    // hold.
    CUkernel kernel(const Driver& cu, const void* entry);

    // The same in terms of the current context.
    CUfunction function(const Driver& cu, const void* entry);

    // The stand-in a kernel was looked up by, or the kernel itself if it was never looked up here.
    void* stand_in(CUkernel kernel);

    // Throws cudaErrorInvalidSymbol for an address nothing was registered under.
    Symbol symbol(const Driver& cu, const void* stand_in);

    // Sets the pointers of the binary's managed variables.
    void initialise_managed(const Driver& cu, Binary* binary);

  private:
    struct Named {
        Binary* binary;
        std::string name;
        CUkernel kernel = nullptr;  // once looked up
    };
    CUkernel known(const Driver& cu, CUkernel handle);  // mutex_ is held
    std::optional<Named> find_variable(const void* stand_in);

    std::mutex mutex_;
    std::unordered_map<Binary*, std::unique_ptr<Binary>> binaries_;
    std::unordered_map<const void*, Named> kernels_;
    std::unordered_map<const void*, Named> variables_;
    std::unordered_map<CUkernel, const void*> stand_ins_;  // of every handle known to be one
};

}  // namespace simcuda::runtime
